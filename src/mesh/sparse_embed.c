/* sparse_embed — lists of token ids, small tables of rows, and their sum (sparse_embed.h). */
#include "mesh/sparse_embed.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/assert.h"

struct sparse_embed {
    struct sparse_embed_config c;
    int rank, ranks;
    int64_t ids_elems; /* of one rank's list: [0] how many, then different token ids */
    int32_t *ids;      /* the lists of all ranks */
    int32_t *slot;     /* of each row of the embedding: 1 + its row in the small table; 0: none */
    int32_t *indices;  /* of each token: its row in the small table */
    int64_t rows_max;  /* of a small table: the most that any rank has */
};

static int64_t round_up(int64_t n) { return (n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN; }

static int64_t rows_most(int64_t rows_n, int64_t tokens_max)
{
    return round_up(tokens_max < rows_n ? tokens_max : rows_n);
}

bool sparse_embed_is_worth(int ranks, int64_t rows_n, int64_t tokens_max)
{
    return ranks > 1 && rows_most(rows_n, tokens_max) <= rows_n / ranks;
}

int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max)
{
    return ranks * rows_most(rows_n, tokens_max) * row_elems;
}

enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out)
{
    struct sparse_embed *r = calloc(1, sizeof *r);
    if (!r)
        return FAIL(ST_RETRY, "out of memory: the rows of tokens");
    r->c = *config;
    r->rank = comm_place(config->comm)->rank;
    r->ranks = comm_place(config->comm)->ranks;
    r->ids_elems = round_up(1 + rows_most(config->rows_n, config->tokens_max));
    r->ids = calloc((size_t)(r->ranks * r->ids_elems), sizeof *r->ids);
    r->slot = calloc((size_t)config->rows_n, sizeof *r->slot);
    r->indices = calloc((size_t)config->tokens_max, sizeof *r->indices);
    if (!r->ids || !r->slot || !r->indices) {
        sparse_embed_close(r);
        return FAIL(memory_status(comm_place(config->comm)->ranks * config->tokens_max *
                                  (int64_t)sizeof(int32_t)),
                    "out of memory: rows of %lld tokens; use a smaller BATCH_SIZE",
                    (long long)config->tokens_max);
    }
    *out = r;
    return ST_OK;
}

void sparse_embed_close(struct sparse_embed *r)
{
    if (!r)
        return;
    free(r->ids);
    free(r->slot);
    free(r->indices);
    free(r);
}

static int32_t *ids_of(const struct sparse_embed *r, int rank)
{
    return r->ids + rank * r->ids_elems;
}

enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket)
{
    int32_t *ids = ids_of(r, r->rank), seen = 0;
    ASSERTF(n > 0 && n <= r->c.tokens_max, "%lld tokens of %lld", (long long)n,
            (long long)r->c.tokens_max);
    for (int64_t i = 0; i < n; i++) {
        int32_t *slot = &r->slot[tokens[i]];
        if (*slot == 0) {
            ids[1 + seen] = tokens[i];
            *slot = ++seen;
        }
        r->indices[i] = *slot - 1;
    }
    ids[0] = seen;
    for (int32_t i = 0; i < seen; i++)
        r->slot[ids[1 + i]] = 0;
    struct tensor all = {r->ids, DTYPE_I32}, mine = {ids, DTYPE_I32};
    return comm_all_gather_begin(r->c.comm, all, mine, r->ranks * r->ids_elems, ticket);
}

const int32_t *sparse_embed_indices(const struct sparse_embed *r) { return r->indices; }

static float *rows_of(const struct sparse_embed *r, int rank)
{
    return r->c.buffer + rank * r->rows_max * r->c.row_elems;
}

float *sparse_embed_rows(struct sparse_embed *r)
{
    int32_t most = 0;
    for (int rank = 0; rank < r->ranks; rank++)
        most = ids_of(r, rank)[0] > most ? ids_of(r, rank)[0] : most;
    ASSERTF(most > 0 && most < r->ids_elems, "%d rows", most);
    r->rows_max = round_up(most);
    float *rows = rows_of(r, r->rank);
    memset(rows, 0, (size_t)(r->rows_max * r->c.row_elems) * sizeof *rows);
    return rows;
}

enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket)
{
    struct tensor all = {r->c.buffer, DTYPE_F32}, mine = {rows_of(r, r->rank), DTYPE_F32};
    return comm_all_gather_begin(r->c.comm, all, mine, r->ranks * r->rows_max * r->c.row_elems,
                                 ticket);
}

static void add_row(const struct sparse_embed *r, const float *row, int64_t at,
                    struct part_extent part, float *to)
{
    int64_t first = at > part.first ? at : part.first, end = at + r->c.row_elems;
    if (end > part.first + part.elems)
        end = part.first + part.elems;
    for (int64_t i = first; i < end; i++)
        to[i - part.first] += row[i - at];
}

void sparse_embed_add(const struct sparse_embed *r, struct part_extent part, float *to)
{
    for (int rank = 0; rank < r->ranks; rank++) {
        const int32_t *ids = ids_of(r, rank);
        const float *row = rows_of(r, rank);
        for (int32_t i = 0; i < ids[0]; i++, row += r->c.row_elems)
            add_row(r, row, ids[1 + i] * r->c.row_elems, part, to);
    }
}
