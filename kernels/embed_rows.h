/* embed_rows — rows of tokens that are added to a table: how ranks exchange the gradient of a token
 * embedding without the rows that no token touches. Must not know ranks or tokens. */
#ifndef CONVOY_KERNELS_EMBED_ROWS_H
#define CONVOY_KERNELS_EMBED_ROWS_H
#include "kernels/tensor.h"

/* embed_rows_add — table[ids[l,i],:] += rows[l,i,:] for list after list, as far as the table's
 * elements lie in a part of it, [first, first + elems).
 * out  out (elems) f32  the part; added to
 * in   rows (lists,N,C) f32 · ids (lists,N) i32  those of one list differ; -1: no row
 * Needs  ids ≥ -1. A row outside of the part is not read, whatever its id.
 * Each element is added to in the order of lists: the same bits on every device. Source: index_add
 * of PyTorch. */
struct embed_rows_add {
    struct tensor out, rows, ids;
    int64_t lists, n, c, first, elems;
};
#endif
