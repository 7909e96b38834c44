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

#include "comm/comm.h"
#include "comm/order.h"

struct rows_config {
    struct comm *comm;
    int64_t rows_n, row_elems; /* of the table */
    int64_t tokens_max;        /* a rank has at most so many */
    float *buffer;             /* rows_buffer_elems of memory from comm_alloc, borrowed */
};

struct rows;
bool rows_are_worth(int ranks, int64_t rows_n, int64_t tokens_max);
int64_t rows_buffer_elems(int ranks, int64_t rows_n, int64_t row_elems, int64_t tokens_max);
enum status rows_open(const struct rows_config *config, struct rows **out);
void rows_close(struct rows *r); /* accepts NULL */

/* rows_begin — numbers the tokens (1 … tokens_max of them, below rows_n) and tells the other ranks,
 * until the ticket is waited for. */
enum status rows_begin(struct rows *r, const int32_t *tokens, int64_t n,
                       struct comm_ticket *ticket);
/* rows_numbers — of each token of rows_begin, the row that stands for it. */
const int32_t *rows_numbers(const struct rows *r);
/* rows_place — this rank's rows, zeroed: after the ticket. */
float *rows_place(struct rows *r);
enum status rows_exchange_begin(struct rows *r, struct comm_ticket *ticket);
/* rows_add — to elements [part.first, + part.elems) of the table, which begin at `to`; after the
 * exchange. */
void rows_add(const struct rows *r, struct order_extent part, float *to);

#endif
