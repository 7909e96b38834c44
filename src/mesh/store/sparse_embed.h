/* sparse_embed — the input layer's gradient of the token embedding in host memory, exchanged as
 * rows: only the rows of the tokens in the micro-batch instead of the whole table. It must not know
 * other reductions.
 *
 * - Each rank numbers its tokens by first appearance, and all ranks exchange these lists of token
 *   ids while the backward pass runs.
 * - A pass adds its gradient into a small table, one row for each different token.
 * - At the end all ranks exchange these rows. Each rank adds the rows that lie in its part, in the
 *   order of ranks, to the dense gradient, which is reduced by then.
 *
 * Every rank's table has as many rows as the longest list of ids needs. Rows are f32. One
 * thread. */
#ifndef CONVOY_MESH_SPARSE_EMBED_H
#define CONVOY_MESH_SPARSE_EMBED_H

#include "comm/core/comm.h"
#include "comm/core/part.h"

struct sparse_embed_config {
    struct comm *comm;
    struct dev *dev;
    struct stream *stream;
    int64_t rows_n, row_elems; /* shape of the embedding */
    int64_t tokens_max;        /* most tokens of a micro-batch */
    float *buffer;             /* sparse_embed_buffer_elems from comm_alloc; borrowed */
};

/* Rows (n, row_elems) of all ranks, one list after the other, and the ids of their tokens; an id
 * of -1 has no row. */
struct sparse_embed_sum {
    struct tensor rows, ids;
    int64_t n, row_elems, rows_n; /* rows_n: rows of the embedding */
};

/* The dense gradient with which rows are compared.
 *   dense_bytes  bytes of an element of the dense gradient as it is sent
 *   is_tied      the head's gradient is dense, and is reduced as well
 *   accumulates  the dense gradient of earlier passes is reduced as well */
struct sparse_embed_cost {
    int ranks;
    int64_t rows_n, tokens_max;
    int dense_bytes;
    bool is_tied, accumulates;
};

struct sparse_embed;
/* sparse_embed_is_used — returns true if rows save more time than they can cost; the same on all
 * ranks (docs/decisions/032). *why_out: the reason, a clause for the log that lives as long as the
 * program. */
bool sparse_embed_is_used(const struct sparse_embed_cost *cost, const char **why_out);
/* sparse_embed_rows_most — returns the most rows that a rank sends. */
int64_t sparse_embed_rows_most(int64_t rows_n, int64_t tokens_max);
/* sparse_embed_buffer_elems — returns the elements (4 bytes each) of config.buffer. */
int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max);
/* sparse_embed_open — allocates a table of the rows of tokens. Local. ST_RETRY: out of memory. */
enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out);
void sparse_embed_close(struct sparse_embed *r); /* accepts NULL */

/* The exchange. The functions are listed in the order of a step; all are collective. */

/* sparse_embed_begin — starts to exchange the token ids (1 … tokens_max of them, below rows_n). */
enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket);
/* sparse_embed_rows — zeroes and returns this rank's small table. Call it after the ticket of
 * sparse_embed_begin. *indices_out: the row in that table of each token of sparse_embed_begin. */
enum status sparse_embed_rows(struct sparse_embed *r, float **rows_out, struct tensor *indices_out);
/* sparse_embed_exchange_begin — starts to exchange the small tables. */
enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket);
/* sparse_embed_add — adds the rows of all ranks to elements [part.first, + part.elems) of the
 * embedding, which begin at `to`. Call it after the ticket of sparse_embed_exchange_begin. */
enum status sparse_embed_add(struct sparse_embed *r, struct part_extent part, struct tensor to);

/* sparse_embed_whole_rows — returns the operation with which sparse_embed_add adds the rows that
 * lie completely in the part, n of all ranks together; .rows is 0 if there are none. For plans. */
struct embed_bwd sparse_embed_whole_rows(const struct sparse_embed_sum *sum,
                                         struct part_extent part, struct tensor to);

#endif
