/* real_cudnn — compares cuDNN's attention with the program's own, operation by operation, on
 * the same inputs. So a training run that differs with ATTENTION=cudnn has the name of the first
 * operation and result that does. TAP on stdout; the log on stderr has cuDNN's version and engines.
 *
 * Limits of the normalized mean square error: both sides round probabilities and results to bf16,
 * and tests/cuda/test_attention.c allows one side 4e-5 of the exact result; two independent errors
 * of that size are 1.6e-4 apart at most. lse is a float on both sides. A missing tile, head or
 * scale is an error of more than 1e-3. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "dev/dev.h"
#include "dev/cuda/cuda.h"
#include "kernels/bf16.h"
#include "real.h"

/* CUDNN_DRY: the smallest sizes, on the emulation (tests/cuda/test_cudnn_compare_cuda.c). */
#ifdef CUDNN_DRY
enum { B = 2, T = 40, H = 2, D = 64 };
#else
enum { B = 4, T = 1024, H = 12, D = 64 };
#endif
enum { C = H * D, ROWS = B * T, LSES = B * H * T };
#define LIMIT_16 1.6e-4
#define LIMIT_LSE 1e-8

static int tests_n, failed_n;

static void must(enum status st, const char *what)
{
    if (st == ST_OK)
        return;
    printf("Bail out! %s: %s\n", what, status_message());
    exit(1);
}

/* Host copies of the tensors of both directions; numbers of 16 bits are bf16. */
struct numbers {
    uint16_t qkv[ROWS * 3 * C], dout[ROWS * C], out[ROWS * C], dqkv[ROWS * 3 * C];
    float lse[LSES];
};

/* A device with its own choice of attention, and the same tensors there. */
struct side {
    struct dev *dev;
    struct stream *stream;
    struct numbers *at;
};

static void side_open(struct side *x, enum dev_cuda_attention by)
{
    void *memory = NULL;
    must(dev_cuda_open(0, false, &x->dev), "the GPU");
    dev_cuda_attention(x->dev, by, false);
    must(dev_stream_open(x->dev, &x->stream), "a stream");
    must(dev_alloc(x->dev, sizeof *x->at, &memory), "memory");
    x->at = memory;
}

static void side_close(struct side *x)
{
    dev_free(x->dev, x->at, sizeof *x->at);
    dev_stream_close(x->stream);
    dev_close(x->dev);
}

static void copy(const struct side *x, void *to, const void *from, size_t bytes)
{
    must(dev_copy(x->stream, to, from, bytes), "a copy");
    must(dev_sync(x->stream), "a copy");
}

static struct tensor bf16(uint16_t *data) { return (struct tensor){data, DTYPE_BF16}; }

/* forward, backward — Run one direction and copy its results to `host`. */
static void forward(const struct side *x, struct numbers *host)
{
    const struct attention_fwd a = {.out = bf16(x->at->out),
                                    .lse = {x->at->lse, DTYPE_F32},
                                    .qkv = bf16(x->at->qkv),
                                    .b = B,
                                    .t = T,
                                    .h = H,
                                    .hk = H,
                                    .d = D};
    must(dev_op(x->dev)->attention_fwd(x->stream, &a), "attention_fwd");
    copy(x, host->out, x->at->out, sizeof host->out);
    copy(x, host->lse, x->at->lse, sizeof host->lse);
}

static void backward(const struct side *x, struct numbers *host)
{
    const struct attention_bwd a = {.dqkv = bf16(x->at->dqkv),
                                    .dout = bf16(x->at->dout),
                                    .out = bf16(x->at->out),
                                    .qkv = bf16(x->at->qkv),
                                    .lse = {x->at->lse, DTYPE_F32},
                                    .b = B,
                                    .t = T,
                                    .h = H,
                                    .hk = H,
                                    .d = D};
    must(dev_op(x->dev)->attention_bwd(x->stream, &a), "attention_bwd");
    copy(x, host->dqkv, x->at->dqkv, sizeof host->dqkv);
}

static void report(const char *what, double error, double power, double limit)
{
    double nmse = power > 0 ? error / power : error;
    int is_ok = nmse <= limit;
    printf("%s %d - %s: nmse %.2g, allowed %.2g\n", is_ok ? "ok" : "not ok", ++tests_n, what, nmse,
           limit);
    failed_n += !is_ok;
}

/* compare_16 — Compares `columns` numbers of each row, from column `first` on. */
static void compare_16(const char *what, const uint16_t *got, const uint16_t *want, int row,
                       int first, int columns)
{
    double error = 0, power = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = first; j < first + columns; j++) {
            double x = (double)bf16_to_float(got[i * row + j]),
                   y = (double)bf16_to_float(want[i * row + j]);
            error += (x - y) * (x - y);
            power += y * y;
        }
    report(what, error, power, LIMIT_16);
}

static void compare_lse(const float *got, const float *want)
{
    double error = 0, power = 0;
    for (int i = 0; i < LSES; i++) {
        error += ((double)got[i] - (double)want[i]) * ((double)got[i] - (double)want[i]);
        power += (double)want[i] * (double)want[i];
    }
    report("attention_fwd lse", error, power, LIMIT_LSE);
}

/* fill — Numbers of 0.5 to 2 in size, of both signs. */
static void fill(uint16_t *x, int n, uint32_t state)
{
    for (int i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (uint16_t)((state >> 16 & 0x80ffu) | 0x3f00u);
    }
}

int real_cudnn(void)
{
    struct numbers *want = calloc(1, sizeof *want), *got = calloc(1, sizeof *got);
    struct side own, dnn;
    if (!want || !got)
        must(FAIL(ST_RETRY, "out of memory"), "memory");
    fill(want->qkv, ROWS * 3 * C, 1);
    fill(want->dout, ROWS * C, 2);
    side_open(&own, DEV_CUDA_ATTENTION_OWN);
    side_open(&dnn, DEV_CUDA_ATTENTION_CUDNN);
    copy(&own, own.at, want, sizeof *want);
    copy(&dnn, dnn.at, want, sizeof *want);
    forward(&own, want);
    forward(&dnn, got);
    compare_16("attention_fwd out", got->out, want->out, C, 0, C);
    compare_lse(got->lse, want->lse);
    /* The same out and lse for both backward passes. */
    copy(&dnn, dnn.at->out, want->out, sizeof want->out);
    copy(&dnn, dnn.at->lse, want->lse, sizeof want->lse);
    backward(&own, want);
    backward(&dnn, got);
    compare_16("attention_bwd dq", got->dqkv, want->dqkv, 3 * C, 0, C);
    compare_16("attention_bwd dk", got->dqkv, want->dqkv, 3 * C, C, C);
    compare_16("attention_bwd dv", got->dqkv, want->dqkv, 3 * C, 2 * C, C);
    printf("1..%d\n", tests_n);
    side_close(&dnn);
    side_close(&own);
    free(want);
    free(got);
    return failed_n > 0;
}
