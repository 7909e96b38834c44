/* test_sparse_embed — the rows of several ranks add up as in a plain loop over ranks and tokens: in
 * host memory, in a device's, and where the device executes the exchange. And when rows are
 * exchanged at all. */
#include "mesh/ways.h"

#include "base/rand.h"
#include "mesh/sparse_embed.h"

#define ROWS_N 97
#define COLUMNS_MAX 16
#define TOKENS_MAX 110

/* TOKENS_ALL: rank 1 has every token of the vocabulary, the others one token. */
enum tokens { TOKENS_REPEATED, TOKENS_SAME, TOKENS_APART, TOKENS_ALL, TOKENS_N };

struct case_of {
    int64_t n, columns;
    int32_t tokens[TOKENS_MAX];
    float grad[TOKENS_MAX * COLUMNS_MAX]; /* of each token */
    struct part_extent part;
    float table[ROWS_N * COLUMNS_MAX]; /* what this rank has of it in the end */
    bool leaves;                       /* before the rows are exchanged */
};

/* What a rank has on its device. */
struct own {
    struct case_of *c;
    struct ranks_one *one;
    struct stream *stream;
    struct sparse_embed *embed;
    float *grad, *positions, *table;
};

/* wait_for — as a store does. */
static enum status wait_for(const struct own *o, struct comm_ticket ticket)
{
    return comm_stays_on_device(o->one->comm) ? comm_wait_on(o->one->comm, ticket, o->stream)
                                              : comm_wait(o->one->comm, ticket);
}

static enum status take(struct own *o)
{
    const struct case_of *c = o->c;
    int64_t elems = sparse_embed_buffer_elems(o->one->ranks, ROWS_N, c->columns, TOKENS_MAX);
    void *buffer, *data[3];
    TRY(dev_stream_open(o->one->dev, &o->stream));
    TRY(comm_alloc(o->one->comm, elems * (int64_t)sizeof(float), &buffer));
    for (int i = 0; i < 3; i++)
        TRY(dev_alloc(o->one->dev, sizeof c->grad, &data[i]));
    o->grad = data[0], o->positions = data[1], o->table = data[2];
    return sparse_embed_open(&(struct sparse_embed_config){.comm = o->one->comm,
                                                           .dev = o->one->dev,
                                                           .stream = o->stream,
                                                           .rows_n = ROWS_N,
                                                           .row_elems = c->columns,
                                                           .tokens_max = TOKENS_MAX,
                                                           .buffer = buffer},
                             &o->embed);
}

static void give(struct own *o)
{
    sparse_embed_close(o->embed);
    dev_stream_close(o->stream);
    dev_free(o->one->dev, o->grad, sizeof o->c->grad);
    dev_free(o->one->dev, o->positions, sizeof o->c->grad);
    dev_free(o->one->dev, o->table, sizeof o->c->grad);
}

/* The backward pass of the embedding. */
static enum status backward(struct own *o)
{
    const struct case_of *c = o->c;
    float *rows = NULL;
    struct tensor indices;
    TRY(sparse_embed_rows(o->embed, &rows, &indices));
    return dev_op(o->one->dev)
        ->embed_bwd(o->stream, &(struct embed_bwd){.dwte = {rows, DTYPE_F32},
                                                   .dwpe = {o->positions, DTYPE_F32},
                                                   .dx = {o->grad, DTYPE_F32},
                                                   .tokens = indices,
                                                   .n = c->n,
                                                   .t = c->n,
                                                   .c = c->columns,
                                                   .v = ROWS_N,
                                                   .context = c->n});
}

static enum status exchange(struct own *o)
{
    struct case_of *c = o->c;
    struct comm_ticket ticket;
    TRY(dev_copy(o->stream, o->grad, c->grad, sizeof c->grad));
    TRY(dev_fill(o->stream, o->table, 0, sizeof c->table));
    TRY(sparse_embed_begin(o->embed, c->tokens, c->n, &ticket));
    TRY(wait_for(o, ticket));
    TRY(backward(o));
    if (c->leaves)
        return ST_RETRY;
    TRY(sparse_embed_exchange_begin(o->embed, &ticket));
    TRY(wait_for(o, ticket));
    TRY(sparse_embed_add(o->embed, c->part, (struct tensor){o->table, DTYPE_F32}));
    TRY(dev_copy(o->stream, c->table, o->table, sizeof c->table));
    TRY(dev_sync(o->stream));
    return comm_check(o->one->comm);
}

