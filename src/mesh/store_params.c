/* store_params — parameters between their masters, which are kept and updated, and the view, which
 * passes read (store.h).
 *
 * Masters are f32, whole or this rank's parts. The view is the masters themselves, or memory of its
 * own: rounded to 16 bits, a window, or both. Where masters lie in parts, a piece of the view comes
 * together from all ranks' parts. With a 16-bit dtype each rank rounds its own part straight into
 * its place in the view, on the stream, and the gather comes after that: rounding looks at one
 * element alone, so the view has the bits that rounding whole masters would give. Where masters are
 * whole the piece is rounded here, and nothing travels.
 *
 * A place in the view is written again only when no gather reads or writes it any more: the piece's
 * own, and those of pieces in its slot, are waited for first. Must not know who changed a piece, or
 * why. */
#include "base/must.h"
#include "mesh/store_inside.h"

/* The whole piece, as passes read it. */
static struct tensor view_of(const struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    return tensor_at(s->view, s->params_window ? l->at : l->first);
}

struct tensor store_params_own(const struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    return tensor_at(s->params, s->params_packed ? l->packed : l->first + l->own.first);
}

void store_params_forget(struct store *s)
{
    for (int i = 0; i < s->layout.pieces_n; i++)
        s->piece[i].is_here = false;
}

enum status store_params_wait(struct store *s, int piece)
{
    struct store_piece *p = &s->piece[piece];
    if (!p->is_gathering)
        return ST_OK;
    p->is_gathering = false;
    TRY(store_wait(s, p->gather));
    if (!p->is_due)
        return ST_OK;
    p->is_due = p->is_here = false;
    return s->c.update(s->c.update_arg, piece);
}

/* Its place is free of gathers: its own last one, and those of pieces that lay there. */
static enum status make_room(struct store *s, int piece)
{
    int slot = s->layout.piece[piece].slot;
    TRY(store_params_wait(s, piece));
    for (int i = 0; s->params_window && slot >= 0 && i < s->layout.pieces_n; i++) {
        if (s->layout.piece[i].slot != slot)
            continue;
        TRY(store_params_wait(s, i));
        s->piece[i].is_here = false;
    }
    return ST_OK;
}

static enum status round_to(struct store *s, struct tensor to, struct tensor masters, int64_t elems)
{
    return dev_op(s->c.dev)->cast(s->c.stream, &(struct cast){.y = to, .x = masters, .n = elems});
}

static enum status gather(struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    struct store_piece *p = &s->piece[piece];
    struct tensor all = view_of(s, piece), own = store_params_own(s, piece);
    TRY(make_room(s, piece));
    if (all.dtype != DTYPE_F32) {
        own = tensor_at(all, l->own.first);
        TRY(round_to(s, own, store_params_own(s, piece), l->own.elems));
    }
    TRY(store_come_after(s));
    TRY(store_begun(s, comm_all_gather_begin(s->c.comm, all, own, l->elems, &p->gather),
                    p->gather));
    p->is_here = p->is_gathering = true;
    return ST_OK;
}

enum status store_params_begin(struct store *s, int piece)
{
    return s->params_packed && !s->piece[piece].is_here ? gather(s, piece) : ST_OK;
}

enum status store_params_need(struct store *s, int piece)
{
    const struct layout_piece *l = &s->layout.piece[piece];
    TRY(store_params_begin(s, piece));
    TRY(store_params_wait(s, piece));
    if (s->piece[piece].is_here || !s->has_view)
        return ST_OK;
    s->piece[piece].is_here = true;
    return round_to(s, view_of(s, piece), tensor_at(s->params, l->first), l->elems);
}

/* Where passes see a window it is gathered when they need it; else now: it travels beside the next
 * forward pass. */
enum status store_params_updated(struct store *s, int piece)
{
    s->piece[piece].is_here = false;
    return s->has_parts && !s->params_window ? gather(s, piece) : ST_OK;
}
