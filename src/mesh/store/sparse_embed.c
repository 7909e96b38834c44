/* sparse_embed — lists of token ids, small tables of rows, and their sum (sparse_embed.h).
 *
 * The buffer holds the small tables of all ranks, then their lists of ids, then this rank's
 * indices. A list is filled up with -1. */
#include "mesh/store/sparse_embed.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"

struct sparse_embed {
    struct sparse_embed_config c;
    int rank, ranks;
    int64_t rows_most;      /* most rows in one rank's list */
    int64_t rows;           /* rows of one rank's table in this step */
    int32_t *ids, *indices; /* parts of the buffer */
    int32_t *slot; /* for each row of the embedding: 1 + its row in the small table; 0: none */
    int64_t sent_bytes;
};

static int64_t round_up(int64_t n) { return (n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN; }

int64_t sparse_embed_rows_most(int64_t rows_n, int64_t tokens_max)
{
    return round_up(tokens_max < rows_n ? tokens_max : rows_n);
}

static bool refuse_sparse(const char *why, const char **why_out)
{
    *why_out = why;
    return false;
}

/* Bytes are compared, in units of one row's elements. In text at most half of the tokens are
 * different. If a dense gradient is exchanged as well, the wait is for `sent` instead of `dense`
 * bytes, but `sent` bytes are added: the saved wait must be at least the added bytes. */
bool sparse_embed_is_used(const struct sparse_embed_cost *c, const char **why_out)
{
    const int64_t most = c->ranks * sparse_embed_rows_most(c->rows_n, c->tokens_max),
                  dense = c->rows_n * c->dense_bytes, sent = most * (int64_t)sizeof(float) / 2;
    const bool is_dense_too = c->is_tied || c->accumulates;
    if (c->ranks == 1)
        return refuse_sparse("there is one rank", why_out);
    if (most > c->rows_n)
        return refuse_sparse("rows could need more memory than the whole gradient", why_out);
    if (sent * (is_dense_too ? 2 : 1) > dense)
        return refuse_sparse(is_dense_too ? "rows are over half the bytes of the whole gradient"
                                          : "rows are more bytes than the whole gradient",
                             why_out);
    *why_out = is_dense_too ? "rows are at most half the bytes of the whole gradient"
                            : "rows are no more bytes than the whole gradient";
    return true;
}

int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max)
{
    return ranks * sparse_embed_rows_most(rows_n, tokens_max) * (row_elems + 1) +
           round_up(tokens_max);
}

enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out)
{
    struct sparse_embed *r = memory_new(1, sizeof *r);
    r->c = *config;
    r->rank = comm_place(config->comm)->rank;
    r->ranks = comm_place(config->comm)->ranks;
    r->rows_most = sparse_embed_rows_most(config->rows_n, config->tokens_max);
    r->ids = (int32_t *)(void *)(config->buffer + r->ranks * r->rows_most * config->row_elems);
    r->indices = r->ids + r->ranks * r->rows_most;
    r->slot = calloc((size_t)config->rows_n, sizeof *r->slot);
    if (r->slot) {
        *out = r;
        return ST_OK;
    }
    sparse_embed_close(r);
    return FAIL(ST_RETRY, "out of memory: the rows of %lld tokens", (long long)config->rows_n);
}

void sparse_embed_close(struct sparse_embed *r)
{
    if (!r)
        return;
    char shown[32];
    if (r->sent_bytes > 0 && r->rank == 0)
        LOG_INFO("rows of tokens: this worker sent %s, in fp32 and not compressed",
                 text_format_bytes(shown, sizeof shown, (double)r->sent_bytes));
    free(r->slot);
    free(r);
}

enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket)
{
    int64_t own = r->rank * r->rows_most, all_n = r->ranks * r->rows_most;
    ASSERTF(n > 0 && n <= r->c.tokens_max, "%lld tokens of %lld", (long long)n,
            (long long)r->c.tokens_max);
    /* Writes this rank's list of ids, and the indices of its tokens. */
    int32_t *ids = r->ids + r->rank * r->rows_most, seen = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t *slot = &r->slot[tokens[i]];
        if (*slot == 0) {
            ids[seen] = tokens[i];
            *slot = ++seen;
        }
        r->indices[i] = *slot - 1;
    }
    for (int32_t i = 0; i < seen; i++)
        r->slot[ids[i]] = 0;
    memset(ids + seen, 0xff, (size_t)(r->rows_most - seen) * sizeof *ids); /* -1 */
    const struct tensor all = {r->ids, DTYPE_I32};
    r->sent_bytes += (r->ranks - 1) * r->rows_most * (int64_t)sizeof *r->ids;
    return comm_all_gather_begin(r->c.comm, all, tensor_at(all, own), all_n, ticket);
}