static enum status one_rank(struct ranks_one *one)
{
    struct own o = {.c = one->arg, .one = one};
    enum status st = take(&o);
    for (int again = 0; st == ST_OK && again < 2; again++) /* the second must not see the first */
        st = exchange(&o);
    if (st == ST_OK) /* else no call uses memory any more */
        st = comm_barrier(one->comm);
    give(&o);
    return st;
}

static int32_t token_of(enum tokens tokens, int rank, int64_t i)
{
    switch (tokens) {
    case TOKENS_REPEATED:
        return (int32_t)rand_below(1, RAND_STREAM(TEST, rank), (uint64_t)i, 11) * 9 % ROWS_N;
    case TOKENS_SAME:
        return 96;
    case TOKENS_APART:
        return (int32_t)(rank * 20 + i);
    default:
        return (int32_t)(rank == 1 ? i * 5 % ROWS_N : 3);
    }
}

static int64_t count_of(enum tokens tokens, int rank)
{
    if (tokens == TOKENS_ALL)
        return rank == 1 ? ROWS_N + 5 : 1;
    return rank == 1 ? 1 : 20 - rank;
}

/* Sums are exact, so they do not depend on an order. */
static void fill(struct case_of *c, enum tokens tokens, int64_t columns, int rank, int ranks)
{
    *c = (struct case_of){.n = count_of(tokens, rank),
                          .columns = columns,
                          .part = part_extent(ROWS_N * columns, ranks, rank)};
    for (int64_t i = 0; i < c->n; i++) {
        c->tokens[i] = token_of(tokens, rank, i);
        for (int64_t k = 0; k < columns; k++)
            c->grad[i * columns + k] = (float)((rank + 1) * 1000 + i * 10 + k);
    }
}

static void add_up(const struct case_of *c, float *want)
{
    for (int64_t i = 0; i < c->n; i++)
        for (int64_t k = 0; k < c->columns; k++)
            want[c->tokens[i] * c->columns + k] += c->grad[i * c->columns + k];
}

static void check(const struct case_of *c, const float *want, const char *what)
{
    for (int64_t i = 0; i < ROWS_N * COLUMNS_MAX; i++) {
        float expected = i < c->part.elems ? want[c->part.first + i] : 0;
        if (c->table[i] != expected)
            fail_msg("%s: element %lld of a part from %lld on is %g, want %g", what, (long long)i,
                     (long long)c->part.first, (double)c->table[i], (double)expected);
    }
}

static void exchange_on(enum way way, enum tokens tokens, int64_t columns, int ranks)
{
    static struct case_of c[RANKS_MAX];
    float want[ROWS_N * COLUMNS_MAX] = {0};
    char what[96];
    for (int rank = 0; rank < ranks; rank++) {
        fill(&c[rank], tokens, columns, rank, ranks);
        add_up(&c[rank], want);
    }
    ways_choose(way, ranks);
    ranks_run(1, ranks, one_rank, c, sizeof *c);
    ways_done();
    text_format(what, sizeof what, "%s, tokens %d, %lld columns, %d ranks", way_name[way],
                (int)tokens, (long long)columns, ranks);
    for (int rank = 0; rank < ranks; rank++)
        check(&c[rank], want, what);
}

static void rows_add_up(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_N; way++)
        for (int tokens = 0; tokens < TOKENS_N; tokens++)
            for (int ranks = way == WAY_NCCL ? 2 : 1; ranks <= 4; ranks++) {
                exchange_on((enum way)way, (enum tokens)tokens, 5, ranks);
                exchange_on((enum way)way, (enum tokens)tokens, ranks % 2 ? 1 : 16, ranks);
            }
}

/* Rank 2 leaves when the others exchange rows: they end with a failure, and none of them hangs. */
static void a_lost_rank_ends_the_exchange(void **state)
{
    (void)state;
    for (int way = 0; way < WAY_N; way++) {
        static struct case_of c[RANKS_MAX];
        struct ranks_one one[RANKS_MAX];
        for (int rank = 0; rank < 3; rank++)
            fill(&c[rank], TOKENS_REPEATED, 5, rank, 3);
        c[2].leaves = true;
        ways_choose((enum way)way, 3);
        ranks_try(1, 3, RANKS_TIMEOUT_MS, one_rank, c, sizeof *c, one);
        ways_done();
        assert_int_equal(one[2].st, ST_RETRY);
        for (int rank = 0; rank < 2; rank++)
            if (one[rank].st != ST_PEER)
                fail_msg("%s: rank %d ended with %s", way_name[way], rank,
                         status_name(one[rank].st));
    }
}

