/* test_grad_compress — compressed sums are the same bits on all ranks, whole or in parts; they are
 * near the true sum; with error feedback the mean of many is nearer. What is counted as sent is
 * what the transport sent. */
#include "mesh/ranks.h"

#include "base/rand.h"
#include "comm/core/part.h"
#include "mesh/grad/compress.h"

#define ELEMS 5003
#define SMALL 7 /* a bucket with fewer elements than ranks have parts */
#define LARGE 1 /* number of the other bucket */
#define ROUNDS 40

/* A form of gradients. once: how far one sum may be off, also that of the small bucket. The mean of
 * ROUNDS sums is NEARER times nearer, at least. */
#define NEARER 8
struct form {
    enum grad_compress_kind kind;
    double once;
};

struct case_of {
    struct form form;
    struct grad_compress_traffic traffic;
    bool is_whole;
    bool is_late;                   /* own part first, then _gather_begin */
    float first[ELEMS], sum[ELEMS]; /* after one round; of all rounds */
    float small[SMALL];
};

static float value(int rank, int64_t i)
{
    return (float)rand_normal(4, RAND_STREAM(TEST, rank), (uint64_t)i);
}

static enum status one_round(struct ranks_one *one, struct case_of *c, struct grad_compress *q,
                             int round)
{
    struct comm_ticket ticket, ticket_small;
    struct part_extent part = part_extent(ELEMS, one->ranks, one->rank);
    static _Thread_local float x[ELEMS], small[SMALL];
    for (int64_t i = 0; i < ELEMS; i++)
        /* the same gradient each round, so that residuals must arrive */
        x[i] = value(one->rank, i);
    for (int i = 0; i < SMALL; i++)
        small[i] = value(one->rank + 50, i);
    TRY(grad_compress_begin(q, LARGE, x, c->is_whole ? x : NULL, x + part.first, &ticket));
    TRY(grad_compress_begin(q, 0, small, small, NULL, &ticket_small));
    TRY(comm_wait(one->comm, ticket));
    TRY(comm_wait(one->comm, ticket_small));
    if (c->is_late) {
        TRY(grad_compress_gather_begin(q, LARGE, x, &ticket));
        TRY(comm_wait(one->comm, ticket));
    }
    for (int64_t i = 0; i < ELEMS; i++) {
        bool is_there =
            c->is_whole || c->is_late || (i >= part.first && i < part.first + part.elems);
        c->first[i] = round == 0 && is_there ? x[i] : c->first[i];
        c->sum[i] += is_there ? x[i] / ROUNDS : 0;
    }
    if (round == 0)
        memcpy(c->small, small, sizeof small);
    return ST_OK;
}

static enum status one_rank(struct ranks_one *one)
{
    struct case_of *c = one->arg;
    struct grad_compress *q;
    enum status st = ST_OK;
    const int64_t elems[] = {SMALL, ELEMS};
    struct grad_compress_config config = {.comm = one->comm,
                                          .kind = c->form.kind,
                                          .deferred_first = c->is_late ? LARGE : 2,
                                          .buckets_n = 2,
                                          .bucket_elems = elems};
    TRY(grad_compress_open(&config, &q));
    for (int round = 0; st == ST_OK && round < ROUNDS; round++)
        st = one_round(one, c, q, round);
    c->traffic = grad_compress_traffic(q);
    grad_compress_close(q);
    return st;
}

/* Root mean square of a - b, divided by that of b. */
static double apart(const float *a, const double *b, int64_t n)
{
    double diff = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(diff / size);
}

/* Each round sends each other rank a part of the gradient and a part of the sum of each bucket.
 * Coded, that is at most so much, with lengths and the lengths of chunks. */
static void check_traffic(const struct form *form, int ranks, const struct case_of *whole)
{
    const struct grad_compress_traffic *t = &whole[0].traffic;
    const bool is_coded = grad_compress_is_coded(form->kind);
    const enum grad_compress_kind kind =
        form->kind == GRAD_COMPRESS_KIND_INT8_ZSTD   ? GRAD_COMPRESS_KIND_INT8
        : form->kind == GRAD_COMPRESS_KIND_INT4_ZSTD ? GRAD_COMPRESS_KIND_INT4
                                                     : form->kind;
    int64_t parts = grad_compress_part_bytes(kind, ranks, ELEMS) +
                    grad_compress_part_bytes(kind, ranks, SMALL),
            lengths = 2 * (16 + 16), packed = ROUNDS * 2 * (ranks - 1) * parts;
    print_message("#   %.2f bits an element\n", 8 * (double)t->bytes / (double)t->elems);
    assert_true(is_coded ? t->bytes < packed + ROUNDS * 2 * (ranks - 1) * lengths
                         : t->bytes == packed);
    for (int rank = 1; rank < ranks; rank++)
        assert_int_equal(whole[rank].traffic.bytes, t->bytes);
}

