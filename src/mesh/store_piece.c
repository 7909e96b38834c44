/* store_piece — the memory of a piece: the 16-bit copy of its parameters that passes read (store.h), the padding of its
 * gradients. Must not know who changed a piece, or why. */
#include "mesh/store_inside.h"

int64_t store_piece_bytes(const struct store *s, int64_t elems)
{
    return s->c.dtype == DTYPE_F32 ? 0 : elems * (int64_t)dtype_bytes(s->c.dtype);
}

void store_piece_forget(struct store *s)
{
    for (int i = 0; i < s->layout.pieces_n; i++)
        s->piece[i].is_rounded = false;
}

enum status store_piece_round(struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    int64_t at = s->params_window ? l->at : l->first;
    if (!s->rounded.data || s->piece[piece].is_rounded)
        return ST_OK;
    s->piece[piece].is_rounded = true;
    struct cast cast = {tensor_at(s->rounded, at), tensor_at(s->params, at), l->elems};
    return dev_op(s->c.dev)->cast(s->c.stream, &cast);
}

/* What lies between the tensors of a piece is zero, whatever the slot held before. */
enum status store_piece_clear(struct store *s, int piece, struct tensor grads)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    for (int i = 0; i < s->c.table->rows_n; i++) {
        const struct param *row = &s->c.table->row[i];
        int64_t end = i + 1 < s->c.table->rows_n ? row[1].offset : s->c.table->total_elems, from = row->offset + row->elems;
        if (row->offset >= l->first && row->offset < l->first + l->elems && from < end)
            TRY(dev_fill(s->c.stream, tensor_at(grads, from - l->first).data, 0,
                         (size_t)(end - from) * sizeof(float)));
    }
    return ST_OK;
}
