/* Every element of the table has one owner and one place; a window holds what it must. */
#include "harness.h"

#include "mesh/layout.h"
#include "model/model.h"

static struct param_table table_of(enum model_task task, int64_t layers, int64_t embed,
                                   int64_t vocab)
{
    struct model_dims dims = {
        .task = task, .layers = layers, .heads = 1, .embed = embed, .context = 9, .vocab = vocab};
    struct param_table t;
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    return t;
}

static void check_pieces(const struct param_table *t, const struct layout *l)
{
    int64_t at = 0, packed = 0;
    for (int i = 0; i < l->pieces_n; i++) {
        const struct layout_piece *p = &l->piece[i];
        assert_int_equal(p->first, at);
        assert_int_equal(p->packed, packed);
        assert_int_equal(p->packed % PARAM_ALIGN, 0);
        assert_true(p->at >= 0 && p->at + p->elems <= l->window_elems && p->at % PARAM_ALIGN == 0);
        assert_true(i == 0 || p->slot < 0 || l->piece[i - 1].slot != p->slot);
        packed = i + 1 < l->pieces_n ? l->piece[i + 1].packed : l->packed_elems;
        assert_true(p->own.elems <= packed - p->packed);
        at += p->elems;
    }
    assert_int_equal(at, t->total_elems);
    assert_true(l->packed_elems <= t->total_elems / l->ranks + 2 * PARAM_ALIGN * l->pieces_n);
}

/* A tensor lies in its piece's place in the window as it does in the table. */
static void check_rows(const struct param_table *t, const struct layout *l)
{
    for (int i = 0; i < t->rows_n; i++) {
        const struct layout_piece *p = &l->piece[layout_piece_at(l, t->row[i].offset)];
        assert_int_equal(l->window.row[i].offset - p->at, t->row[i].offset - p->first);
        assert_true(t->row[i].offset + t->row[i].elems <= p->first + p->elems);
    }
    for (int unit = 0; unit < t->units_n; unit++) {
        int64_t first, elems;
        param_unit_span(t, unit, &first, &elems);
        const struct layout_piece *p = &l->piece[l->unit_piece[unit]];
        assert_true(first + elems <= p->first + p->elems && (unit == 0 || first >= p->first));
    }
}

static void check_owners(const struct param_table *t, int ranks, int64_t bucket_elems)
{
    struct layout l[5];
    for (int rank = 0; rank < ranks; rank++) {
        assert_int_equal(layout_init(t, ranks, rank, bucket_elems, &l[rank]), ST_OK);
        check_pieces(t, &l[rank]);
        check_rows(t, &l[rank]);
        assert_int_equal(l[rank].packed_elems, l[0].packed_elems);
    }
    for (int64_t elem = 0; elem < t->total_elems; elem++) {
        int piece = layout_piece_at(&l[0], elem);
        int64_t run, packed, at = elem - l[0].piece[piece].first;
        int owner = layout_owner(&l[0], piece, at, &run, &packed);
        const struct layout_piece *p = &l[owner].piece[piece];
        assert_true(at >= p->own.first && at + run == p->own.first + p->own.elems);
        assert_int_equal(packed, p->packed + at - p->own.first);
    }
    for (int rank = 0; rank < ranks; rank++)
        layout_free(&l[rank]);
}

static void test_owners(void **state)
{
    (void)state;
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int64_t layers = 1; layers <= 4; layers++)
            for (int ranks = 1; ranks <= 5; ranks++)
                for (int64_t bucket = 0; bucket < 3; bucket++) {
                    struct param_table t = table_of((enum model_task)task, layers, 7, 13);
                    check_owners(&t, ranks, bucket * bucket * 400);
                    param_table_free(&t);
                }
}

/* One rank: units, as they were. Several: the embedding's tensors, then buckets that are worth a
 * message. */
static void test_cut(void **state)
{
    (void)state;
    struct param_table t = table_of(MODEL_TASK_LM, 6, 64, 100);
    struct layout l;
    int64_t first, block;
    assert_int_equal(layout_init(&t, 1, 0, 0, &l), ST_OK);
    assert_int_equal(l.pieces_n, t.units_n);
    layout_free(&l);
    param_unit_span(&t, 1, &first, &block);
    assert_int_equal(layout_init(&t, 2, 1, 1, &l), ST_OK);
    assert_int_equal(l.pieces_n, t.units_n + 1);
    layout_free(&l);
    assert_int_equal(layout_init(&t, 2, 1, 2 * block, &l), ST_OK);
    /* (5, 6, 7), (3, 4), (1, 2): with the last norm two blocks are enough */
    assert_int_equal(l.pieces_n, 2 + 3);
    assert_int_equal(l.piece[2].unit_first, 1);
    assert_int_equal(l.piece[4].unit_first, 5);
    assert_int_equal(l.unit_piece[7], 4);
    layout_free(&l);
    layout_free(&l);
    param_table_free(&t);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(test_owners),
                                          cmocka_unit_test(test_cut)};
HARNESS_MAIN(tests)
