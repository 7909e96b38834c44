/* gpu_tune — times cuBLASLt's algorithms for the products of GPT-2's sizes in bf16, and writes the
 * fastest as entries of src/dev/blas/tuned.def (blas/tuned.h). Called as `gpu_tests tune FILE`.
 *
 * For each form of a product (fused, apart) the library's proposals are timed, with the kernels
 * that follow the form; the median counts. Entries are written as they are found. After
 * TUNE_SECONDS (environment; 80) no further product is begun, which is said. A table is printed:
 * product, ms by the library's first proposal for the fused form, ms by the fastest, its TFLOP/s,
 * fused or apart, and how many proposals there were. Compiled with TUNE_DRY, a test gives sizes and
 * times. */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/quantile.h"
#include "base/text.h"
#include "dev/blas/tuned.h"
#include "real.h"
#include "tests/cuda/products.h"

#define CANDIDATES 16

static struct {
    struct cuda cuda;
    struct blas *blas;
    struct blas_chip chip;
    char *memory;
    size_t memory_bytes, used;
    char *written; /* all entries so far, to write none twice */
    FILE *out;
    int64_t end_ms;
} tune;

/* The fastest algorithm of a form. */
struct best {
    struct blas_tuned tuned;
    double ms, first_ms; /* first: of the library's own order */
    int n;
};

static void tune_check(cudaError_t error, const char *what)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "gpu_tune: %s: %s\n", what, cudaGetErrorString(error));
    exit(1);
}

#ifndef TUNE_DRY
#define WARM 2
#define RUNS 7
#define MEMORY_BYTES ((size_t)8 << 30)

static const struct {
    const char *name;
    int64_t n; /* rows of a micro-batch that fits a GPU of 80 GB */
} models[] = {{"gpt2", 65536}, {"gpt2-medium", 65536}, {"gpt2-large", 32768}, {"gpt2-xl", 16384}};

static bool tune_model(int i, struct products_config *c)
{
    if (i == sizeof models / sizeof *models)
        return false;
    *c = (struct products_config){
        .dtype = DTYPE_BF16, .n = models[i].n, .logits_rows = 8192, .logits_stride = 50304};
    return model_preset(models[i].name, &c->dims);
}

static bool run_form(const struct blas_form *form)
{
    bool is_done = false;
    return blas_form_run(tune.blas, &tune.cuda, form, &is_done) == ST_OK && is_done;
}

/* tune_ms — the median of some runs; < 0: it does not run. */
static double tune_ms(const struct blas_form *form)
{
    cudaEvent_t begin, end;
    double ms[RUNS] = {0};
    float one = 0;
    bool is_ok = true;
    tune_check(cudaEventCreate(&begin), "an event");
    tune_check(cudaEventCreate(&end), "an event");
    for (int i = -WARM; i < RUNS && is_ok; i++) {
        tune_check(cudaEventRecord(begin, tune.cuda.stream), "an event");
        is_ok = run_form(form);
        tune_check(cudaEventRecord(end, tune.cuda.stream), "an event");
        tune_check(cudaEventSynchronize(end), "a product");
        tune_check(cudaEventElapsedTime(&one, begin, end), "an event");
        if (i >= 0)
            ms[i] = (double)one;
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return is_ok ? quantile_median(ms, RUNS) : -1;
}
#endif

/* ---- memory ---- */

/* Tensors of different products may share memory: only times are looked at. */
static void *tune_alloc(size_t bytes)
{
    bytes = (bytes + 255) / 256 * 256;
    if (bytes > tune.memory_bytes)
        tune_check(cudaErrorMemoryAllocation, "a tensor");
    if (tune.used + bytes > tune.memory_bytes)
        tune.used = 0;
    tune.used += bytes;
    return tune.memory + tune.used - bytes;
}

/* Numbers of 0.5 to 2 in size: zeros would make products faster than they are. */
static void fill_memory(void)
{
    static uint16_t some[1 << 16];
    uint32_t state = 1;
    for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
        state = state * 1664525u + 1013904223u;
        some[i] = (uint16_t)((state >> 16 & 0x80ffu) | 0x3f00u);
    }
    for (size_t done = 0; done < tune.memory_bytes; done += sizeof some) {
        size_t left = tune.memory_bytes - done;
        tune_check(cudaMemcpyAsync(tune.memory + done, some,
                                   left < sizeof some ? left : sizeof some, cudaMemcpyHostToDevice,
                                   tune.cuda.stream),
                   "memory");
    }
    tune_check(cudaStreamSynchronize(tune.cuda.stream), "memory");
}

/* ---- products ---- */

static struct best best_of(const struct blas_form *form)
{
    struct blas_tuned list[CANDIDATES];
    const struct blas_shape *shape = &form->call.shape;
    struct best best = {.ms = -1, .first_ms = -1};
    best.n = blas_plan_candidates(tune.blas, &tune.cuda, shape, list, CANDIDATES);
    for (int i = 0; i < best.n; i++) {
        double ms = blas_plan_set(tune.blas, &tune.cuda, shape, &list[i]) ? tune_ms(form) : -1;
        if (i == 0)
            best.first_ms = ms;
        if (ms >= 0 && (best.ms < 0 || ms < best.ms)) {
            best.ms = ms;
            best.tuned = list[i];
        }
    }
    return best;
}

