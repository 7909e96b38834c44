/* sparse_embed — lists of token ids, small tables of rows, and their sum (sparse_embed.h).
 *
 * The buffer holds the small tables of all ranks, then their lists of ids, then this rank's
 * indices. A list is filled up with -1. */
#include "mesh/sparse_embed.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/assert.h"

struct sparse_embed {
    struct sparse_embed_config c;
    int rank, ranks;
    bool is_discrete;                 /* the buffer is not the host's */
    bool is_full_length;              /* lists stay on the device, so tables have rows_most rows */
    int64_t rows_most;                /* of one rank's list */
    int64_t rows;                     /* of one rank's table in this step */
    int32_t *ids, *indices;           /* in the buffer */
    int32_t *ids_host, *indices_host; /* the same in host memory */
    int32_t *slot; /* of each row of the embedding: 1 + its row in the small table; 0: none */
    int64_t sent_bytes;
};

static int64_t round_up(int64_t n) { return (n + PART_ALIGN - 1) / PART_ALIGN * PART_ALIGN; }

int64_t sparse_embed_rows_most(int64_t rows_n, int64_t tokens_max)
{
    return round_up(tokens_max < rows_n ? tokens_max : rows_n);
}

static bool refuse(const char *why, const char **why_out)
{
    *why_out = why;
    return false;
}

/* In GPU memory a tied head has no rows: they save no bytes, and with SHARD=none they move half of
 * the dense exchange from beside the next forward pass to beside the backward pass.
 *
 * Else bytes are compared, in units of one row's elements. Text has at most half as many different
 * tokens as tokens, but rows at full length travel whatever the text. With a dense exchange
 * besides, rows take it out of the wait and add their own bytes: what can be lost is counted like
 * what is paid. */
static bool is_worth(const struct sparse_embed_cost *c, const char **why_out)
{
    int64_t most = c->ranks * sparse_embed_rows_most(c->rows_n, c->tokens_max),
            dense = c->rows_n * c->dense_bytes,
            sent = most * (int64_t)sizeof(float) / (c->is_discrete ? 1 : 2);
    bool is_dense_too = c->is_tied || c->accumulates;
    if (c->is_tied && c->is_discrete)
        return refuse("on GPUs rows save no bytes where the output layer shares the embedding "
                      "(EMBED_ROWS=1 exchanges them)",
                      why_out);
    if (most > c->rows_n)
        return refuse("rows could take more memory than the whole gradient", why_out);
    if (sent * (is_dense_too ? 2 : 1) > dense)
        return refuse(is_dense_too ? "rows are over half the bytes of the whole gradient"
                                   : "rows are more bytes than the whole gradient",
                      why_out);
    *why_out = is_dense_too ? "rows are at most half the bytes of the whole gradient"
                            : "rows are no more bytes than the whole gradient";
    return true;
}

bool sparse_embed_is_used(const struct sparse_embed_cost *cost, const char **why_out)
{
    if (cost->ranks == 1)
        return refuse("there is one rank", why_out);
    if (cost->choice == SPARSE_EMBED_CHOICE_AUTO)
        return is_worth(cost, why_out);
    bool is_on = cost->choice == SPARSE_EMBED_CHOICE_ON;
    *why_out = is_on ? "EMBED_ROWS=1" : "EMBED_ROWS=0";
    return is_on;
}

int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max)
{
    return ranks * sparse_embed_rows_most(rows_n, tokens_max) * (row_elems + 1) +
           round_up(tokens_max);
}

static enum status take_host(struct sparse_embed *r)
{
    const struct sparse_embed_config *c = &r->c;
    int64_t ids_n = r->ranks * r->rows_most;
    r->ids_host = r->ids;
    r->indices_host = r->indices;
    if (r->is_discrete) {
        r->ids_host = calloc((size_t)ids_n, sizeof *r->ids_host);
        r->indices_host = calloc((size_t)c->tokens_max, sizeof *r->indices_host);
    }
    r->slot = calloc((size_t)c->rows_n, sizeof *r->slot);
    if (r->ids_host && r->indices_host && r->slot)
        return ST_OK;
    return FAIL(memory_status(r->ranks * c->tokens_max * (int64_t)sizeof(int32_t)),
                "out of memory: rows of %lld tokens; use a smaller BATCH_SIZE",
                (long long)c->tokens_max);
}

enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out)
{
    struct sparse_embed *r = calloc(1, sizeof *r);
    if (!r)
        return FAIL(ST_RETRY, "out of memory: the rows of tokens");
    r->c = *config;
    r->rank = comm_place(config->comm)->rank;
    r->ranks = comm_place(config->comm)->ranks;
    r->is_discrete = dev_is_discrete(config->dev);
    r->is_full_length = r->is_discrete && comm_stays_on_device(config->comm);
    r->rows_most = sparse_embed_rows_most(config->rows_n, config->tokens_max);
    r->ids = (int32_t *)(void *)(config->buffer + r->ranks * r->rows_most * config->row_elems);
    r->indices = r->ids + r->ranks * r->rows_most;
    enum status st = take_host(r);
    if (st == ST_OK)
        *out = r;
    else
        sparse_embed_close(r);
    return st;
}

