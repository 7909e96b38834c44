/* Attention of one rank on the emulation of CUDA: the tests of the CPU's kernels
 * (emulated.h). */
#include "kernels/attention_sample.h"
#include "kernels/cuda.h"

/* Sample by sample, as the device does it. */
static int apart_attention_fwd(const struct cuda *cuda, const struct attention_fwd *a)
{
    int rc = 0;
    if (!attention_is_by_sample(&a->dropout, a->heads_whole))
        return attention_fwd_cuda(cuda, a);
    for (int64_t b = 0; rc == 0 && b < a->b; b++) {
        struct attention_fwd one = attention_fwd_sample(a, b);
        rc = attention_fwd_cuda(cuda, &one);
    }
    return rc;
}
static int apart_attention_bwd(const struct cuda *cuda, const struct attention_bwd *a)
{
    int rc = 0;
    if (!attention_is_by_sample(&a->dropout, a->heads_whole))
        return attention_bwd_cuda(cuda, a);
    for (int64_t b = 0; rc == 0 && b < a->b; b++) {
        struct attention_bwd one = attention_bwd_sample(a, b);
        rc = attention_bwd_cuda(cuda, &one);
    }
    return rc;
}
#define attention_fwd_cuda apart_attention_fwd
#define attention_bwd_cuda apart_attention_bwd
#include "tests/cuda/emulated.h"

#include "tests/kernels/test_attention_ranks.c"
