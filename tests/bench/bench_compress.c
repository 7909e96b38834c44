/* bench_compress — what forms of compressed gradients take: bits of an element, and nanoseconds of
 * one core for an element, on the gradients of a model that trains. Ranks are not needed: one
 * gradient is packed with error feedback, as grad/compress.h does, and the bytes of its numbers are
 * coded in chunks of ANS_CHUNK_BYTES. The last step's gradient is measured.
 *
 *   bench_compress DATA=TEXT [MODEL=gpt2-nano] [STEPS=20] [B=4] [T=256] */
#define ZSTD_STATIC_LINKING_ONLY /* for the mode that has no matches */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <zstd.h>

#include "bench/ans.h"
#include "base/log.h"
#include "base/text.h"
#include "dev/dev.h"
#include "kernels/cpu.h"
#include "mesh/grad/code.h"
#include "train/step/step.h"

#define FEEDBACK_STEPS 3 /* the last steps, in which a residual is kept */
#define ROUNDS 3         /* the fastest counts */
#define NO_MATCHES (-100)

struct setting {
    const char *model, *data;
    int64_t steps, b, t;
};

/* A form of gradients, and its state. */
struct form {
    const char *name;
    bool is_kernel; /* packed by kernels/compress.h, else by grad_quant.h */
    enum grad_quant_kind quant;
    int64_t block_elems, block_bytes, scale_bytes;
    float *residual;
    uint8_t *packed;
    int64_t packed_bytes;
    double pack_ns, unpack_ns; /* of an element */
};

static struct {
    struct dev *dev;
    struct stream *stream;
    float *unpacked;
    int64_t elems;
} here;

/* Processor time, so that other work on the machine does not count. */
static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static void die(const char *what)
{
    printf("bench_compress: %s: %s\n", what, status_message());
    exit(1);
}

/* ---- packing ---- */

static void pack(const struct form *f, const float *x, float *residual)
{
    struct compress c = {.packed = {f->packed, DTYPE_U8},
                         .residual = {residual, DTYPE_F32},
                         .x = {(void *)(uintptr_t)x, DTYPE_F32},
                         .n = here.elems};
    if (!f->is_kernel)
        grad_quant_pack(f->quant, x, residual, here.elems, f->packed);
    else if (dev_op(here.dev)->compress(here.stream, &c) != ST_OK)
        die("pack");
}

static void unpack(const struct form *f)
{
    struct expand e = {
        .y = {here.unpacked, DTYPE_F32}, .packed = {f->packed, DTYPE_U8}, .n = here.elems};
    if (!f->is_kernel)
        grad_quant_unpack(f->quant, f->packed, here.elems, here.unpacked);
    else if (dev_op(here.dev)->expand(here.stream, &e) != ST_OK)
        die("unpack");
}

static void time_packing(struct form *f, const float *grads)
{
    float *kept = malloc((size_t)here.elems * sizeof *kept);
    f->pack_ns = f->unpack_ns = 1e9;
    memcpy(kept, f->residual, (size_t)here.elems * sizeof *kept);
    for (int i = 0; i < ROUNDS; i++) {
        memcpy(f->residual, kept, (size_t)here.elems * sizeof *kept);
        double begin = now_ns();
        pack(f, grads, f->residual);
        double packed = now_ns();
        unpack(f);
        f->pack_ns = fmin(f->pack_ns, (packed - begin) / (double)here.elems);
        f->unpack_ns = fmin(f->unpack_ns, (now_ns() - packed) / (double)here.elems);
    }
    free(kept);
}

/* ---- coding ---- */

struct coded {
    int64_t bytes;
    double encode_ns, decode_ns; /* of an element */
};

/* The bytes of the numbers, without scales, one behind the other. */
static int64_t numbers_of(const struct form *f, uint8_t *out)
{
    int64_t each = f->block_bytes - f->scale_bytes, n = 0;
    for (int64_t at = 0; at < f->packed_bytes; at += f->block_bytes, n += each)
        memcpy(out + n, f->packed + at + f->scale_bytes, (size_t)each);
    return n;
}

static double entropy_bits(const uint8_t *x, int64_t n)
{
    int64_t count[256] = {0};
    double bits = 0;
    for (int64_t i = 0; i < n; i++)
        count[x[i]]++;
    for (int b = 0; b < 256; b++)
        bits -= count[b] ? (double)count[b] * log2((double)count[b] / (double)n) : 0;
    return bits;
}

