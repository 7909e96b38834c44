/* test_store_mixed — the compute copy is current whenever a unit is unsharded: 16 bits wide, in an
 * unsharded buffer, or both (mixed.h). And how much memory the store takes. */
#include "mesh/mixed.h"

#include "mesh/sparse_embed.h"

static void the_compute_copy_is_current(void **state)
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

/* Masters are whole only where passes read them, or where all ranks update all of them. */
static void memory_is_as_the_policy_says(void **state)
{
    (void)state;
    struct param_table t;
    struct layout l;
    assert_int_equal(model_ops(&mixed_dims)->describe(&mixed_dims, &t), ST_OK);
    layout_pad(&t, 4);
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

static const struct CMUnitTest tests[] = {cmocka_unit_test(the_compute_copy_is_current),
                                          cmocka_unit_test(memory_is_as_the_policy_says)};
HARNESS_MAIN(tests)
