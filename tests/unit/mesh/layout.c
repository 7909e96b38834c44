/* layout — every element has one owner and one offset in its local shard; the unsharded buffer
 * has room for what lies in it; units are joined into buckets as documented. */
#include "harness.h"

#include "mesh/store/layout.h"
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

static void check_buckets(const struct param_table *t, const struct layout *l)
{
    int64_t at = 0, shard_at = 0;
    for (int i = 0; i < l->buckets_n; i++) {
        const struct layout_bucket *p = &l->bucket[i];
        assert_int_equal(p->first, at);
        assert_int_equal(p->shard_at, shard_at);
        assert_int_equal(p->shard_at % PARAM_ALIGN, 0);
        assert_true(p->buffer_at >= 0 && p->buffer_at + p->elems <= l->buffer_elems &&
                    p->buffer_at % PARAM_ALIGN == 0);
        assert_true(i == 0 || p->slot < 0 || l->bucket[i - 1].slot != p->slot);
        shard_at = i + 1 < l->buckets_n ? l->bucket[i + 1].shard_at : l->shard_elems;
        assert_true(p->own.elems <= shard_at - p->shard_at);
        at += p->elems;
    }
    assert_int_equal(at, t->total_elems);
    assert_true(l->shard_elems <= t->total_elems / l->ranks + 2 * PARAM_ALIGN * l->buckets_n);
}

static void check_owners(const struct param_table *t, int ranks, int64_t bucket_elems_min)
{
    struct layout l[5];
    for (int rank = 0; rank < ranks; rank++) {
        layout_init(t, ranks, rank, bucket_elems_min, &l[rank]);
        check_buckets(t, &l[rank]);
        /* A tensor lies in its bucket's range of the buffer as it does in the table. */
        for (int i = 0; i < t->params_n; i++) {
            const struct layout_bucket *p =
                &l[rank].bucket[layout_bucket_at(&l[rank], t->param[i].offset)];
            assert_int_equal(l[rank].buffer_table.param[i].offset - p->buffer_at,
                             t->param[i].offset - p->first);
            assert_true(t->param[i].offset + t->param[i].elems <= p->first + p->elems);
        }
        for (int unit = 0; unit < t->units_n; unit++) {
            int64_t first, elems;
            param_unit_span(t, unit, &first, &elems);
            const struct layout_bucket *p = &l[rank].bucket[l[rank].unit_bucket[unit]];
            assert_true(first + elems <= p->first + p->elems && (unit == 0 || first >= p->first));
        }
        assert_int_equal(l[rank].shard_elems, l[0].shard_elems);
    }
    for (int64_t elem = 0; elem < t->total_elems; elem++) {
        int bucket = layout_bucket_at(&l[0], elem);
        int64_t run, shard_at, at = elem - l[0].bucket[bucket].first;
        int owner = layout_owner(&l[0], bucket, at, &run, &shard_at);
        const struct layout_bucket *p = &l[owner].bucket[bucket];
        assert_true(at >= p->own.first && at + run == p->own.first + p->own.elems);
        assert_int_equal(shard_at, p->shard_at + at - p->own.first);
    }
    for (int rank = 0; rank < ranks; rank++)
        layout_free(&l[rank]);
}

TEST(test_owners)
{
    for (int task = MODEL_TASK_LM; task <= MODEL_TASK_QA; task++)
        for (int64_t layers = 1; layers <= 4; layers++)
            for (int ranks = 1; ranks <= 5; ranks++)
                for (int64_t bucket = 0; bucket < 3; bucket++) {
                    struct param_table t = table_of((enum model_task)task, layers, 7, 13);
                    check_owners(&t, ranks, bucket * bucket * 400);
                    layout_pad(&t, ranks);
                    check_owners(&t, ranks, bucket * bucket * 400);
                    param_table_free(&t);
                }
}

/* Whole sizes of models on many ranks: all parts of each bucket are equal and aligned. */
static void check_equal(const char *preset, int ranks)
{
    struct model_dims dims;
    struct param_table t;
    assert_true(model_preset(preset, &dims));
    assert_int_equal(model_ops(&dims)->describe(&dims, &t), ST_OK);
    int64_t before = t.total_elems;
    bool is_uneven = false;
    for (int padded = 0; padded < 2; padded++) {
        struct layout l;
        if (padded)
            layout_pad(&t, ranks);
        layout_init(&t, ranks, ranks - 1, 0, &l);
        for (int i = 0; i < l.buckets_n; i++)
            for (int rank = 0; rank < ranks; rank++) {
                struct part_extent part = part_extent(l.bucket[i].elems, ranks, rank);
                bool is_equal = part.elems * ranks == l.bucket[i].elems &&
                                part.first % PART_ALIGN == 0 && l.bucket[i].first % PART_ALIGN == 0;
                is_uneven |= !padded && !is_equal;
                assert_true(!padded || is_equal);
            }
        assert_true(!padded || l.shard_elems * ranks == t.total_elems);
        layout_free(&l);
    }
    assert_true(is_uneven && t.total_elems - before < (t.units_n + 2) * ranks * PART_ALIGN);
    param_table_free(&t);
}

TEST(test_equal_parts)
{
    check_equal("gpt2-xl", 8);
    check_equal("gpt2", 32);
    check_equal("gpt2", 7);
}

/* Order, sizes and one rank's table stay as they were. */
TEST(test_pad)
{
    struct param_table a = table_of(MODEL_TASK_QA, 3, 7, 13), b = table_of(MODEL_TASK_QA, 3, 7, 13);
    layout_pad(&b, 1);
    assert_int_equal(a.total_elems, b.total_elems);
    assert_memory_equal(a.param, b.param, (size_t)a.params_n * sizeof *a.param);
    layout_pad(&b, 5);
    for (int i = 0; i < a.params_n; i++) {
        int64_t end = i + 1 < b.params_n ? b.param[i + 1].offset : b.total_elems;
        assert_int_equal(a.param[i].elems, b.param[i].elems);
        assert_true(b.param[i].offset + b.param[i].elems <= end);
    }
    param_table_free(&a);
    param_table_free(&b);
}

/* One rank: each unit is a bucket. Several: the embedding's tensors, then joined units. */
TEST(test_cut)
{
    struct param_table t = table_of(MODEL_TASK_LM, 6, 64, 100);
    struct layout l;
    int64_t first, block;
    layout_init(&t, 1, 0, 0, &l);
    assert_int_equal(l.buckets_n, t.units_n);
    layout_free(&l);
    param_unit_span(&t, 1, &first, &block);
    layout_init(&t, 2, 1, 1, &l);
    assert_int_equal(l.buckets_n, t.units_n + 1);
    layout_free(&l);
    layout_init(&t, 2, 1, 2 * block, &l);
    /* (5, 6, 7), (3, 4), (1, 2): with the last norm two blocks are enough */
    assert_int_equal(l.buckets_n, 2 + 3);
    assert_int_equal(l.bucket[2].unit_first, 1);
    assert_int_equal(l.bucket[4].unit_first, 5);
    assert_int_equal(l.unit_bucket[7], 4);
    layout_free(&l);
    layout_free(&l);
    param_table_free(&t);
}

HARNESS_RUN_ALL()