static ZSTD_CCtx *zstd_of(int level)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_compressionLevel, level);
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
    if (level < 0)
        ZSTD_CCtx_setParameter(c, ZSTD_c_literalCompressionMode, ZSTD_ps_enable);
    return c;
}

/* One chunk; level 0: ans. Adds to `total`. */
static void code_chunk(ZSTD_CCtx *cctx, ZSTD_DCtx *dctx, const uint8_t *x, int64_t n,
                       struct coded *total)
{
    static uint8_t coded[2 * ANS_CHUNK_BYTES], back[ANS_CHUNK_BYTES];
    double begin = now_ns();
    int64_t bytes = cctx ? (int64_t)ZSTD_compress2(cctx, coded, sizeof coded, x, (size_t)n)
                         : ans_encode(x, n, coded);
    double encoded = now_ns();
    bool is_ok = cctx
                     ? ZSTD_decompressDCtx(dctx, back, (size_t)n, coded, (size_t)bytes) == (size_t)n
                     : ans_decode(coded, bytes, back, n);
    double decoded = now_ns();
    if (!is_ok || memcmp(back, x, (size_t)n)) {
        printf("bench_compress: a chunk does not come back\n");
        exit(1);
    }
    total->bytes += bytes;
    total->encode_ns += (encoded - begin) / (double)here.elems;
    total->decode_ns += (decoded - encoded) / (double)here.elems;
}

static struct coded code(const uint8_t *x, int64_t n, int level)
{
    struct coded best = {.encode_ns = 1e9, .decode_ns = 1e9};
    ZSTD_CCtx *cctx = level ? zstd_of(level) : NULL;
    ZSTD_DCtx *dctx = level ? ZSTD_createDCtx() : NULL;
    for (int i = 0; i < ROUNDS; i++) {
        struct coded c = {0};
        for (int64_t at = 0; at < n; at += ANS_CHUNK_BYTES)
            code_chunk(cctx, dctx, x + at, n - at < ANS_CHUNK_BYTES ? n - at : ANS_CHUNK_BYTES, &c);
        best.bytes = c.bytes;
        best.encode_ns = fmin(best.encode_ns, c.encode_ns);
        best.decode_ns = fmin(best.decode_ns, c.decode_ns);
    }
    ZSTD_freeCCtx(cctx);
    ZSTD_freeDCtx(dctx);
    return best;
}

/* plain_bits: what the form takes without a coder. pays: below this speed of a link, in Mb/s, an
 * element is sooner coded, sent and decoded than sent as it is. */
static void print_coded(const char *name, const struct coded *c, double scale_bits,
                        double plain_bits)
{
    double bits = 8 * (double)c->bytes / (double)here.elems + scale_bits,
           pays = (plain_bits - bits) / (c->encode_ns + c->decode_ns) * 1e3;
    printf("  %-28s %7.3f %9.2f %9.2f %9.0f\n", name, bits, c->encode_ns, c->decode_ns,
           pays > 0 ? pays : 0);
}

static void print_form(const struct form *f)
{
    static const struct {
        const char *name;
        int level;
    } coder[] = {{"+ ans", 0},
                 {"+ zstd, entropy stage alone", NO_MATCHES},
                 {"+ zstd level -5", -5},
                 {"+ zstd level 1", 1},
                 {"+ zstd level 3", 3},
                 {"+ zstd level 9", 9}};
    double elems = (double)here.elems, plain_bits = 8 * (double)f->packed_bytes / elems;
    printf("%-30s %7.3f %9.2f %9.2f\n", f->name, plain_bits, f->pack_ns, f->unpack_ns);
    uint8_t *numbers = malloc((size_t)f->packed_bytes);
    int64_t n = numbers_of(f, numbers);
    double scale_bits = plain_bits - 8 * (double)n / elems;
    printf("  %-28s %7.3f\n", "entropy of all its bytes",
           entropy_bits(numbers, n) / elems + scale_bits);
    for (size_t i = 0; i < sizeof coder / sizeof *coder; i++) {
        struct coded c = code(numbers, n, coder[i].level);
        print_coded(coder[i].name, &c, scale_bits, plain_bits);
    }
    free(numbers);
}

/* ---- gradients ---- */

static struct form forms[] = {
    {.name = "int8, largest / 127",
     .is_kernel = true,
     .block_elems = COMPRESS_BLOCK,
     .block_bytes = COMPRESS_BLOCK_BYTES,
     .scale_bytes = 4},
    {.name = "int8, 16 rms / 127", .quant = GRAD_QUANT_KIND_INT8_RMS},
    {.name = "int4, largest / 7", .quant = GRAD_QUANT_KIND_INT4},
};
#define FORMS_N (sizeof forms / sizeof *forms)