static struct tensor rows_of(const struct sparse_embed *r, int rank)
{
    return (struct tensor){r->c.buffer + rank * r->rows * r->c.row_elems, DTYPE_F32};
}

enum status sparse_embed_rows(struct sparse_embed *r, float **rows_out, struct tensor *indices_out)
{
    /* A table of this step has one row for each id of the longest list. Lists that are shorter than
     * rows_most are moved together. */
    int64_t longest = 0;
    for (int rank = 0; rank < r->ranks; rank++) {
        const int32_t *ids = r->ids + rank * r->rows_most;
        while (longest < r->rows_most && ids[longest] >= 0)
            longest++;
    }
    r->rows = round_up(longest);
    ASSERTF(r->rows > 0 && r->rows <= r->rows_most, "%lld rows", (long long)r->rows);
    for (int rank = 1; rank < r->ranks; rank++)
        memmove(r->ids + rank * r->rows, r->ids + rank * r->rows_most,
                (size_t)r->rows * sizeof *r->ids);
    *rows_out = rows_of(r, r->rank).data;
    *indices_out = (struct tensor){r->indices, DTYPE_I32};
    return dev_fill(r->c.stream, *rows_out, 0, (size_t)(r->rows * r->c.row_elems) * sizeof(float));
}

enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket)
{
    r->sent_bytes += (r->ranks - 1) * r->rows * r->c.row_elems * (int64_t)sizeof(float);
    return comm_all_gather_begin(r->c.comm, rows_of(r, 0), rows_of(r, r->rank),
                                 r->ranks * r->rows * r->c.row_elems, ticket);
}

struct embed_bwd sparse_embed_whole_rows(const struct sparse_embed_sum *sum,
                                         struct part_extent part, struct tensor to)
{
    const int64_t c = sum->row_elems, first = (part.first + c - 1) / c,
                  rows = (part.first + part.elems) / c - first;
    return (struct embed_bwd){.dwte = tensor_at(to, first * c - part.first),
                              .dx = sum->rows,
                              .tokens = sum->ids,
                              .n = sum->n,
                              .t = 1,
                              .c = c,
                              .v = sum->rows_n,
                              .first = first,
                              .rows = first + rows > sum->rows_n ? sum->rows_n - first : rows};
}

/* add_edge — Adds elements [from, from + n) of the rows of one token. The ids of one
 * list differ. */
static void add_edge(const struct sparse_embed *r, int64_t id, int64_t from, int64_t n, float *to)
{
    const int64_t c = r->c.row_elems;
    for (int64_t i = 0; i < r->ranks * r->rows; i++)
        for (int64_t k = 0; k < n && r->ids[i] == id; k++)
            to[k] += r->c.buffer[i * c + from + k];
}

/* The part may begin and end within a row. */
enum status sparse_embed_add(struct sparse_embed *r, struct part_extent part, struct tensor to)
{
    const struct sparse_embed_sum sum = {.rows = rows_of(r, 0),
                                         .ids = {r->ids, DTYPE_I32},
                                         .n = r->ranks * r->rows,
                                         .row_elems = r->c.row_elems,
                                         .rows_n = r->c.rows_n};
    const int64_t c = r->c.row_elems, end = part.first + part.elems, head = part.first % c,
                  head_n = c - head < part.elems ? c - head : part.elems;
    const struct embed_bwd whole = sparse_embed_whole_rows(&sum, part, to);
    if (head > 0)
        add_edge(r, part.first / c, head, head_n, to.data);
    if (whole.rows > 0)
        TRY(dev_op(r->c.dev)->embed_bwd(r->c.stream, &whole));
    if (end - end % c >= part.first)
        add_edge(r, end / c, 0, end % c, tensor_at(to, end - end % c - part.first).data);
    return ST_OK;
}
