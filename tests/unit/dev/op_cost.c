/* The least bytes and floating-point operations of each operation, against figures worked out by
 * hand from the contracts. */
#include "harness.h"

#include "dev/op_cost.h"

static char memory[1];
#define T(type) ((struct tensor){memory, DTYPE_##type})

static void costs(enum op_kind op, const void *args, int64_t flops, int64_t read, int64_t written)
{
    struct op_cost cost = {0};
    assert_true(op_cost(op, args, &cost));
    if (cost.flops != flops || cost.bytes_read != read || cost.bytes_written != written)
        fail_msg("%s: %lld flops, %lld bytes read, %lld written; expected %lld %lld %lld",
                 op_cost_name(op), (long long)cost.flops, (long long)cost.bytes_read,
                 (long long)cost.bytes_written, (long long)flops, (long long)read,
                 (long long)written);
}
#define COSTS(name, flops, read, written, ...) \
    costs(OP_KIND_##name, &(struct name){__VA_ARGS__}, flops, read, written)

TEST(rows)
{
    COSTS(norm_fwd, 0, 2 * 30 + 2 * 10 + 2 * 10, 2 * 30 + 4 * 3 + 4 * 3, .y = T(BF16),
          .mean = T(F32), .rstd = T(F32), .x = T(BF16), .w = T(BF16), .b = T(BF16), .n = 3,
          .c = 10);
    COSTS(norm_fwd, 0, 4 * 30 + 4 * 10, 4 * 30, .y = T(F32), .x = T(F32), .w = T(F32), .n = 3,
          .c = 10);
    COSTS(norm_bwd, 0, 3 * 60 + 12 + 12 + 20, 60 + 80, .dx = T(BF16), .dw = T(F32), .db = T(F32),
          .dy = T(BF16), .x = T(BF16), .mean = T(F32), .rstd = T(F32), .w = T(BF16),
          .dresidual = T(BF16), .n = 3, .c = 10);
    COSTS(norm_bwd, 0, 2 * 60 + 12 + 12 + 20 + 40, 60 + 40, .dx = T(BF16), .dw = T(F32),
          .dy = T(BF16), .x = T(BF16), .mean = T(F32), .rstd = T(F32), .w = T(BF16), .n = 3,
          .c = 10, .accumulate = true);
    COSTS(softcap, 0, 2 * 14, 2 * 14, .x = T(BF16), .n = 2, .v = 7, .stride = 8, .cap = 15);
    COSTS(xent, 0, 2 * 14 + 8, 8 + 2 * 14, .logits = T(BF16), .losses = T(F32), .targets = T(I32),
          .n = 2, .v = 7, .stride = 8, .want_grad = true);
    COSTS(xent, 0, 4 * 14 + 8, 8, .logits = T(F32), .losses = T(F32), .targets = T(I32), .n = 2,
          .v = 7, .stride = 8);
    COSTS(xent_shard, 0, 2 * 14 + 8, 4 * 6, .stats = T(F32), .logits = T(BF16), .targets = T(I32),
          .n = 2, .v_first = 3, .v_n = 7, .stride = 8);
    COSTS(xent_join, 0, 2 * 14 + 4 * 18 + 8, 8 + 2 * 14, .logits = T(BF16), .losses = T(F32),
          .stats = T(F32), .targets = T(I32), .n = 2, .v_n = 7, .stride = 8, .shards = 3,
          .want_grad = true);
    COSTS(xent_join, 0, 4 * 18 + 8, 8, .logits = T(BF16), .losses = T(F32), .stats = T(F32),
          .targets = T(I32), .n = 2, .v_n = 7, .stride = 8, .shards = 3);
    COSTS(qa_xent, 0, 4 * 20 + 16, 16 + 4 * 20, .losses = T(F32), .dlogits = T(F32),
          .logits = T(F32), .starts = T(I32), .ends = T(I32), .b = 2, .t = 5);
}

TEST(embedding)
{
    COSTS(embed_fwd, 0, 4 * 6 + 2 * 24 + 2 * 12, 2 * 24, .x = T(BF16), .tokens = T(I32),
          .wte = T(BF16), .wpe = T(BF16), .n = 6, .t = 3, .c = 4);
    COSTS(embed_bwd, 0, 4 * 6 + 2 * 24 + 4 * 24, 4 * 24 + 4 * 32, .dwte = T(F32), .dwpe = T(F32),
          .dx = T(BF16), .tokens = T(I32), .n = 6, .t = 3, .c = 4, .v = 100, .context = 8);
    COSTS(embed_bwd, 0, 4 * 6 + 2 * 24 + 4 * 8 + 4 * 32, 4 * 8 + 4 * 32, .dwte = T(F32),
          .dwpe = T(F32), .dx = T(BF16), .tokens = T(I32), .n = 6, .t = 3, .c = 4, .v = 2,
          .context = 8, .accumulate = true);
}

TEST(products)
{
    COSTS(matmul_fwd, 2 * 3 * 5 * 7, 2 * (15 + 35 + 7 + 21), 2 * 21, .y = T(BF16), .x = T(BF16),
          .w = T(BF16), .b = T(BF16), .residual = T(BF16), .n = 3, .in = 5, .out = 7);
    COSTS(matmul_fwd, 2 * 3 * 5 * 7, 2 * (15 + 35), 2 * (21 + 21), .y = T(BF16), .pre = T(BF16),
          .x = T(BF16), .w = T(BF16), .n = 3, .in = 5, .out = 7, .y_stride = 8,
          .act = MATMUL_ACT_GELU);
    COSTS(matmul_bwd_x, 2 * 3 * 5 * 7, 2 * (21 + 35 + 15), 2 * 15, .dx = T(BF16), .dy = T(BF16),
          .w = T(BF16), .pre = T(BF16), .n = 3, .in = 5, .out = 7);
    COSTS(matmul_bwd_w, 2 * 3 * 5 * 7, 2 * (15 + 21), 4 * (35 + 7), .dw = T(F32), .db = T(F32),
          .x = T(BF16), .dy = T(BF16), .n = 3, .in = 5, .out = 7);
    COSTS(matmul_bwd_w, 2 * 3 * 5 * 7, 2 * (15 + 21) + 4 * 35, 4 * 35, .dw = T(F32), .x = T(BF16),
          .dy = T(BF16), .n = 3, .in = 5, .out = 7, .accumulate = true);
}

/* Two samples of 3 tokens, 4 heads of width 5: 6 pairs of query and key in each head. */
TEST(attention)
{
    COSTS(attention_fwd, 2 * 2 * 5 * 6 * 8, 2 * 360 + 6, 2 * 120 + 4 * 24, .out = T(BF16),
          .lse = T(F32), .qkv = T(BF16), .mask = T(U8), .b = 2, .t = 3, .h = 4, .hk = 4, .d = 5);
    COSTS(attention_bwd, 5 * 2 * 5 * 6 * 8, 2 * (120 + 120 + 360) + 4 * 24, 2 * 360,
          .dqkv = T(BF16), .dout = T(BF16), .out = T(BF16), .qkv = T(BF16), .lse = T(F32), .b = 2,
          .t = 3, .h = 4, .hk = 4, .d = 5);
    COSTS(attention_decode, 2 * 2 * 5 * 3 * 8, 2 * (20 + 2 * 60) * 2, 2 * 40, .out = T(BF16),
          .qkv = T(BF16), .b = 2, .t = 3, .h = 4, .hk = 4, .d = 5);
    /* own queries 2, 3 and 6, 7, 8 of 10 positions see 3 + 4 and 7 + 8 + 9 keys */
    COSTS(attention_fwd, 2 * 2 * 2 * 4 * 31, 4 * (40 + 80), 4 * 40 + 4 * 10, .out = T(F32),
          .lse = T(F32), .qkv = T(F32), .kv = T(F32), .b = 1, .t = 10, .h = 2, .hk = 1, .d = 4,
          .own = {{2, 6}, {2, 3}});
    /* one key head for two query heads: k and v are half as much, flops are the same */
    COSTS(attention_fwd, 2 * 2 * 5 * 6 * 8, 2 * 240, 2 * 120 + 4 * 24, .out = T(BF16),
          .lse = T(F32), .qkv = T(BF16), .b = 2, .t = 3, .h = 4, .hk = 2, .d = 5);
    COSTS(attention_bwd, 5 * 2 * 5 * 6 * 8, 2 * (120 + 120 + 240) + 4 * 24, 2 * 240,
          .dqkv = T(BF16), .dout = T(BF16), .out = T(BF16), .qkv = T(BF16), .lse = T(F32), .b = 2,
          .t = 3, .h = 4, .hk = 2, .d = 5);
    COSTS(attention_decode, 2 * 2 * 5 * 3 * 8, 2 * (20 + 60) * 2, 2 * 40, .out = T(BF16),
          .qkv = T(BF16), .b = 2, .t = 3, .h = 4, .hk = 2, .d = 5);
}

TEST(elements)
{
    COSTS(gelu_fwd, 0, 20, 20, .y = T(BF16), .x = T(BF16), .n = 10);
    COSTS(relu2_fwd, 0, 20, 20, .y = T(BF16), .x = T(BF16), .n = 10);
    COSTS(relu2_bwd, 0, 40, 20, .dx = T(BF16), .dy = T(BF16), .x = T(BF16), .n = 10);
    COSTS(gelu_bwd, 0, 40, 20, .dx = T(BF16), .dy = T(BF16), .x = T(BF16), .n = 10);
    COSTS(drop, 0, 20, 20, .y = T(F16), .x = T(F16), .n = 10);
    COSTS(branch_add, 0, 2 * (12 + 12 + 4), 24, .y = T(BF16), .x = T(BF16), .b = T(BF16),
          .residual = T(BF16), .n = 3, .c = 4);
    COSTS(copy_2d, 0, 24, 24, .y = T(BF16), .x = T(BF16), .rows = 3, .columns = 4, .y_stride = 9,
          .x_stride = 7);
    COSTS(cast, 0, 40, 20, .y = T(F16), .x = T(F32), .n = 10);
    COSTS(sum, 0, 40, 8, .out = T(F64), .x = T(F32), .n = 10);
    COSTS(sumsq, 0, 48, 8, .out = T(F64), .x = T(F32), .n = 10, .accumulate = true);
    COSTS(checksum, 0, 20 + 16, 16, .x = T(BF16), .n = 10);
    COSTS(combine, 0, 4 * 30, 2 * 10, .out = T(BF16), .in = T(F32), .own = T(F32), .elems = 10,
          .stride = 16, .sources_n = 3);
    COSTS(compress, 0, 8 * 300, 2 * 260 + 4 * 300, .packed = T(U8), .residual = T(F32), .x = T(F32),
          .n = 300);
    COSTS(expand, 0, 2 * 260, 4 * 300, .y = T(F32), .packed = T(U8), .n = 300);
}

TEST(optimisers)
{
    static const struct optim_span spans[] = {{0, 6, 0.1f}, {8, 4, 0}};
    COSTS(adamw, 0, 16 * 10 + 8, 12 * 10, .p = T(F32), .g = T(F32), .m = T(F32), .v = T(F32),
          .spans = spans, .spans_n = 2, .grad_scale = T(F64), .step = 1);
    COSTS(sgd, 0, 8 * 10, 8 * 10, .p = T(F32), .g = T(F32), .m = T(F32), .spans = spans,
          .spans_n = 2, .momentum = 0.9, .step = 1);
    COSTS(sgd, 0, 12 * 10, 8 * 10, .p = T(F32), .g = T(F32), .m = T(F32), .spans = spans,
          .spans_n = 2, .momentum = 0.9, .step = 2);
    COSTS(sgd, 0, 8 * 10, 4 * 10, .p = T(F32), .g = T(F32), .m = T(F32), .spans = spans,
          .spans_n = 2, .step = 2);
    COSTS(grad_scale, 0, 8 * 3 + 8, 16, .out = T(F64), .squares = T(F64), .loss = T(F64),
          .squares_n = 3);
}

TEST(names)
{
    struct op_cost cost;
    assert_string_equal(op_cost_name(OP_KIND_embed_fwd), "embed_fwd");
    assert_string_equal(op_cost_name(OP_KIND_combine), "combine");
    assert_string_equal(op_cost_name(OP_KIND_N), "unknown");
    assert_false(op_cost(OP_KIND_N, &cost, &cost));
}

HARNESS_RUN_ALL()
