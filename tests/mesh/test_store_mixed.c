/* The copy of the parameters that passes read, 16 bits wide or a window or both (mixed.h), and what
 * memory it takes. */
#include "mesh/mixed.h"

#include "mesh/sparse_embed.h"

static void what_is_needed_is_rounded_anew(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
            for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++)
                for (int64_t bucket = 0; bucket < 2; bucket++)
                    mixed_run(&(struct mixed){.shard = (enum layout_shard)shard,
                                              .dtype = (enum dtype)dtype,
                                              .bucket_elems_min = bucket},
                              ranks);
}

/* Masters lie whole only where passes of several ranks read them, or all ranks update all. */
static void masters_are_in_parts(void **state)
{
    (void)state;
    struct param_table t;
    struct layout l;
    assert_int_equal(model_ops(&mixed_dims)->describe(&mixed_dims, &t), ST_OK);
    assert_int_equal(layout_init(&t, 4, 0, 1, &l), ST_OK);
    int64_t rows = sparse_embed_buffer_elems(4, mixed_dims.vocab, mixed_dims.embed, MIXED_TOKENS);
    for (int shard = LAYOUT_SHARD_NONE; shard <= LAYOUT_SHARD_FULL; shard++)
        for (int dtype = DTYPE_F32; dtype <= DTYPE_F16; dtype++) {
            struct mixed h = {.shard = (enum layout_shard)shard,
                              .dtype = (enum dtype)dtype,
                              .bucket_elems_min = 1};
            h = mixed_run(&h, 4);
            bool is_sharded =
                shard == LAYOUT_SHARD_FULL || (shard != LAYOUT_SHARD_NONE && dtype != DTYPE_F32);
            assert_int_equal(h.params_bytes, 4 * (is_sharded ? l.shard_elems : t.total_elems));
            int64_t compute_copy = shard == LAYOUT_SHARD_FULL ? l.buffer_elems
                                   : dtype == DTYPE_F32       ? 0
                                                              : t.total_elems;
            int64_t grads = shard >= LAYOUT_SHARD_GRADIENTS ? l.buffer_elems : 0;
            assert_int_equal(h.unsharded_bytes,
                             compute_copy * (int64_t)dtype_bytes((enum dtype)dtype) +
                                 4 * (grads + rows));
        }
    layout_free(&l);
    param_table_free(&t);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_needed_is_rounded_anew),
                                          cmocka_unit_test(masters_are_in_parts)};
HARNESS_MAIN(tests)
