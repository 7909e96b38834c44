/* bench_step — whole updates in fp32 (forward, backward, AdamW) of GPT-2 124M and of a Llama of
 * 135M parameters, against the floor of this machine.
 *
 *   bench_step [level=NAME] [recompute=WORD] [model=NAME] [threads=N] [precision=bf16]
 *              [steps [B T]]
 *     default: 7 updates of each of (4,64) (4,256) (1,1024), of gpt2 and of smollm2-135m
 *     level: amx, avx512, avx2, sse4, plain; default: the best of this machine
 *     recompute: none, light (default: what a CPU takes), attention, block
 *     model: gpt2, smollm2-135m; default: both
 *     threads: 0 (default): one for each core
 *     precision=bf16: after each shape's updates in fp32, as many with products of bf16, which must
 *       take at most 1 / 1.8 of the time; skipped where the level has none
 *
 * floor = (6·(dense weights) + 6·attention width·LT)·tokens / FMA peak + 28·parameters / bandwidth
 * of updating in place; for GPT-2 these are 12LC² + VC weights and a width of C. Both limits are
 * measured between the updates of the same run; medians are compared. Each shape runs in a process
 * of its own, so its peak of resident memory is its own. The level `amx` makes fp32 products from
 * bf16 tiles, faster than multiply-adds can. There the floor is no physical limit, and a step may
 * be below it; the limit with the tiles' peak (six bf16 products each) stands beside it. Fails when
 * a shape is below its gate or above its memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench/bench_level.h"
#include "base/clock.h"
#include "base/quantile.h"
#include "base/rand.h"
#include "base/text.h"
#include "kernels/cpu.h"
#include "train/step/step.h"
#include "train/step/memory.h"

#define STEPS_MAX 64

struct shape {
    int64_t b, t;
    double gate;    /* of the floor */
    double gib_max; /* resident */
};
#define SHAPES 3
static const char *const models[] = {"gpt2", "smollm2-135m"};
#define MODELS ((int)(sizeof models / sizeof *models))
/* The Llama has as many layers again, which keep more. */
static const struct shape shapes[MODELS][SHAPES] = {
    {{4, 64, 0.78, 2.3}, {4, 256, 0.82, 2.6}, {1, 1024, 0.82, 2.6}},
    {{4, 64, 0.78, 2.6}, {4, 256, 0.82, 3.2}, {1, 1024, 0.82, 3.2}}};

static struct bench_level level;
static int recompute = MODEL_RECOMPUTE_LIGHT, threads_n;
static bool with_bf16;
#define BF16_GATE 1.8

struct times {
    double all, forward, head, backward, norm, update, peak, peak_amx, bandwidth;
};
#define FIELDS (sizeof(struct times) / sizeof(double))

