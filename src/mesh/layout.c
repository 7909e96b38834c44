/* layout — see layout.h. */
#include "mesh/layout.h"

#include <stdlib.h>
#include <string.h>

#include "base/must.h"

/* Where the tensors of unit 0 begin and end when ranks share the table; whole units otherwise. */
static int64_t row_end(const struct param_table *t, int row)
{
    return row + 1 < t->rows_n ? t->row[row + 1].offset : t->total_elems;
}

static void add_piece(struct layout *l, int unit_first, int unit_last, int64_t first, int64_t end)
{
    l->piece[l->pieces_n] =
        (struct layout_piece){.first = first, .elems = end - first, .unit_first = unit_first};
    for (int unit = unit_first; unit <= unit_last; unit++)
        l->unit_piece[unit] = l->pieces_n;
    l->pieces_n++;
}

static void cut_embedding(struct layout *l, const struct param_table *t)
{
    for (int row = 0; row < t->rows_n && t->row[row].unit == 0; row++)
        add_piece(l, 0, 0, t->row[row].offset, row_end(t, row));
}

/* Units 1 … last, joined from the last down; written in ascending order. */
static void cut_units(struct layout *l, const struct param_table *t, int64_t bucket_elems,
                      int *begins)
{
    int begins_n = 0;
    int64_t room = 0, offset, elems;
    for (int unit = t->units_n - 1; unit >= 1; unit--) {
        param_unit_span(t, unit, &offset, &elems);
        room += elems;
        if (room < bucket_elems && unit > 1)
            continue;
        begins[begins_n++] = unit;
        room = 0;
    }
    for (int i = begins_n - 1; i >= 0; i--) {
        int64_t end;
        int unit_last = i > 0 ? begins[i - 1] - 1 : t->units_n - 1;
        param_unit_span(t, begins[i], &offset, &elems);
        param_unit_span(t, unit_last, &end, &elems);
        add_piece(l, begins[i], unit_last, offset, end + elems);
    }
}

static void cut(struct layout *l, const struct param_table *t, int64_t bucket_elems, int *begins)
{
    if (l->ranks > 1) {
        cut_embedding(l, t);
        cut_units(l, t, bucket_elems, begins);
        return;
    }
    for (int unit = 0; unit < t->units_n; unit++) {
        int64_t offset, elems;
        param_unit_span(t, unit, &offset, &elems);
        add_piece(l, unit, unit, offset, offset + elems);
    }
}

/* Part sizes differ by a line or so: the packed array has room for the largest of every piece, so
 * that a part lies at the same place on all ranks. */
static int64_t largest_part(const struct layout *l, const struct layout_piece *p)
{
    int64_t most = 0;
    for (int rank = 0; rank < l->ranks; rank++) {
        int64_t elems = order_extent(p->elems, l->ranks, rank).elems;
        most = elems > most ? elems : most;
    }
    return (most + PARAM_ALIGN - 1) / PARAM_ALIGN * PARAM_ALIGN;
}

static void place(struct layout *l)
{
    int64_t slot_elems[2] = {0, 0};
    int shared_n = 0;
    for (int i = 0; i < l->pieces_n; i++) {
        struct layout_piece *p = &l->piece[i];
        p->own = order_extent(p->elems, l->ranks, l->rank);
        p->packed = l->packed_elems;
        l->packed_elems += largest_part(l, p);
        p->slot = p->unit_first == 0 ? -1 : shared_n++ % 2;
        p->at = l->window_elems;
        if (p->slot < 0)
            l->window_elems += p->elems;
        else if (p->elems > slot_elems[p->slot])
            slot_elems[p->slot] = p->elems;
    }
    for (int i = 0; i < l->pieces_n; i++)
        if (l->piece[i].slot >= 0)
            l->piece[i].at = l->window_elems + (l->piece[i].slot ? slot_elems[0] : 0);
    l->window_elems += slot_elems[0] + slot_elems[1];
}

static void move_rows(struct layout *l)
{
    for (int i = 0; i < l->window.rows_n; i++) {
        struct param *row = &l->window.row[i];
        const struct layout_piece *p = &l->piece[layout_piece_at(l, row->offset)];
        row->offset += p->at - p->first;
    }
}

enum status layout_init(const struct param_table *t, int ranks, int rank, int64_t bucket_elems,
                        struct layout *out)
{
    ASSERTF(ranks >= 1 && rank >= 0 && rank < ranks, "rank %d of %d", rank, ranks);
    struct layout l = {.rank = rank, .ranks = ranks, .units_n = t->units_n};
    size_t pieces_most = (size_t)(t->units_n + t->rows_n);
    int *begins = calloc((size_t)t->units_n, sizeof *begins);
    l.piece = calloc(pieces_most, sizeof *l.piece);
    l.unit_piece = calloc((size_t)t->units_n, sizeof *l.unit_piece);
    l.window = *t;
    l.window.row = malloc((size_t)t->rows_n * sizeof *t->row);
    if (!begins || !l.piece || !l.unit_piece || !l.window.row) {
        free(begins);
        layout_free(&l);
        return FAIL(ST_RETRY,
                    "out of memory: the layout of %d tensors; use a machine with more memory",
                    t->rows_n);
    }
    memcpy(l.window.row, t->row, (size_t)t->rows_n * sizeof *t->row);
    cut(&l, t, bucket_elems > 0 ? bucket_elems : LAYOUT_BUCKET_ELEMS, begins);
    free(begins);
    place(&l);
    move_rows(&l);
    *out = l;
    return ST_OK;
}

void layout_free(struct layout *l)
{
    free(l->piece);
    free(l->unit_piece);
    free(l->window.row);
    *l = (struct layout){0};
}

int layout_piece_at(const struct layout *l, int64_t elem)
{
    int i = 0;
    while (i < l->pieces_n - 1 && elem >= l->piece[i + 1].first)
        i++;
    ASSERTF(elem >= l->piece[i].first && elem < l->piece[i].first + l->piece[i].elems,
            "element %lld", (long long)elem);
    return i;
}

int layout_owner(const struct layout *l, int piece, int64_t at, int64_t *elems_out,
                 int64_t *packed_out)
{
    const struct layout_piece *p = &l->piece[piece];
    ASSERTF(at >= 0 && at < p->elems, "element %lld of %lld", (long long)at, (long long)p->elems);
    int rank = 0;
    struct order_extent part = order_extent(p->elems, l->ranks, rank);
    while (at >= part.first + part.elems)
        part = order_extent(p->elems, l->ranks, ++rank);
    *elems_out = part.first + part.elems - at;
    *packed_out = p->packed + at - part.first;
    return rank;
}