static void check(const struct form *form, int ranks, const double *want, const double *want_small)
{
    static struct case_of whole[RANKS_MAX], parts[RANKS_MAX], late[RANKS_MAX];
    memset(whole, 0, sizeof whole);
    memset(parts, 0, sizeof parts);
    memset(late, 0, sizeof late);
    for (int rank = 0; rank < ranks; rank++) {
        whole[rank].form = parts[rank].form = late[rank].form = *form;
        whole[rank].is_whole = late[rank].is_late = true;
    }
    ranks_run(1, ranks, one_rank, whole, sizeof *whole);
    ranks_run(1, ranks, one_rank, parts, sizeof *parts);
    ranks_run(1, ranks, one_rank, late, sizeof *late);
    for (int rank = 0; rank < ranks; rank++) {
        struct part_extent part = part_extent(ELEMS, ranks, rank);
        assert_memory_equal(whole[rank].first, whole[0].first, sizeof whole[0].first);
        assert_memory_equal(whole[rank].sum, whole[0].sum, sizeof whole[0].sum);
        assert_memory_equal(whole[rank].small, whole[0].small, sizeof whole[0].small);
        assert_memory_equal(late[rank].sum, whole[0].sum, sizeof whole[0].sum);
        assert_memory_equal(parts[rank].sum + part.first, whole[0].sum + part.first,
                            (size_t)part.elems * sizeof(float));
    }
    double once = apart(whole[0].first, want, ELEMS), all = apart(whole[0].sum, want, ELEMS);
    print_message("# kind %d, %d ranks: one sum is %.1e off, the mean of %d is %.1e off\n",
                  (int)form->kind, ranks, once, ROUNDS, all);
    assert_true(once < form->once && all < once / NEARER);
    assert_true(apart(whole[0].small, want_small, SMALL) < form->once);
    check_traffic(form, ranks, whole);
}

static const struct form forms[] = {{GRAD_COMPRESS_KIND_INT8, 0.02},
                                    {GRAD_COMPRESS_KIND_INT8_ZSTD, 0.08},
                                    {GRAD_COMPRESS_KIND_INT4, 0.25},
                                    {GRAD_COMPRESS_KIND_INT4_ZSTD, 0.25}};

static void test_sums(void **state)
{
    for (int ranks = 2; ranks <= 5; ranks++) {
        static double want[ELEMS], want_small[SMALL];
        for (int64_t i = 0; i < ELEMS; i++)
            for (int rank = 0; rank < ranks; rank++)
                want[i] = (rank ? want[i] : 0) + value(rank, i);
        for (int i = 0; i < SMALL; i++)
            for (int rank = 0; rank < ranks; rank++)
                want_small[i] = (rank ? want_small[i] : 0) + value(rank + 50, i);
        for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
            check(&forms[i], ranks, want, want_small);
    }
}

/* ---- over TCP, with 5.5 bits for int8 ---- */

#define LARGE_ELEMS 300000
#define NODES 3

static char addresses[NODES][COMM_ADDRESS_MAX];
static int64_t address_bytes[NODES];
static pthread_barrier_t opened;

static enum status open_tcp(struct ranks_one *one, struct comm_config config)
{
    static const uint8_t secret[COMM_SECRET_BYTES] = "of this test...";
    config.kind = COMM_KIND_HOST;
    config.net = COMM_NET_TCP;
    config.data_addr = config.master = "127.0.0.1";
    config.secret = secret;
    config.is_oversubscribed = true;
    enum status st =
        comm_begin_open(&config, &one->comm, addresses[one->rank], &address_bytes[one->rank]);
    pthread_barrier_wait(&opened);
    return st == ST_OK ? comm_end_open(one->comm, 1, addresses, address_bytes) : st;
}

struct sent {
    struct form form;
    struct grad_compress_traffic traffic;
    int64_t bytes;
    int calls;
};

static enum status send_large(struct ranks_one *one)
{
    struct sent *s = one->arg;
    struct grad_compress *q;
    struct comm_ticket ticket;
    struct comm_times times;
    const int64_t elems = LARGE_ELEMS;
    struct grad_compress_config config = {.comm = one->comm,
                                          .kind = s->form.kind,
                                          .deferred_first = 1,
                                          .buckets_n = 1,
                                          .bucket_elems = &elems};
    float *x = malloc((size_t)elems * sizeof *x);
    for (int64_t i = 0; i < elems; i++)
        x[i] = value(one->rank, i);
    TRY(grad_compress_open(&config, &q));
    comm_times(one->comm, &times);
    enum status st = grad_compress_begin(q, 0, x, x, NULL, &ticket);
    if (st == ST_OK)
        st = comm_wait(one->comm, ticket);
    comm_times(one->comm, &times);
    s->bytes = times.bytes_sent;
    s->traffic = grad_compress_traffic(q);
    grad_compress_close(q);
    free(x);
    return st;
}

/* Each call begins with a header for each peer: the exchange, and the gather; coded, two gathers of
 * lengths more. */
static void test_counted(void **state)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        struct sent sent[NODES];
        for (int rank = 0; rank < NODES; rank++)
            sent[rank] = (struct sent){.form = forms[i]};
        ranks_own_open = open_tcp;
        pthread_barrier_init(&opened, NULL, NODES);
        ranks_run(NODES, 1, send_large, sent, sizeof *sent);
        pthread_barrier_destroy(&opened);
        ranks_own_open = NULL;
        for (int rank = 0; rank < NODES; rank++) {
            const struct grad_compress_traffic *t = &sent[rank].traffic;
            int64_t headers = sent[rank].bytes - t->bytes;
            double bits = 8 * (double)t->bytes / (double)t->elems;
            print_message("# kind %d, rank %d: %lld bytes counted, %lld more sent, %.3f bits\n",
                          (int)forms[i].kind, rank, (long long)t->bytes, (long long)headers, bits);
            assert_int_equal(headers,
                             (NODES - 1) * 64 * (grad_compress_is_coded(forms[i].kind) ? 4 : 2));
            assert_true(forms[i].kind != GRAD_COMPRESS_KIND_INT8_ZSTD || bits <= 5.5);
        }
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums),
                                          cmocka_unit_test(test_counted)};
HARNESS_MAIN(tests)