static void open_forms(int64_t elems)
{
    here.elems = elems;
    here.unpacked = malloc((size_t)elems * sizeof *here.unpacked);
    for (struct form *f = forms; f < forms + FORMS_N; f++) {
        struct grad_quant_block b = grad_quant_block(f->quant);
        if (!f->is_kernel) {
            f->block_elems = b.elems;
            f->block_bytes = b.bytes;
            f->scale_bytes = b.scale_bytes;
        }
        f->packed_bytes = (elems + f->block_elems - 1) / f->block_elems * f->block_bytes;
        f->packed = malloc((size_t)f->packed_bytes);
        f->residual = calloc((size_t)elems, sizeof *f->residual);
    }
}

static void run(const struct setting *s, struct step *step, const struct feed *feed)
{
    struct step_result r = {0};
    open_forms(step_own_table(step)->total_elems);
    for (int64_t i = 0; i < s->steps; i++) {
        if (step_run(step, feed, i, i * s->b, 1e-3, false, &r) != ST_OK ||
            step_drain(step) != ST_OK)
            die("a step");
        const float *grads = step_grads(step).data;
        for (struct form *f = forms; f < forms + FORMS_N && i >= s->steps - FEEDBACK_STEPS; f++) {
            if (i < s->steps - 1)
                pack(f, grads, f->residual);
            else
                time_packing(f, grads);
        }
    }
    printf("%s, B=%lld T=%lld, %s, step %lld: loss %.3f, %lld elements\n", s->model,
           (long long)s->b, (long long)s->t, feed_name(feed), (long long)s->steps, r.loss,
           (long long)here.elems);
    printf("%-30s %7s %9s %9s %9s\n", "ns: of one core, an element", "bits", "pack ns", "unpack ns",
           "pays, Mb/s");
    for (size_t i = 0; i < FORMS_N; i++)
        print_form(&forms[i]);
}

static enum status measure(const struct setting *s, struct dev *dev)
{
    struct step_config c = {
        .dev = dev,
        .batch_samples = s->b,
        .global_samples = s->b,
        .seq_tokens = s->t,
        .seed = 1,
        .optim = {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .grad_clip = 1}};
    struct step *step = NULL;
    struct feed *feed = NULL;
    if (!model_preset(s->model, &c.dims))
        return FAIL(ST_BAD_SETTING, "MODEL=%s: name a preset", s->model);
    struct feed_config fc = {.data = s->data,
                             .cache_dir = "/tmp",
                             .seq_tokens = s->t,
                             .global_samples = s->b,
                             .vocab = c.dims.vocab,
                             .seed = 1,
                             .is_shuffled = true};
    TRY(feed_open(&fc, &feed));
    TRY(step_open(&c, &step));
    run(s, step, feed);
    step_close(step);
    feed_close(feed);
    return ST_OK;
}

int main(int argc, char **argv)
{
    struct setting s = {
        .model = "gpt2-nano", .data = FEED_SYNTHETIC, .steps = 20, .b = 4, .t = 256};
    struct {
        const char *name;
        int64_t *value, min, max;
    } row[] = {
        {"STEPS=", &s.steps, FEEDBACK_STEPS, 10000}, {"B=", &s.b, 1, 64}, {"T=", &s.t, 1, 1024}};
    for (int i = 1; i < argc; i++) {
        bool is_known = text_starts(argv[i], "MODEL=") || text_starts(argv[i], "DATA=");
        if (text_starts(argv[i], "MODEL="))
            s.model = argv[i] + 6;
        if (text_starts(argv[i], "DATA="))
            s.data = argv[i] + 5;
        for (size_t k = 0; k < sizeof row / sizeof *row; k++)
            is_known |= text_starts(argv[i], row[k].name) &&
                        text_parse_i64(argv[i] + strlen(row[k].name), row[k].min, row[k].max,
                                       row[k].value) == TEXT_OK;
        if (!is_known)
            return printf("%s is not known\n", argv[i]), 64;
    }
    if (dev_cpu_open(1, CPU_ISA_N, &here.dev) != ST_OK ||
        dev_stream_open(here.dev, &here.stream) != ST_OK || measure(&s, here.dev) != ST_OK)
        die("start");
    dev_stream_close(here.stream);
    dev_close(here.dev);
    return 0;
}
