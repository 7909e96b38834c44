/* rope_freq — the inverse frequencies of rotary positions, scaled for contexts that are longer than
 * the context of the training. A pure function of the dimensions, with the formulas and the f32
 * arithmetic of transformers (modeling_rope_utils). It must not know positions or tensors. */
#include "model/transformer/transformer.h"

#include <math.h>

#include "base/assert.h"

#define PI 3.14159265358979323846

/* compute_freq — returns 1/θ^(2i/R), each step rounded to f32 (Su et al. 2021). */
static float compute_freq(const struct model_rope *rope, int64_t rotated, int64_t i)
{
    float exponent = (float)(2 * i) / (float)rotated;
    return 1.0F / (float)pow(rope->theta, (double)exponent);
}

/* scale_llama3 — divides the frequencies of long waves by factor, keeps the frequencies of short
 * waves, and blends between them (Dubey et al. 2024). */
static float scale_llama3(const struct model_rope *rope, float freq)
{
    double context = (double)rope->original_context;
    double wave = 2 * PI / (double)freq;
    if (wave > context / rope->low_freq_factor)
        return (float)((double)freq / rope->factor);
    if (wave < context / rope->high_freq_factor)
        return freq;
    double blend =
        (context / wave - rope->low_freq_factor) / (rope->high_freq_factor - rope->low_freq_factor);
    return (float)((1 - blend) * (double)freq / rope->factor + blend * (double)freq);
}

/* yarn_pair — returns the pair that turns `turns` times within the original context. */
static double yarn_pair(const struct model_rope *rope, int64_t rotated, double turns)
{
    return (double)rotated * log((double)rope->original_context / (turns * 2 * PI)) /
           (2 * log(rope->theta));
}

/* scale_yarn — keeps the frequencies of pairs below `low`, divides the frequencies of pairs above
 * `high` by factor, and blends between them (Peng et al. 2023). */
static float scale_yarn(const struct model_rope *rope, int64_t rotated, int64_t i, float freq)
{
    double low = floor(yarn_pair(rope, rotated, rope->beta_fast)),
           high = ceil(yarn_pair(rope, rotated, rope->beta_slow));
    low = low > 0 ? low : 0;
    high = high < (double)(rotated - 1) ? high : (double)(rotated - 1);
    if (low == high)
        high += 0.001;
    double ramp = ((double)i - low) / (high - low);
    ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
    return (float)((double)freq / rope->factor * ramp + (double)freq * (1 - ramp));
}

static float yarn_scale(const struct model_rope *rope)
{
    if (rope->attention_factor > 0)
        return (float)rope->attention_factor;
    return rope->factor > 1 ? (float)(0.1 * log(rope->factor) + 1) : 1;
}

static float scale_freq(const struct model_rope *rope, int64_t rotated, int64_t i, float freq)
{
    switch (rope->kind) {
    case MODEL_ROPE_KIND_LINEAR:
        return (float)((double)freq / rope->factor);
    case MODEL_ROPE_KIND_LLAMA3:
        return scale_llama3(rope, freq);
    case MODEL_ROPE_KIND_YARN:
        return scale_yarn(rope, rotated, i, freq);
    default:
        return freq;
    }
}

float rope_freq(const struct model_rope *rope, int64_t rotated, float out[ROPE_FREQ_MAX])
{
    ASSERTF(rotated % 2 == 0 && rotated / 2 <= ROPE_FREQ_MAX, "%lld elements rotate",
            (long long)rotated);
    for (int64_t i = 0; i < ROPE_FREQ_MAX; i++)
        out[i] = i < rotated / 2 ? scale_freq(rope, rotated, i, compute_freq(rope, rotated, i)) : 0;
    return rope->kind == MODEL_ROPE_KIND_YARN ? yarn_scale(rope) : 1;
}