/* The device's operations with a clock around each: where the time of a step goes. */
enum op_number {
#define OP_NUMBER(name) OP_##name,
    OP_LIST(OP_NUMBER)
#undef OP_NUMBER
        OP_N
};
static const char *const op_name[] = {
#define OP_NAME(name) #name,
    OP_LIST(OP_NAME)
#undef OP_NAME
};
static const struct op_table *op_inner;
static double op_ms[OP_N];
#define OP_TIMED(name)                                                      \
    static enum status timed_##name(struct stream *s, const struct name *a) \
    {                                                                       \
        int64_t start = clock_ns();                                         \
        enum status st = op_inner->name(s, a);                              \
        op_ms[OP_##name] += (double)(clock_ns() - start) * 1e-6;            \
        return st;                                                          \
    }
OP_LIST(OP_TIMED)
#define OP_ROW(name) .name = timed_##name,
static const struct op_table op_timed = {OP_LIST(OP_ROW)};

static void report_ops(int steps)
{
    printf("  ms a step:");
    for (int i = 0; i < OP_N; i++)
        if (op_ms[i] > 0)
            printf(" %s %.2f", op_name[i], op_ms[i] / steps);
    printf("\n");
}

static void need(enum status st)
{
    if (st == ST_OK)
        return;
    fprintf(stderr, "%s: %s\n", status_name(st), status_message());
    exit(1);
}

/* Field by field. */
static struct times median(const struct times *row, int n)
{
    struct times out;
    for (size_t f = 0; f < FIELDS; f++) {
        double v[STEPS_MAX];
        for (int i = 0; i < n; i++)
            v[i] = ((const double *)&row[i])[f];
        ((double *)&out)[f] = quantile_median(v, n);
    }
    return out;
}

/* The ceilings of the level in use; the update goes over the gradients, which are not needed
 * between steps. */
static void measure_peaks(const struct cpu *cpu, struct step *step, struct times *out)
{
    out->peak_amx = level.isa == CPU_ISA_AMX ? level.products(cpu, 0.02) : 0;
    out->peak = level.fma(cpu, 0.02);
    out->bandwidth =
        level.update(cpu, step_grads(step).data, step_whole_table(step)->total_elems, 1);
}

static struct step *open_step(const char *model, const struct shape *shape, struct dev *dev)
{
    struct step *step;
    struct dev_info info;
    dev_info(dev, &info);
    struct step_config config = {.dev = dev,
                                 .batch_samples = shape->b,
                                 .global_samples = shape->b,
                                 .seq_tokens = shape->t,
                                 .seed = 1,
                                 .recompute.way = (enum model_recompute)recompute,
                                 .optim = {.kind = OPTIM_KIND_ADAMW,
                                           .beta1 = 0.9,
                                           .beta2 = 0.95,
                                           .eps = 1e-8,
                                           .weight_decay = 0.1,
                                           .grad_clip = 1}};
    model_preset(model, &config.dims);
    int64_t start = clock_ns();
    need(step_open(&config, &step));
    printf("%s B=%lld T=%lld, %s: opened in %.2f s, arenas %.3f GiB\n", model, (long long)shape->b,
           (long long)shape->t, info.name, (double)(clock_ns() - start) * 1e-9,
           (double)step_memory_bytes(step) / (1 << 30));
    return step;
}

static struct batch random_batch(const char *model, const struct shape *shape)
{
    struct model_dims dims;
    model_preset(model, &dims);
    uint64_t vocab = (uint64_t)dims.vocab;
    struct batch batch;
    need(batch_init(&batch, FEED_TASK_LM, shape->b, shape->t));
    for (int64_t i = 0; i < shape->b * shape->t; i++) {
        batch.host.tokens[i] = (int32_t)rand_below(1, RAND_STREAM(TEST, 0), (uint64_t)i, vocab);
        batch.host.targets[i] = (int32_t)rand_below(1, RAND_STREAM(TEST, 1), (uint64_t)i, vocab);
    }
    return batch;
}

static void report_amx(const struct shape *shape, struct step *step, const struct times *m,
                       double memory)
{
    if (m->peak_amx == 0)
        return;
    double compute = step_flops(step, shape->b) / m->peak_amx * 1e3;
    printf("  fp32 products from bf16 tiles: the floor of multiply-adds is not the limit; AMX peak "
           "%.1f GFLOP/s of fp32, limit %.1f + %.1f = %.1f ms, step at %.1f %% of it\n",
           m->peak_amx * 1e-9, compute, memory, compute + memory,
           (compute + memory) / m->all * 100);
}

static bool report(const struct shape *shape, struct step *step, const struct times *m, double loss)
{
    double compute = step_flops(step, shape->b) / m->peak * 1e3,
           memory = 28.0 * (double)step_whole_table(step)->parameters / m->bandwidth * 1e3;
    double floor = compute + memory, ratio = floor / m->all;
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double gib = (double)usage.ru_maxrss / (1 << 20);
    bool is_good = ratio >= shape->gate && gib <= shape->gib_max;
    printf("  peak %.1f GFLOP/s, bandwidth %.1f GB/s, floor %.1f + %.1f = %.1f ms\n",
           m->peak * 1e-9, m->bandwidth * 1e-9, compute, memory, floor);
    report_amx(shape, step, m, memory);
    printf("  step %.1f ms (forward %.1f, head %.1f, backward %.1f, norm %.1f, update %.1f), %.1f "
           "tok/s, loss %.4f\n",
           m->all, m->forward, m->head, m->backward, m->norm, m->update,
           (double)(shape->b * shape->t) / m->all * 1e3, loss);
    printf("  %s: %.1f %% of the floor (gate %.0f %%), peak %.3f GiB (limit %.1f)\n",
           is_good ? "ok" : "NOT OK", ratio * 100, shape->gate * 100, gib, shape->gib_max);
    return is_good;
}

/* One update to warm up, and the medians of `steps` more. */
static struct times measure(struct step *step, const struct batch *batch, const struct cpu *cpu,
                            int steps, double *loss)
{
    struct times row[STEPS_MAX];
    struct step_result r = {0};
    for (int i = -1; i < steps; i++) {
        struct times now;
        measure_peaks(cpu, step, &now);
        need(step_run_batch(step, batch, i + 1, 0, 1e-4, false, &r));
        now = (struct times){r.compute_ms, r.forward_ms, r.head_ms,    r.backward_ms, r.norm_ms,
                             r.update_ms,  now.peak,     now.peak_amx, now.bandwidth};
        if (i >= 0)
            row[i] = now;
        else
            memset(op_ms, 0, sizeof op_ms);
    }
    report_ops(steps);
    *loss = r.loss;
    return median(row, steps);
}

/* The same updates with products of bf16. */
static bool run_bf16(struct dev *dev, struct step *step, const struct batch *batch,
                     const struct cpu *cpu, int steps, double f32_ms)
{
    double loss;
    if (dev_cpu_bf16(dev) != ST_OK) {
        printf("  bf16 skipped: %s\n", status_message());
        return true;
    }
    struct times m = measure(step, batch, cpu, steps, &loss);
    bool is_good = f32_ms >= BF16_GATE * m.all;
    printf("  bf16: step %.1f ms (forward %.1f, head %.1f, backward %.1f, norm %.1f, update %.1f), "
           "loss %.4f\n  %s: %.2f times as fast as fp32 (gate %.1f)\n",
           m.all, m.forward, m.head, m.backward, m.norm, m.update, loss, is_good ? "ok" : "NOT OK",
           f32_ms / m.all, BF16_GATE);
    return is_good;
}

static bool run(const char *model, const struct shape *shape, int steps)
{
    struct dev *dev;
    struct dev_info info;
    struct cpu cpu = {0};
    double loss;
    need(dev_cpu_open(threads_n, (int)level.isa, &dev));
    dev_info(dev, &info);
    op_inner = dev_op(dev);
    ((struct dev_head *)(void *)dev)->op = &op_timed;
    need(thread_pool_open(info.threads_n, &cpu.pool));
    struct step *step = open_step(model, shape, dev);
    struct batch batch = random_batch(model, shape);
    struct times m = measure(step, &batch, &cpu, steps, &loss);
    bool is_good = report(shape, step, &m, loss);
    if (with_bf16)
        is_good &= run_bf16(dev, step, &batch, &cpu, steps, m.all);
    batch_free(&batch);
    step_close(step);
    thread_pool_close(cpu.pool);
    dev_close(dev);
    return is_good;
}

/* Takes key=NAME from the arguments: its number, or `usual`. */
static int pop_word(int *argc, char **argv, const char *key, const char *const *names, int names_n,
                    int usual)
{
    size_t key_n = strlen(key);
    int i = 0;
    if (*argc < 2 || strncmp(argv[1], key, key_n) != 0)
        return usual;
    while (i < names_n && strcmp(argv[1] + key_n, names[i]) != 0)
        i++;
    if (i == names_n)
        need(FAIL(ST_BUG, "%s: no such value", argv[1]));
    memmove(argv + 1, argv + 2, (size_t)(*argc - 2) * sizeof *argv);
    (*argc)--;
    return i;
}

/* Which models: all, or the one that the arguments name. */
static int model_first, model_end = MODELS;

static void pop_words(int *argc, char **argv)
{
    static const char *const ways[] = {"none", "light", "attention", "block"};
    static const char *const counts[] = {"0", "1", "2", "3", "4", "5", "6", "7", "8"};
    static const char *const precisions[] = {"fp32", "bf16"};
    level = bench_level_of(bench_level_pop(argc, argv));
    recompute = pop_word(argc, argv, "recompute=", ways, 4, MODEL_RECOMPUTE_LIGHT);
    model_first = pop_word(argc, argv, "model=", models, MODELS, MODELS);
    threads_n = pop_word(argc, argv, "threads=", counts, 9, 0);
    with_bf16 = pop_word(argc, argv, "precision=", precisions, 2, 0) == 1;
    model_end = model_first < MODELS ? model_first + 1 : MODELS;
    model_first %= MODELS;
}

static bool run_apart(const char *model, const struct shape *shape, int steps)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        bool is_good = run(model, shape, steps);
        fflush(stdout);
        _exit(is_good ? 0 : 1);
    }
    int how = 0;
    waitpid(pid, &how, 0);
    return how == 0;
}