static bool is_written(const struct blas_shape *shape)
{
    struct blas_tuned found;
    return blas_tuned_find(tune.written, &tune.chip, blas_plan_version(tune.blas), shape, &found);
}

static void write_entry(const struct blas_shape *shape, const struct blas_tuned *tuned)
{
    char row[BLAS_TUNED_ROW];
    if (is_written(shape))
        return;
    blas_tuned_write(&tune.chip, blas_plan_version(tune.blas), shape, tuned, row);
    size_t had = strlen(tune.written);
    char *grown = realloc(tune.written, had + sizeof row);
    if (!grown)
        tune_check(cudaErrorMemoryAllocation, "the entries");
    tune.written = grown;
    text_copy(tune.written + had, sizeof row, row);
    fputs(row, tune.out);
    fflush(tune.out);
}

static double flops_of(const struct blas_shape *s)
{
    return 2.0 * (double)s->m * (double)s->n * (double)s->k;
}

static void tune_product(const struct product *p, int64_t embed)
{
    const struct blas_tuned apart = {.is_apart = true};
    struct blas_form form[BLAS_FORMS];
    struct best best[BLAS_FORMS];
    int n = products_forms(p, false, form), fastest = -1;
    if (n == 0 || is_written(&form[0].call.shape))
        return;
    for (int i = 0; i < n; i++) {
        best[i] = best_of(&form[i]);
        if (best[i].ms >= 0 && (fastest < 0 || best[i].ms < best[fastest].ms))
            fastest = i;
    }
    if (fastest < 0) {
        printf("%lld %s\tno algorithm\n", (long long)embed, p->name);
        return;
    }
    if (fastest > 0)
        write_entry(&form[0].call.shape, &apart);
    write_entry(&form[fastest].call.shape, &best[fastest].tuned);
    printf("%lld %s\t%.4f\t%.4f\t%.1f\t%s\t%d\n", (long long)embed, p->name, best[0].first_ms,
           best[fastest].ms, flops_of(&form[fastest].call.shape) / best[fastest].ms * 1e-9,
           fastest < n - 1 || n == 1 ? "fused" : "apart", best[fastest].n);
    fflush(stdout);
}

/* tune_step — false: the time is over. */
static bool tune_step(const struct products_config *c)
{
    static struct products products;
    products_of(c, &products);
    for (int i = 0; i < products.n; i++) {
        if (clock_ms() > tune.end_ms) {
            printf("# the time is over at %s of the model %lld wide; TUNE_SECONDS gives more\n",
                   products.list[i].name, (long long)c->dims.embed);
            return false;
        }
        tune_product(&products.list[i], c->dims.embed);
    }
    return true;
}

/* ---- open, close ---- */

static void tune_open(cudaStream_t *stream)
{
    struct cudaDeviceProp prop;
    void *scratch, *all;
    const char *seconds = getenv("TUNE_SECONDS");
    tune_check(cudaGetDeviceProperties(&prop, 0), "the GPU");
    tune_check(cudaStreamCreateWithPriority(stream, cudaStreamNonBlocking, 0), "a stream");
    tune_check(cudaMalloc(&scratch, CUDA_SCRATCH_BYTES), "scratch");
    tune_check(cudaMalloc(&all, MEMORY_BYTES), "memory");
    tune.memory = all;
    tune.memory_bytes = MEMORY_BYTES;
    tune.cuda = (struct cuda){.stream = *stream,
                              .scratch = scratch,
                              .scratch_bytes = CUDA_SCRATCH_BYTES,
                              .sm_count = prop.multiProcessorCount,
                              .shared_bytes = prop.sharedMemPerBlockOptin};
    tune.chip.sm_count = prop.multiProcessorCount;
    text_copy(tune.chip.name, sizeof tune.chip.name, prop.name);
    tune.written = calloc(1, 1);
    tune.end_ms = clock_ms() + 1000 * (seconds ? atoi(seconds) : 80);
    fill_memory();
}

static void tune_close(cudaStream_t stream)
{
    blas_plan_close(tune.blas);
    cudaFree(tune.memory);
    cudaFree(tune.cuda.scratch);
    cudaStreamDestroy(stream);
    free(tune.written);
}

int real_tune(const char *path)
{
    struct products_config c;
    cudaStream_t stream;
    tune.out = path ? fopen(path, "w") : NULL;
    if (!tune.out) {
        fprintf(stderr, "gpu_tune: cannot write %s; usage: gpu_tests tune FILE\n",
                path ? path : "a file without a name");
        return 64;
    }
    tune_open(&stream);
    if (blas_plan_open(&tune.chip, &tune.blas) != ST_OK) {
        fprintf(stderr, "gpu_tune: %s\n", status_message());
        return 1;
    }
    blas_plan_table(tune.blas, "");
    printf("# %s, %d multiprocessors, cuBLASLt %s\n", tune.chip.name, tune.chip.sm_count,
           blas_plan_about(tune.blas));
    printf("# product\tfirst ms\tfastest ms\tTFLOP/s\tform\tproposals\n");
    bool has_time = true;
    for (int i = 0; has_time && tune_model(i, &c); i++)
        for (int task = MODEL_TASK_LM; has_time && task <= MODEL_TASK_QA; task++) {
            c.dims.task = (enum model_task)task;
            c.at = tune_alloc;
            has_time = tune_step(&c);
        }
    tune_close(stream);
    return fclose(tune.out) == 0 ? 0 : 1;
}
