/* rows — the last part of a tied embedding's gradient: rows of the tokens that were seen, instead
 * of the whole table.
 *
 * The output layer's gradient of the embedding is dense and early; the input's comes last, and
 * touches only the rows of the micro-batch's tokens. So the dense part is reduced while the
 * backward pass runs, and at the end the ranks exchange (row numbers, rows) and each adds, in the
 * order of ranks, what lies in its part. Tokens are renumbered by first appearance, so that a pass
 * adds into a table of as many rows as there are different tokens. Worth it while the rows of all
 * ranks are no more than the table has. Must not know what else is reduced. */
#ifndef CONVOY_MESH_ROWS_H
#define CONVOY_MESH_ROWS_H

#include "comm/core/comm.h"
#include "comm/core/part.h"

struct sparse_embed_config {
    struct comm *comm;
    int64_t rows_n, row_elems; /* of the table */
    int64_t tokens_max;        /* a rank has at most so many */
    float *buffer;             /* sparse_embed_buffer_elems of memory from comm_alloc, borrowed */
};

struct sparse_embed;
bool sparse_embed_is_worth(int ranks, int64_t rows_n, int64_t tokens_max);
int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max);
enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out);
void sparse_embed_close(struct sparse_embed *r); /* accepts NULL */

/* sparse_embed_begin — numbers the tokens (1 … tokens_max of them, below rows_n) and tells the
 * other ranks, until the ticket is waited for. */
enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket);
/* sparse_embed_indices — of each token of sparse_embed_begin, the row that stands for it. */
const int32_t *sparse_embed_indices(const struct sparse_embed *r);
/* sparse_embed_rows — this rank's rows, zeroed: after the ticket. */
float *sparse_embed_rows(struct sparse_embed *r);
enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket);
/* sparse_embed_add — to elements [part.first, + part.elems) of the table, which begin at `to`;
 * after the exchange. */
void sparse_embed_add(const struct sparse_embed *r, struct part_extent part, float *to);

#endif