/* All shapes of a model, or the one that is asked for: with its gate if it is one of them. */
static bool run_model(int model, const struct shape *one, int steps)
{
    bool is_good = true, is_listed = false;
    for (int i = 0; i < SHAPES; i++) {
        const struct shape *shape = &shapes[model][i];
        bool is_it = one->b == shape->b && one->t == shape->t;
        if (one->b == 0 || is_it)
            is_good &= run_apart(models[model], shape, steps);
        is_listed |= is_it;
    }
    return one->b == 0 || is_listed ? is_good : run_apart(models[model], one, steps);
}

int main(int argc, char **argv)
{
    int64_t steps = 7;
    struct shape one = {.gib_max = 1024};
    bool is_good = true;
    pop_words(&argc, argv);
    if ((argc > 1 && text_parse_i64(argv[1], 1, STEPS_MAX, &steps) != TEXT_OK) ||
        (argc > 3 && (text_parse_i64(argv[2], 1, 1024, &one.b) != TEXT_OK ||
                      text_parse_i64(argv[3], 1, 1024, &one.t) != TEXT_OK)))
        return fprintf(stderr, "bench_step [key=VALUE]… [steps [B T]]\n"), 2;
    for (int model = model_first; model < model_end; model++)
        is_good &= run_model(model, &one, (int)steps);
    return is_good ? 0 : 1;
}
