/* access — an operation on the emulation with instrumented kernels: its tensors are known by name,
 * and so is its scratch. For tests/cuda/test_access*.c. */
#ifndef CONVOY_TESTS_ACCESS_H
#define CONVOY_TESTS_ACCESS_H

#include "cuda_test.h"

#include "tests/emu/emu_access.h"

#define ACCESS_SCRATCH ((size_t)4 << 20)

struct run {
    const char *what;
    struct tensor tensors[12];
    int64_t elems[12];
    int n;
    struct cuda cuda;
};

static inline struct run run_begin(const char *what)
{
    struct run r = {.what = what, .cuda = ct_cuda(ACCESS_SCRATCH)};
    emu_seed(0);
    emu_access_begin();
    emu_access_tensor("scratch", r.cuda.scratch, ACCESS_SCRATCH, EMU_ACCESS_OUT);
    return r;
}

/* A tensor of the operation; IN: random numbers, or zeros of types that are not floats. */
static inline struct tensor with(struct run *r, const char *name, int64_t n, enum dtype dtype,
                                 int flags)
{
    bool is_float = dtype == DTYPE_F32 || dtype == DTYPE_BF16;
    float *values =
        is_float && (flags & EMU_ACCESS_IN) ? ct_random(n, (uint64_t)r->n + 1, 1) : NULL;
    struct tensor t = ct_tensor(n, dtype, values);
    free(values);
    if (!is_float)
        memset(t.data, 0, (size_t)n * dtype_bytes(dtype));
    emu_access_tensor(name, t.data, (size_t)n * dtype_bytes(dtype), flags);
    r->elems[r->n] = n;
    return r->tensors[r->n++] = t;
}
#define IN(name, n, dtype) with(&r, name, n, dtype, EMU_ACCESS_IN)
#define OUT(name, n, dtype) with(&r, name, n, dtype, EMU_ACCESS_OUT)
#define CACHED(name, n, dtype) with(&r, name, n, dtype, EMU_ACCESS_IN | EMU_ACCESS_CACHED)

/* run_free — after the launch: mistakes are printed; returns how many there were. */
static inline int run_free(struct run *r)
{
    int n = 0;
    for (; emu_access_report(n); n++)
        print_message("# %s: %s\n", r->what, emu_access_report(n));
    for (int i = 0; i < r->n; i++)
        ct_free(r->tensors[i], r->elems[i]);
    ct_cuda_free(&r->cuda);
    return n;
}

#endif
