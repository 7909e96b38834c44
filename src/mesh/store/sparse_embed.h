/* sparse_embed — the input layer's gradient of the token embedding in host memory, exchanged as
 * rows: the rows of the tokens in the micro-batch instead of the whole table. It must not know what
 * else is reduced.
 *
 * - Each rank numbers its tokens by first appearance, and all ranks exchange these lists of token
 *   ids while the backward pass runs.
 * - A pass adds its gradient into a small table, one row for each different token.
 * - At the end all ranks exchange these rows. Each rank adds those that lie in its part, in the
 *   order of ranks, to the dense gradient, which is reduced by then.
 *
 * Tables are as long as the longest list of ids. Rows are f32. One thread. */
#ifndef CONVOY_MESH_SPARSE_EMBED_H
#define CONVOY_MESH_SPARSE_EMBED_H

#include "comm/core/comm.h"
#include "comm/core/part.h"

struct sparse_embed_config {
    struct comm *comm;
    struct dev *dev;
    struct stream *stream;
    int64_t rows_n, row_elems; /* of the embedding */
    int64_t tokens_max;        /* of a micro-batch */
    float *buffer;             /* sparse_embed_buffer_elems from comm_alloc; borrowed */
};

/* Rows (n, row_elems) of all ranks, one list after the other, and the ids of their tokens; an id
 * of -1 has no row. */
struct sparse_embed_sum {
    struct tensor rows, ids;
    int64_t n, row_elems, rows_n; /* rows_n: of the embedding */
};

/* What rows are compared with.
 * dense_bytes  of an element of the dense gradient as it travels
 * is_tied      the head's gradient is dense, and is reduced as well
 * accumulates  the dense gradient of earlier passes is reduced as well */
struct sparse_embed_cost {
    int ranks;
    int64_t rows_n, tokens_max;
    int dense_bytes;
    bool is_tied, accumulates;
};

struct sparse_embed;
/* sparse_embed_is_used — Returns true if rows save more time than they can cost; the same on all
 * ranks (docs/decisions/032). *why_out: the reason, a clause for the log that lives as long as the
 * program. */
bool sparse_embed_is_used(const struct sparse_embed_cost *cost, const char **why_out);
/* sparse_embed_rows_most — Returns the most rows that a rank sends. */
int64_t sparse_embed_rows_most(int64_t rows_n, int64_t tokens_max);
int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max);
enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out);
void sparse_embed_close(struct sparse_embed *r); /* accepts NULL */

/* In the order of a step; collective.
 * _begin           starts to exchange the token ids (1 … tokens_max of them, below rows_n).
 * _rows            this rank's small table, zeroed; after the ticket of _begin. *indices_out: for
 *                  each token of _begin, its row in that table.
 * _exchange_begin  starts to exchange the small tables.
 * _add             adds the rows of all ranks to elements [part.first, + part.elems) of the
 *                  embedding, which begin at `to`; after the ticket of _exchange_begin. */
enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket);
enum status sparse_embed_rows(struct sparse_embed *r, float **rows_out, struct tensor *indices_out);
enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket);
enum status sparse_embed_add(struct sparse_embed *r, struct part_extent part, struct tensor to);

/* sparse_embed_whole_rows — Returns how _add adds the rows that lie in the part as a whole, n of
 * all ranks together; .rows is 0 if none does. For plans. */
struct embed_bwd sparse_embed_whole_rows(const struct sparse_embed_sum *sum,
                                         struct part_extent part, struct tensor to);

#endif
