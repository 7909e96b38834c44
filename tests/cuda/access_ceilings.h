/* access_ceilings — what a kernel's accesses to memory may cost, one row for each operation.
 * Included by test_access.c only. Must not know how the figures are measured. */
#ifndef CONVOY_TESTS_CUDA_ACCESS_CEILINGS_H
#define CONVOY_TESTS_CUDA_ACCESS_CEILINGS_H

#include "tests/cuda/access.h"

/* The ceilings of each operation, as multiples of the least: transactions of shared memory and
 * sectors of the worst of its kernels; bytes read and written by all of them together. `why` says
 * what the figures above 1.1 are spent on. Rows are tightened when a kernel becomes better. */
struct ceiling {
    const char *what;
    double transactions, sectors, read, written;
    const char *why;
};
static const struct ceiling ceilings[] = {
    {"norm_fwd", 1, 1, 1.01, 1.05, ""},
    {"norm_bwd", 1, 1.09, 1.19, 1.95, "sums of a block of 8 rows, in two stores a sector"},
    {"norm_fwd rms", 1, 1, 1, 1.02, ""},
    {"norm_bwd rms", 1, 1.05, 1.09, 1.48, "sums of a block of 8 rows"},
    {"head_norm_fwd", 1, 1, 1, 1, ""},
    {"head_norm_bwd", 1.5, 1, 1.06, 1.13, "sums of a block, eight floats a lane"},
    {"rope_table", 1, 1, 1, 1, ""},
    {"rope", 1, 1.09, 1.17, 1, "sixteen floats of the table a lane, in four loads"},
    {"swiglu_fwd", 1, 1, 1, 1, ""},
    {"swiglu_bwd", 1, 1, 1, 1, ""},
    {"relu2_fwd", 1, 1, 1, 1, ""},
    {"relu2_bwd", 1, 1, 1, 1, ""},
    {"softcap", 1, 1, 1, 1, ""},
    {"xent", 1, 1.01, 1.02, 1.01, ""},
    {"xent f32", 1, 1.01, 2.02, 1.01, "a row too long for the chip is read twice"},
    {"xent_shard", 1, 1.01, 1.02, 3.34, "three floats of a row in a sector or two"},
    {"xent_join", 1, 1.01, 1.02, 1.01, ""},
    {"qa_xent", 1, 1.95, 4.3, 2.05, "every second element of a row, twice"},
    {"embed_fwd", 1, 1.01, 1.35, 1.01, "a position's row for each sample"},
    {"embed_bwd", 1, 4.8, 1.7, 1.04, "dx once for each sum; lists of tokens in any order"},
    {"gelu_fwd", 1, 1, 1, 1, ""},
    {"gelu_bwd", 1, 1, 1, 1, ""},
    {"gelu_fwd erf", 1, 1, 1, 1, ""},
    {"gelu_bwd erf", 1, 1, 1, 1, ""},
    {"drop", 1, 1, 1, 1, ""},
    {"branch_add", 1, 1, 1, 1, ""},
    {"cast", 1, 1, 1, 1, ""},
    {"copy_2d", 1, 1, 1, 1, ""},
    {"combine", 1, 1, 1, 1, ""},
    {"sum", 1, 1, 1.01, 37, "of 8 bytes: a sum of each block first"},
    {"sumsq", 1, 1, 1.01, 37, "of 8 bytes: a sum of each block first"},
    {"checksum", 1, 1, 1, 2, "of 16 bytes: each block adds its sums"},
    {"compress", 1, 1.1, 1, 1.25, "blocks of 260 bytes begin anywhere in a sector"},
    {"expand", 1, 1.2, 2.9, 1, "the scale of a block for each warp, one byte a lane"},
    {"adamw", 1, 1, 1, 1, ""},
    {"adamw with sums", 1, 1, 1, 1, ""},
    {"sgd", 1, 4, 4, 4, "four elements a thread, one by one"},
    {"matmul_fwd", 1.34, 1, 3, 1, "tiles of x and w for each tile of y"},
    {"matmul_bwd_x", 1.21, 1, 1.34, 1, "tiles"},
    {"matmul_bwd_w", 1.21, 1, 2.03, 1.04, "tiles; dy again for db"},
    {"attention_fwd", 1.01, 1, 1.34, 1.06, "tiles of keys for each tile of queries"},
    {"attention_bwd", 1, 2, 3.25, 2.7, "tiles; dq in float scratch"},
};

static struct ceiling ceiling_of(const char *what)
{
    for (size_t i = 0; i < sizeof ceilings / sizeof *ceilings; i++)
        if (strcmp(ceilings[i].what, what) == 0)
            return ceilings[i];
    fail_msg("no ceiling of %s", what);
    return ceilings[0];
}

#endif
