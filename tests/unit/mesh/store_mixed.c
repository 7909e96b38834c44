/* store_mixed — the compute copy is current whenever a unit is unsharded: 16 bits wide, in an
 * unsharded buffer, or both (mixed.h). And how much memory the store takes. */
#include "mesh/mixed.h"

#include "mesh/store/sparse_embed.h"

TEST(the_compute_copy_is_current)
{
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
TEST(memory_is_as_the_policy_says)
{
    struct param_table t;
    struct layout l;
    assert_int_equal(model_ops(&mixed_dims)->describe(&mixed_dims, &t), ST_OK);
    layout_pad(&t, 4);
    layout_init(&t, 4, 0, 1, &l);
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

/* Bytes beside parameters, gradients and moments, where passes read the masters themselves. */
static int64_t unsharded(const struct param_table *t, enum grad_compress_kind compress,
                         bool is_discrete)
{
    struct store_memory m;
    struct store_config config = {
        .table = t, .has_grads = true, .settings.compress = compress, .pass_tokens = MIXED_TOKENS};
    assert_int_equal(store_plan(&config, 1, 4, is_discrete, &m), ST_OK);
    return m.unsharded;
}

/* Rows of tokens are planned where they are exchanged: in host memory. */
TEST(rows_are_planned_where_they_are_exchanged)
{
    struct param_table t;
    assert_int_equal(model_ops(&mixed_dims)->describe(&mixed_dims, &t), ST_OK);
    layout_pad(&t, 4);
    int64_t rows = 4 * (4 * MIXED_ROWS * (mixed_dims.embed + 1) + 16), rounded = 2 * t.total_elems;
    for (int is_untied = 0; is_untied < 2; is_untied++) {
        t.param[0].grad_is_added = is_untied;
        assert_int_equal(unsharded(&t, GRAD_COMPRESS_KIND_NONE, false), rows);
        assert_int_equal(unsharded(&t, GRAD_COMPRESS_KIND_NONE, true), 0);
        assert_int_equal(unsharded(&t, GRAD_COMPRESS_KIND_BF16, false), rows + rounded);
        assert_int_equal(unsharded(&t, GRAD_COMPRESS_KIND_BF16, true), rounded);
    }
    param_table_free(&t);
}

static void run_two(void *like) { mixed_run(like, 2); }

static void expect_log(bool has_whole_embed, enum layout_shard shard, const char *want)
{
    struct mixed like = {.shard = shard, .has_whole_embed = has_whole_embed, .bucket_elems_min = 1};
    const char *log = harness_log_of(run_two, &like);
    if (!strstr(log, want))
        fail_msg("the log is: %s; want: %s", log, want);
}

/* 32 rows of 24 numbers, and 211 of the table. */
TEST(the_log_says_why)
{
    expect_log(true, LAYOUT_SHARD_NONE,
               "gradient of wte.weight: reduced whole, not as rows of tokens: other ranks have "
               "parts of the model or of samples (3.0 KiB of rows at most, 19.8 KiB whole)");
    expect_log(false, LAYOUT_SHARD_FULL,
               "gradient of wte.weight: the part of the input layer is exchanged as rows of "
               "tokens, at most "
               "16 of each rank: rows are at most half the bytes of the whole gradient (3.0 KiB");
}

HARNESS_RUN_ALL()
