/* test_grad_compress — compressed sums are the same bits on all ranks, whole or in parts; they are
 * near the true sum; with error feedback the mean of many is nearer. */
#include "mesh/ranks.h"

#include <math.h>

#include "base/rand.h"
#include "comm/core/part.h"
#include "mesh/grad_compress.h"

#define ELEMS 5003
#define SMALL 7 /* a bucket with fewer elements than ranks have parts */
#define LARGE 1 /* number of the other bucket */
#define ROUNDS 40

struct case_of {
    enum grad_compress_kind kind;
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
                                          .kind = c->kind,
                                          .deferred_first = c->is_late ? LARGE : 2,
                                          .buckets_n = 2,
                                          .bucket_elems = elems};
    TRY(grad_compress_open(&config, &q));
    for (int round = 0; st == ST_OK && round < ROUNDS; round++)
        st = one_round(one, c, q, round);
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

static void check(enum grad_compress_kind kind, int ranks, const double *want,
                  const double *want_small)
{
    static struct case_of whole[RANKS_MAX], parts[RANKS_MAX], late[RANKS_MAX];
    memset(whole, 0, sizeof whole);
    memset(parts, 0, sizeof parts);
    memset(late, 0, sizeof late);
    for (int rank = 0; rank < ranks; rank++) {
        whole[rank].kind = parts[rank].kind = late[rank].kind = kind;
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
                  (int)kind, ranks, once, ROUNDS, all);
    /* BF16 has no error feedback */
    assert_true(once < 0.02 && (kind == GRAD_COMPRESS_KIND_BF16 || all < once / 8));
    assert_true(apart(whole[0].small, want_small, SMALL) < 0.02);
}

static void test_sums(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++) {
        static double want[ELEMS], want_small[SMALL];
        for (int64_t i = 0; i < ELEMS; i++)
            for (int rank = 0; rank < ranks; rank++)
                want[i] = (rank ? want[i] : 0) + value(rank, i);
        for (int i = 0; i < SMALL; i++)
            for (int rank = 0; rank < ranks; rank++)
                want_small[i] = (rank ? want_small[i] : 0) + value(rank + 50, i);
        check(GRAD_COMPRESS_KIND_BF16, ranks, want, want_small);
        check(GRAD_COMPRESS_KIND_INT8, ranks, want, want_small);
    }
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_sums)};
HARNESS_MAIN(tests)
