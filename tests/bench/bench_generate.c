/* bench_generate — tokens a second of GPT-2 124M (fp32, random weights, greedy) against the limit
 * of memory.
 *
 *   bench_generate [tokens]     default: 48 tokens after a prompt of 16
 *
 * A token reads every weight once, except the position embedding: it takes at least bytes of
 * weights / read bandwidth. The bandwidth is measured over the weights themselves, once after each
 * token; medians are compared. Fails below GATE. */
#include <stdio.h>
#include <stdlib.h>

#include "bench/bench_level.h"

#include "base/clock.h"
#include "base/assert.h"
#include "base/quantile.h"
#include "base/rand.h"
#include "base/thread_pool.h"
#include "base/text.h"
#include "kernels/cpu.h"
#include "train/generate/decoder.h"

#define GATE 0.60
#define PROMPT 16
#define TOKENS_MAX 1000

static void must(enum status st) { ASSERTF(st == ST_OK, "%s", status_message()); }

static double read_bandwidth(const struct cpu *cpu, const struct load_target *weights)
{
    float *data = weights->data.data;
    int64_t n = weights->table->total_elems;
    return bench_level_of(CPU_ISA_N).read(cpu, data, n, 1);
}

/* Any numbers of the usual size do: what is measured does not depend on them. */
static void fill(float *data, int64_t n)
{
    uint32_t x = 1;
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        data[i] = 0.035f * ((float)(x >> 8) / 8388608.0f - 1.0f);
    }
}

static int32_t likeliest(const float *logits, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return (int32_t)best;
}

struct times {
    double prompt, seconds[TOKENS_MAX], bandwidth[TOKENS_MAX];
};

static void generate(struct decoder *decoder, const struct cpu *cpu, int64_t tokens_n,
                     struct times *out)
{
    static int32_t tokens[PROMPT + TOKENS_MAX];
    const struct load_target weights = decoder_target(decoder);
    int64_t vocab = weights.table->param[0].dim[0];
    const float *logits = NULL;
    for (int i = 0; i < PROMPT; i++)
        tokens[i] = (int32_t)rand_below(1, RAND_STREAM(TEST, 0), (uint64_t)i, (uint64_t)vocab);
    int64_t start = clock_ns();
    must(decoder_logits(decoder, tokens, PROMPT, &logits));
    out->prompt = 1e-9 * (double)(clock_ns() - start);
    for (int64_t i = 0; i < tokens_n; i++) {
        start = clock_ns();
        tokens[PROMPT + i] = likeliest(logits, vocab);
        must(decoder_logits(decoder, tokens, PROMPT + i + 1, &logits));
        out->seconds[i] = 1e-9 * (double)(clock_ns() - start);
        out->bandwidth[i] = read_bandwidth(cpu, &weights);
    }
}

/* Prints, and says whether the gate holds. weights: parameters that a token reads. */
static bool report(struct times *m, int64_t tokens_n, double weights)
{
    double bandwidth = quantile_median(m->bandwidth, tokens_n),
           seconds = quantile_median(m->seconds, tokens_n);
    double limit = bandwidth / (4 * weights), share = 1 / seconds / limit;
    printf("read %.1f GB/s, %.3f GB of weights: at most %.1f tokens/s\n", bandwidth * 1e-9,
           4e-9 * weights, limit);
    printf("prompt of %d tokens %.0f ms; then %.1f tokens/s (median of %d: %.1f ms, best %.1f ms): "
           "%.0f %% of the limit, gate %.0f %%: %s\n",
           PROMPT, m->prompt * 1e3, 1 / seconds, (int)tokens_n, seconds * 1e3, m->seconds[0] * 1e3,
           100 * share, 100 * GATE, share >= GATE ? "ok" : "FAIL");
    return share >= GATE;
}

int main(int argc, char **argv)
{
    static struct times times;
    struct dev *dev;
    struct dev_info info;
    struct decoder *decoder;
    struct model_dims dims;
    struct cpu cpu = {0};
    int64_t tokens_n = 48;
    if (argc > 1 && text_parse_i64(argv[1], 1, TOKENS_MAX, &tokens_n) != TEXT_OK)
        return 2;
    ASSERT(model_preset("gpt2", &dims));
    must(dev_cpu_open(0, CPU_ISA_N, &dev));
    dev_info(dev, &info);
    must(thread_pool_open(info.threads_n, &cpu.pool));
    must(decoder_open(dev, &dims, PROMPT + tokens_n, DTYPE_F32, &decoder));
    struct load_target target = decoder_target(decoder);
    fill(target.data.data, target.table->total_elems);
    printf("%s\n", info.name);
    generate(decoder, &cpu, tokens_n, &times);
    bool is_fast =
        report(&times, tokens_n, (double)(target.table->parameters - dims.context * dims.embed));
    decoder_close(decoder);
    thread_pool_close(cpu.pool);
    dev_close(dev);
    return is_fast ? 0 : 1;
}
