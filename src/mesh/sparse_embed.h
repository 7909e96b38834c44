/* sparse_embed — the input layer's gradient of the tied token embedding, exchanged as rows: the
 * rows of the tokens in the micro-batch instead of the whole table. It must not know what else is
 * reduced.
 *
 * - Each rank numbers its tokens by first appearance, and all ranks exchange these lists of token
 *   ids while the backward pass runs.
 * - A pass adds its gradient into a small table, one row for each different token.
 * - At the end all ranks exchange these rows. Each rank adds those that lie in its part, in the
 *   order of ranks, to the dense gradient, which is reduced by then.
 *
 * Worth it while the rows of all ranks together are no more than the embedding has. f32, host
 * memory only. One thread. */
#ifndef CONVOY_MESH_SPARSE_EMBED_H
#define CONVOY_MESH_SPARSE_EMBED_H

#include "comm/core/comm.h"
#include "comm/core/part.h"

struct sparse_embed_config {
    struct comm *comm;
    int64_t rows_n, row_elems; /* of the embedding */
    int64_t tokens_max;        /* of a micro-batch */
    float *buffer;             /* sparse_embed_buffer_elems from comm_alloc; borrowed */
};

struct sparse_embed;
bool sparse_embed_is_worth(int ranks, int64_t rows_n, int64_t tokens_max);
int64_t sparse_embed_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max);
enum status sparse_embed_open(const struct sparse_embed_config *config, struct sparse_embed **out);
void sparse_embed_close(struct sparse_embed *r); /* accepts NULL */

/* In the order of a step; collective:
 * _begin           starts to exchange the token ids (1 … tokens_max of them, below rows_n).
 * _indices         for each token of _begin, its row in the small table.
 * _rows            this rank's small table, zeroed; after the ticket of _begin.
 * _exchange_begin  starts to exchange the small tables.
 * _add             adds the rows of all ranks to elements [part.first, + part.elems) of the
 *                  embedding, which begin at `to`; after the ticket of _exchange_begin. */
enum status sparse_embed_begin(struct sparse_embed *r, const int32_t *tokens, int64_t n,
                               struct comm_ticket *ticket);
const int32_t *sparse_embed_indices(const struct sparse_embed *r);
float *sparse_embed_rows(struct sparse_embed *r);
enum status sparse_embed_exchange_begin(struct sparse_embed *r, struct comm_ticket *ticket);
void sparse_embed_add(const struct sparse_embed *r, struct part_extent part, float *to);

#endif
