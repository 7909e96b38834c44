/* sparse_embed — the rows of several ranks add up as in a plain loop over ranks and tokens.
 * When rows are exchanged at all; that training has the losses of whole gradients then. */
#include "mesh/trial.h"

#include "mesh/store/sparse_embed.h"

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

/* What a rank has. */
struct own {
    struct case_of *c;
    struct ranks_one *one;
    struct stream *stream;
    struct sparse_embed *embed;
    float *grad, *positions, *table;
};

static enum status open_all(struct own *o)
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
    TRY(comm_wait(o->one->comm, ticket));
    TRY(backward(o));
    if (c->leaves)
        return ST_RETRY;
    TRY(sparse_embed_exchange_begin(o->embed, &ticket));
    TRY(comm_wait(o->one->comm, ticket));
    TRY(sparse_embed_add(o->embed, c->part, (struct tensor){o->table, DTYPE_F32}));
    TRY(dev_copy(o->stream, c->table, o->table, sizeof c->table));
    TRY(dev_sync(o->stream));
    return comm_check(o->one->comm);
}

static enum status one_rank(struct ranks_one *one)
{
    struct own o = {.c = one->arg, .one = one};
    enum status st = open_all(&o);
    for (int again = 0; st == ST_OK && again < 2; again++) /* the second must not see the first */
        st = exchange(&o);
    if (st == ST_OK) /* else no call uses memory any more */
        st = comm_barrier(one->comm);
    sparse_embed_close(o.embed);
    dev_stream_close(o.stream);
    dev_free(o.one->dev, o.grad, sizeof o.c->grad);
    dev_free(o.one->dev, o.positions, sizeof o.c->grad);
    dev_free(o.one->dev, o.table, sizeof o.c->grad);
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

static void exchange_on(enum tokens tokens, int64_t columns, int ranks)
{
    static struct case_of c[RANKS_MAX];
    float want[ROWS_N * COLUMNS_MAX] = {0};
    char what[96];
    for (int rank = 0; rank < ranks; rank++) {
        fill(&c[rank], tokens, columns, rank, ranks);
        add_up(&c[rank], want);
    }
    ranks_run(1, ranks, one_rank, c, sizeof *c);
    text_format(what, sizeof what, "tokens %d, %lld columns, %d ranks", (int)tokens,
                (long long)columns, ranks);
    for (int rank = 0; rank < ranks; rank++)
        check(&c[rank], want, what);
}

TEST(rows_add_up)
{
    for (int tokens = 0; tokens < TOKENS_N; tokens++)
        for (int ranks = 1; ranks <= 4; ranks++)
            for (int64_t columns = 1; columns <= COLUMNS_MAX; columns += columns == 1 ? 4 : 11)
                exchange_on((enum tokens)tokens, columns, ranks);
}

/* Rank 2 leaves when the others exchange rows: they end with a failure, and none of them hangs. */
TEST(a_lost_rank_ends_the_exchange)
{
    static struct case_of c[RANKS_MAX];
    struct ranks_one one[RANKS_MAX];
    for (int rank = 0; rank < 3; rank++)
        fill(&c[rank], TOKENS_REPEATED, 5, rank, 3);
    c[2].leaves = true;
    ranks_try(1, 3, RANKS_TIMEOUT_MS, one_rank, c, sizeof *c, one);
    assert_int_equal(one[2].st, ST_RETRY);
    for (int rank = 0; rank < 2; rank++)
        if (one[rank].st != ST_PEER)
            fail_msg("rank %d ended with %s", rank, status_name(one[rank].st));
}

/* Parts that begin and end within a row, lie within one row, or have none as a whole. */
TEST(parts_cut_rows)
{
    static const int64_t bounds[][2] = {{0, 0},  {3, 3},   {0, 12},  {0, 24},  {12, 24},
                                        {4, 20}, {4, 28},  {23, 25}, {24, 96}, {5, 101},
                                        {0, 97}, {90, 97}, {95, 97}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        static struct case_of c[2];
        float want[ROWS_N * COLUMNS_MAX] = {0};
        for (int rank = 0; rank < 2; rank++) {
            fill(&c[rank], TOKENS_ALL, 12, rank, 2);
            add_up(&c[rank], want);
        }
        /* from the first row on, and to the end of the last one */
        c[0].part = (struct part_extent){bounds[i][0], bounds[i][1] - bounds[i][0]};
        c[1].part = (struct part_extent){ROWS_N * 12 - bounds[i][1], c[0].part.elems};
        ranks_run(1, 2, one_rank, c, sizeof *c);
        check(&c[0], want, "the first rows");
        check(&c[1], want, "the last rows");
    }
}

/* has_dense: a tied head's gradient, or that of earlier micro-batches. */
static bool is_worth(int ranks, int64_t rows_n, int64_t tokens, int dense_bytes, bool has_dense)
{
    const char *why[2];
    struct sparse_embed_cost cost = {
        .ranks = ranks, .rows_n = rows_n, .tokens_max = tokens, .dense_bytes = dense_bytes};
    cost.is_tied = has_dense;
    const bool is_used = sparse_embed_is_used(&cost, &why[0]);
    cost.is_tied = false;
    cost.accumulates = has_dense;
    assert_int_equal(sparse_embed_is_used(&cost, &why[1]), is_used);
    assert_ptr_equal(why[0], why[1]);
    return is_used;
}

/* Rows are counted, and a row costs half of its bytes. */
TEST(rows_are_worth_it)
{
    assert_false(is_worth(1, 50257, 8, 4, true));
    assert_true(is_worth(2, 50257, 1024, 4, true));
    assert_true(is_worth(16, 50257, 2048, 4, true));
    assert_false(is_worth(64, 50257, 1024, 4, true));
    assert_false(is_worth(2, 100, 1024, 4, true));
    /* the dense gradient travels as bf16 */
    assert_true(is_worth(8, 50257, 3136, 2, true));
    assert_false(is_worth(8, 50257, 3137, 2, true));
    /* never more memory than a dense gradient */
    assert_true(is_worth(8, 50257, 6272, 4, false));
    assert_false(is_worth(8, 50257, 6289, 4, false));
}

static void used_because(const struct sparse_embed_cost *cost, bool want, const char *why)
{
    const char *got;
    assert_int_equal(sparse_embed_is_used(cost, &got), want);
    if (!strstr(got, why))
        fail_msg("the reason is: %s; want: %s", got, why);
}

/* Each answer has its reason. */
TEST(reasons)
{
    struct sparse_embed_cost cost = {
        .ranks = 1, .rows_n = 50257, .tokens_max = 8192, .dense_bytes = 4};
    used_because(&cost, false, "one rank");
    cost.ranks = 2;
    used_because(&cost, true, "no more bytes");
    cost.accumulates = true;
    used_because(&cost, true, "at most half");
    cost.dense_bytes = 1;
    used_because(&cost, false, "over half");
    cost.accumulates = false;
    cost.tokens_max = 16384;
    used_because(&cost, false, "more bytes");
    cost.tokens_max = 65536;
    used_because(&cost, false, "more memory");
}

/* Rows and whole gradients differ by the order of sums only. */
TEST(rows_change_no_losses)
{
    static const enum layout_shard shards[] = {LAYOUT_SHARD_NONE, LAYOUT_SHARD_GRADIENTS,
                                               LAYOUT_SHARD_FULL};
    for (int form = 0; form < 12; form++) {
        struct trial like = trial_of(form & 1 ? MODEL_TASK_QA : MODEL_TASK_LM, 6, 13);
        like.steps = 4;
        like.config.batch_samples = form & 2 ? 1 : 2;
        like.config.store.shard = shards[form / 4];
        struct trial rows = trial_run(&like, 1, 3);
        like.config.store.has_whole_embed = true;
        struct trial whole = trial_run(&like, 1, 3);
        print_message("# shard %d, task %d: losses differ by %.1e\n", (int)like.config.store.shard,
                      (int)like.config.dims.task, trial_apart(&rows, &whole));
        assert_true(trial_apart(&rows, &whole) <= 1e-6);
        assert_true(fabs(rows.norm[0] / whole.norm[0] - 1) <= 1e-6);
        int64_t list = sparse_embed_buffer_elems(3, like.config.dims.vocab, like.config.dims.embed,
                                                 like.config.batch_samples * 13);
        assert_int_equal(rows.memory.store.unsharded - whole.memory.store.unsharded, 4 * list);
        trial_free(&rows);
        trial_free(&whole);
    }
}

HARNESS_RUN_ALL()
