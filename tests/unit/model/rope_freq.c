/* rope_freq — inverse frequencies and their scalings, against numbers that the formulas of
 * transformers' modeling_rope_utils give in double. */
#include "model/transformer/transformer.h"

#include "harness.h"

static const struct {
    const char *name;
    struct model_rope rope;
    int64_t rotated;
    int at[8];
    double want[8];
} row[] = {
    {"none",
     {.kind = MODEL_ROPE_KIND_NONE, .theta = 10000},
     128,
     {0, 1, 16, 29, 32, 35, 48, 63},
     {1, 0.865964323, 0.1, 0.0153992653, 0.01, 0.00649381632, 0.001, 0.000115478198}},
    {"linear",
     {.kind = MODEL_ROPE_KIND_LINEAR, .theta = 10000, .factor = 4},
     64,
     {0, 1, 8, 13, 16, 19, 24, 31},
     {0.25, 0.187473552, 0.025, 0.00592843426, 0.0025, 0.00105424126, 0.00025, 3.33380358e-05}},
    {"llama3",
     {.kind = MODEL_ROPE_KIND_LLAMA3,
      .theta = 500000,
      .factor = 32,
      .low_freq_factor = 1,
      .high_freq_factor = 4,
      .original_context = 8192},
     64,
     {0, 1, 8, 13, 16, 19, 24, 31},
     {1, 0.663601238, 0.0376060309, 0.00483942135, 0.000429556797, 1.29147672e-05, 1.66196747e-06,
      9.41830673e-08}},
    {"yarn",
     {.kind = MODEL_ROPE_KIND_YARN,
      .theta = 1000000,
      .factor = 4,
      .beta_fast = 32,
      .beta_slow = 1,
      .original_context = 32768},
     128,
     {0, 1, 16, 29, 32, 35, 48, 63},
     {1, 0.805842188, 0.0316227766, 0.00140511248, 0.000602941176, 0.000246258407, 7.90569415e-06,
      3.1023444e-07}},
    {"quarter",
     {.kind = MODEL_ROPE_KIND_NONE, .theta = 10000},
     16,
     {0, 1, 2, 3, 4, 5, 6, 7},
     {1, 0.316227766, 0.1, 0.0316227766, 0.01, 0.00316227766, 0.001, 0.000316227766}},
};

TEST(test_values)
{
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        float got[ROPE_FREQ_MAX];
        rope_freq(&row[i].rope, row[i].rotated, got);
        for (int k = 0; k < 8; k++)
            if (!(fabs((double)got[row[i].at[k]] / row[i].want[k] - 1) < 3e-7)) {
                print_error("%s %d: %.9g, expected %.9g\n", row[i].name, row[i].at[k],
                            (double)got[row[i].at[k]], row[i].want[k]);
                fail();
            }
        for (int64_t k = row[i].rotated / 2; k < ROPE_FREQ_MAX; k++)
            assert_float_equal(got[k], 0, 0);
    }
}

/* Cosines and sines are scaled by YaRN alone: by its own factor, or by 0.1·ln(factor) + 1. */
TEST(test_scale)
{
    float out[ROPE_FREQ_MAX];
    struct model_rope rope = row[3].rope;
    assert_float_equal(rope_freq(&row[2].rope, 64, out), 1, 0);
    assert_float_equal(rope_freq(&rope, 128, out), 0.1 * log(4) + 1, 1e-7);
    rope.attention_factor = 1.25;
    assert_float_equal(rope_freq(&rope, 128, out), 1.25, 0);
    rope.attention_factor = 0;
    rope.factor = 1;
    assert_float_equal(rope_freq(&rope, 128, out), 1, 0);
}

HARNESS_RUN_ALL()