/* With EMBED_ROWS=auto. has_dense: in host memory a tied head's gradient, on a GPU, where a tied
 * head has no rows, that of earlier micro-batches. */
static bool is_worth(int ranks, int64_t rows_n, int64_t tokens, int dense_bytes, bool has_dense,
                     bool is_discrete)
{
    const char *why;
    struct sparse_embed_cost cost = {.ranks = ranks,
                                     .rows_n = rows_n,
                                     .tokens_max = tokens,
                                     .dense_bytes = dense_bytes,
                                     .is_tied = has_dense && !is_discrete,
                                     .accumulates = has_dense && is_discrete,
                                     .is_discrete = is_discrete};
    return sparse_embed_is_used(&cost, &why);
}

/* In host memory rows are counted, and a row costs half of what it does at full length. */
static void worth_in_host_memory(void **state)
{
    (void)state;
    assert_false(is_worth(1, 50257, 8, 4, true, false));
    assert_true(is_worth(2, 50257, 1024, 4, true, false));
    assert_true(is_worth(16, 50257, 2048, 4, true, false));
    assert_false(is_worth(64, 50257, 1024, 4, true, false));
    assert_false(is_worth(2, 100, 1024, 4, true, false));
    /* the dense gradient travels as bf16 */
    assert_true(is_worth(8, 50257, 3136, 2, true, false));
    assert_false(is_worth(8, 50257, 3137, 2, true, false));
    /* never more memory than a dense gradient */
    assert_true(is_worth(8, 50257, 6272, 4, false, false));
    assert_false(is_worth(8, 50257, 6289, 4, false, false));
}

/* Rows at full length: all of V for an embedding alone, half of it beside a dense gradient, half of
 * that where the dense gradient travels as bf16. */
static void worth_on_a_gpu(void **state)
{
    (void)state;
    assert_true(is_worth(8, 50257, 6272, 4, false, true));
    assert_false(is_worth(8, 50257, 6289, 4, false, true));
    assert_true(is_worth(8, 50257, 3136, 4, true, true));
    assert_false(is_worth(8, 50257, 3137, 4, true, true));
    assert_true(is_worth(8, 50257, 1568, 2, true, true));
    assert_false(is_worth(8, 50257, 1569, 2, true, true));
    assert_false(is_worth(1, 50257, 8, 4, false, true));
}

static void used_because(const struct sparse_embed_cost *cost, bool want, const char *why)
{
    const char *got;
    assert_int_equal(sparse_embed_is_used(cost, &got), want);
    if (!strstr(got, why))
        fail_msg("the reason is: %s; want: %s", got, why);
}

/* EMBED_ROWS decides against bytes and memory, too; each answer has its reason. */
static void embed_rows_decides(void **state)
{
    (void)state;
    struct sparse_embed_cost cost = {.ranks = 2,
                                     .rows_n = 50257,
                                     .tokens_max = 8192,
                                     .dense_bytes = 4,
                                     .is_tied = true,
                                     .is_discrete = true};
    used_because(&cost, false, "EMBED_ROWS=1 exchanges them");
    cost.choice = SPARSE_EMBED_CHOICE_ON;
    used_because(&cost, true, "EMBED_ROWS=1");
    cost.tokens_max = 65536;
    used_because(&cost, true, "EMBED_ROWS=1");
    cost.ranks = 1;
    used_because(&cost, false, "one rank");
    cost = (struct sparse_embed_cost){
        .ranks = 2, .rows_n = 50257, .tokens_max = 8192, .dense_bytes = 4, .is_discrete = true};
    used_because(&cost, true, "no more bytes");
    cost.choice = SPARSE_EMBED_CHOICE_OFF;
    used_because(&cost, false, "EMBED_ROWS=0");
    cost.choice = SPARSE_EMBED_CHOICE_AUTO;
    cost.accumulates = true;
    used_because(&cost, true, "at most half");
    cost.dense_bytes = 2;
    used_because(&cost, false, "over half");
    cost.tokens_max = 65536;
    used_because(&cost, false, "more memory");
    cost = (struct sparse_embed_cost){
        .ranks = 4, .rows_n = 50257, .tokens_max = 8192, .dense_bytes = 2, .is_discrete = true};
    used_because(&cost, false, "more bytes");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_add_up),          cmocka_unit_test(a_lost_rank_ends_the_exchange),
        cmocka_unit_test(worth_in_host_memory), cmocka_unit_test(worth_on_a_gpu),
        cmocka_unit_test(embed_rows_decides),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    ways_begin();
    int failed = cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
    ways_end();
    return failed;
}