static void log_traffic(const struct sparse_embed *r)
{
    char shown[32];
    if (r->sent_bytes > 0 && r->rank == 0)
        LOG_INFO("rows of tokens: this worker sent %s, in fp32 and not compressed",
                 text_format_bytes(shown, sizeof shown, (double)r->sent_bytes));
}

void sparse_embed_close(struct sparse_embed *r)
{
    if (!r)
        return;
    log_traffic(r);
    if (r->is_discrete) {
        free(r->ids_host);
        free(r->indices_host);
    }
    free(r->slot);
    free(r);
}

/* number — this rank's list of ids, and the indices of its tokens. */
static void number(struct sparse_embed *r, const int32_t *tokens, int64_t n)
{
    int32_t *ids = r->ids_host + r->rank * r->rows_most, seen = 0;
    for (int64_t i = 0; i < n; i++) {
        int32_t *slot = &r->slot[tokens[i]];
        if (*slot == 0) {
            ids[seen] = tokens[i];
            *slot = ++seen;
        }
        r->indices_host[i] = *slot - 1;
    }
    for (int32_t i = 0; i < seen; i++)
        r->slot[ids[i]] = 0;
    memset(ids + seen, 0xff, (size_t)(r->rows_most - seen) * sizeof *ids); /* -1 */
}

/* copy_to_device — elements of the lists or indices, at the same place of the buffer. */
static enum status copy_to_device(struct sparse_embed *r, int32_t *to, const int32_t *from,
                                  int64_t n)
{
    return r->is_discrete ? dev_copy(r->c.stream, to, from, (size_t)n * sizeof *to) : ST_OK;
}

enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket)
{
    int64_t own = r->rank * r->rows_most, all_n = r->ranks * r->rows_most;
    ASSERTF(n > 0 && n <= r->c.tokens_max, "%lld tokens of %lld", (long long)n,
            (long long)r->c.tokens_max);
    number(r, tokens, n);
    TRY(copy_to_device(r, r->indices, r->indices_host, n));
    struct tensor all = {r->is_full_length ? r->ids : r->ids_host, DTYPE_I32};
    r->sent_bytes += (r->ranks - 1) * r->rows_most * (int64_t)sizeof *r->ids;
    if (r->is_full_length) {
        TRY(copy_to_device(r, r->ids + own, r->ids_host + own, r->rows_most));
        TRY(comm_wait_stream(r->c.comm, r->c.stream));
    }
    return comm_all_gather_begin(r->c.comm, all, tensor_at(all, own), all_n, ticket);
}

/* longest — the most ids that any rank has. */
static int64_t longest(const struct sparse_embed *r)
{
    int64_t most = 0;
    for (int rank = 0; rank < r->ranks; rank++) {
        const int32_t *ids = r->ids_host + rank * r->rows_most;
        while (most < r->rows_most && ids[most] >= 0)
            most++;
    }
    return most;
}

/* set_length — how many rows a table has in this step. Lists shorter than rows_most move together,
 * as embed_rows_add wants them. */
static enum status set_length(struct sparse_embed *r)
{
    r->rows = r->rows_most;
    if (r->is_full_length)
        return ST_OK;
    r->rows = round_up(longest(r));
    ASSERTF(r->rows > 0 && r->rows <= r->rows_most, "%lld rows", (long long)r->rows);
    for (int rank = 1; rank < r->ranks; rank++)
        memmove(r->ids_host + rank * r->rows, r->ids_host + rank * r->rows_most,
                (size_t)r->rows * sizeof *r->ids_host);
    return copy_to_device(r, r->ids, r->ids_host, r->ranks * r->rows);
}

static struct tensor rows_of(const struct sparse_embed *r, int rank)
{
    return (struct tensor){r->c.buffer + rank * r->rows * r->c.row_elems, DTYPE_F32};
}

enum status sparse_embed_rows(struct sparse_embed *r, float **rows_out, struct tensor *indices_out)
{
    TRY(set_length(r));
    *rows_out = rows_of(r, r->rank).data;
    *indices_out = (struct tensor){r->indices, DTYPE_I32};
    return dev_fill(r->c.stream, *rows_out, 0, (size_t)(r->rows * r->c.row_elems) * sizeof(float));
}

enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket)
{
    TRY(comm_wait_stream(r->c.comm, r->c.stream));
    r->sent_bytes += (r->ranks - 1) * r->rows * r->c.row_elems * (int64_t)sizeof(float);
    return comm_all_gather_begin(r->c.comm, rows_of(r, 0), rows_of(r, r->rank),
                                 r->ranks * r->rows * r->c.row_elems, ticket);
}

enum status sparse_embed_add(struct sparse_embed *r, struct part_extent part, struct tensor to)
{
    return dev_op(r->c.dev)->embed_rows_add(r->c.stream,
                                            &(struct embed_rows_add){.out = to,
                                                                     .rows = rows_of(r, 0),
                                                                     .ids = {r->ids, DTYPE_I32},
                                                                     .lists = r->ranks,
                                                                     .n = r->rows,
                                                                     .c = r->c.row_elems,
                                                                     .first = part.first,
                                                                     .elems = part.elems});
}
