/* test_sparse_embed — the rows of several ranks add up as in a plain loop over ranks and tokens. */
#include "mesh/ranks.h"

#include "base/rand.h"
#include "mesh/sparse_embed.h"

#define ROWS_N 97
#define ROW_ELEMS 5
#define TOKENS_MAX 20

struct case_of {
    int64_t n;
    int32_t tokens[TOKENS_MAX];
    float grad[TOKENS_MAX][ROW_ELEMS]; /* of each token */
    struct part_extent part;
    float table[ROWS_N * ROW_ELEMS];
};

static enum status one_rank(struct ranks_one *one)
{
    struct case_of *c = one->arg;
    struct sparse_embed *embed;
    struct comm_ticket ticket;
    void *buffer;
    int64_t elems = sparse_embed_buffer_elems(one->ranks, ROWS_N, ROW_ELEMS, TOKENS_MAX);
    TRY(comm_alloc(one->comm, elems * (int64_t)sizeof(float), &buffer));
    TRY(sparse_embed_open(&(struct sparse_embed_config){.comm = one->comm,
                                                        .rows_n = ROWS_N,
                                                        .row_elems = ROW_ELEMS,
                                                        .tokens_max = TOKENS_MAX,
                                                        .buffer = buffer},
                          &embed));
    enum status st = ST_OK;
    for (int again = 0; again < 2; again++) { /* the second round must not see the first */
        TRY_OR(sparse_embed_begin(embed, c->tokens, c->n, &ticket), out_close);
        TRY_OR(comm_wait(one->comm, ticket), out_close);
        float *place = sparse_embed_rows(embed);
        for (int64_t i = 0; i < c->n; i++)
            for (int k = 0; k < ROW_ELEMS; k++)
                place[sparse_embed_indices(embed)[i] * ROW_ELEMS + k] += c->grad[i][k];
        TRY_OR(sparse_embed_exchange_begin(embed, &ticket), out_close);
        TRY_OR(comm_wait(one->comm, ticket), out_close);
        memset(c->table, 0, sizeof c->table);
        sparse_embed_add(embed, c->part, c->table + c->part.first);
    }
out_close:
    sparse_embed_close(embed);
    return st;
}

static void fill(struct case_of *c, int rank, int ranks)
{
    c->n = rank == 1 ? 1 : TOKENS_MAX - rank;
    c->part = part_extent(ROWS_N * ROW_ELEMS, ranks, rank);
    for (int64_t i = 0; i < c->n; i++) {
        c->tokens[i] = (int32_t)rand_below(1, RAND_STREAM(TEST, rank), (uint64_t)i, 11) * 9;
        for (int k = 0; k < ROW_ELEMS; k++)
            c->grad[i][k] = (float)((rank + 1) * 1000 + i * 10 + k); /* sums are exact */
    }
}

static void test_exchange(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) {
        static struct case_of c[RANKS_MAX];
        float want[ROWS_N * ROW_ELEMS] = {0};
        for (int rank = 0; rank < ranks; rank++) {
            fill(&c[rank], rank, ranks);
            for (int64_t i = 0; i < c[rank].n; i++)
                for (int k = 0; k < ROW_ELEMS; k++)
                    want[c[rank].tokens[i] * ROW_ELEMS + k] += c[rank].grad[i][k];
        }
        ranks_run(1, ranks, one_rank, c, sizeof *c);
        for (int rank = 0; rank < ranks; rank++)
            for (int64_t i = 0; i < ROWS_N * ROW_ELEMS; i++) {
                bool is_own =
                    i >= c[rank].part.first && i < c[rank].part.first + c[rank].part.elems;
                assert_true(c[rank].table[i] == (is_own ? want[i] : 0));
            }
    }
}

static void test_worth(void **state)
{
    (void)state;
    assert_false(sparse_embed_is_worth(1, 50257, 8));
    assert_true(sparse_embed_is_worth(2, 50257, 1024));
    assert_true(sparse_embed_is_worth(16, 50257, 2048));
    assert_false(sparse_embed_is_worth(64, 50257, 1024));
    assert_false(sparse_embed_is_worth(2, 100, 1024));
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_exchange),
                                          cmocka_unit_test(test_worth)};
HARNESS_MAIN(tests)
