/* cuda — what a CUDA kernel is given besides its arguments, and the prototypes of all launchers;
 * for C and C++.
 *
 * A family's `norm.cu` holds device kernels and, for each operation of the family, one launcher
 * norm_fwd_cuda() with the arguments of the CPU truth but addresses on the device. A launcher looks
 * at shapes and dtypes, puts kernels on cuda->stream and returns at once: it never allocates, never
 * waits, never reads device memory, and may run while a graph is captured. Needs nothing of the
 * CUDA toolkit here, so dev_cuda.c and the tests (which run the same launchers on the emulation in
 * tests/emu) include the same header. Scratch has one size, CUDA_SCRATCH_BYTES, taken once for each
 * stream that computes; a launcher whose work needs more cuts the work into runs that fit, by shape
 * alone. Two streams never share scratch. Results depend on shapes and dtypes alone: sm_count may
 * steer how work is spread over the chip, never the order of a sum; shared_bytes makes tiles
 * smaller, and so another order, where a chip has less (attention's backward, heads wider than
 * 64). */
#ifndef CONVOY_KERNELS_CUDA_H
#define CONVOY_KERNELS_CUDA_H

#include "kernels/op_list.h"

#define CUDA_SCRATCH_BYTES ((size_t)256 << 20)

/* What changes from step to step while an operation's work stays the same. A launcher takes it from
 * its arguments (step_scalars.h); where `scalars` of struct cuda is set, its kernels read it there
 * when they run, so that what is captured once serves every step. */
struct step_scalars {
    uint64_t seed, offset;  /* of dropout */
    float scale[2];         /* of xent; of qa_xent: start, end; of grad_scale: the loss scale */
    float lr, m_fix, v_fix; /* of adamw: the rate, 1/(1-βⁿ); of sgd: the rate */
    int32_t is_first;       /* of sgd */
};

struct cuda {
    void *stream; /* cudaStream_t */
    /* of the next operation, on the device; NULL: its arguments say it */
    const struct step_scalars *scalars;
    /* scratch_bytes on the device, 256-byte aligned; its contents mean nothing between operations
     * */
    void *scratch;
    size_t scratch_bytes;
    int sm_count; /* multiprocessors of the device */
    /* of shared memory that a block may ask for; 0: what any kernel wants (227 KiB) */
    size_t shared_bytes;
    bool is_tf32; /* products of float tensors may round their factors to tf32 (PRECISION=tf32) */
};

/* What a launcher returns: 0, a cudaError_t (> 0), or one of these (nothing was launched). */
enum cuda_refusal {
    CUDA_REFUSAL_DTYPE = -1,   /* a combination of element types that this kernel has not */
    CUDA_REFUSAL_SHAPE = -2,   /* a need of the contract is not met */
    CUDA_REFUSAL_SCRATCH = -3, /* the smallest run of the work does not fit into scratch_bytes */
    CUDA_REFUSAL_SHARED = -4   /* …nor a block of it into shared_bytes */
};

#ifdef __cplusplus
extern "C" {
#endif
#define CUDA_DECLARE(name) int name##_cuda(const struct cuda *cuda, const struct name *a);
OP_LIST(CUDA_DECLARE)
#undef CUDA_DECLARE
#ifdef __cplusplus
}
#endif

#endif
