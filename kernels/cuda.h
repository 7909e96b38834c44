/* cuda — the arguments that every CUDA kernel gets besides its own, and the prototypes of all
 * launchers. For C and C++; includes nothing of the CUDA toolkit, so the tests run the same
 * launchers on an emulation (tests/emu).
 *
 * A family's norm.cu has device kernels and, for each operation, one launcher norm_fwd_cuda(), with
 * the arguments of the CPU kernel but addresses on the device. A launcher
 *   checks shapes and element types, puts kernels on cuda->stream and returns immediately
 *   never allocates, never waits and never reads device memory
 *   may run while the stream is captured
 *   cuts work that needs more scratch than CUDA_SCRATCH_BYTES into runs that fit, by shape only
 * Each stream that computes has its own scratch. Results depend only on shapes and element types.
 * sm_count may decide how work is spread over the chip, but never the order of a sum. There is one
 * exception: if a chip has little shared memory, attention's backward with heads wider than 64 uses
 * smaller tiles, and so another order. Must not know streams of dev/, models or ranks. */
#ifndef CONVOY_KERNELS_CUDA_H
#define CONVOY_KERNELS_CUDA_H

#include "kernels/op_list.h"

#define CUDA_SCRATCH_BYTES ((size_t)256 << 20)

/* The numbers of an operation that change from step to step while its work stays the same. A
 * launcher reads them from its arguments (step_scalars.h). If struct cuda has `scalars`, kernels
 * read them there when they run, so one CUDA graph of the launches serves every step. */
struct step_scalars {
    uint64_t seed, offset;  /* dropout; seed: also the number of an event (cuda/event.c) */
    float scale[2];         /* xent, xent_join; qa_xent: start, end; grad_scale: the loss scale */
    float lr, m_fix, v_fix; /* adamw: learning rate, 1/(1-βⁿ); sgd: learning rate */
    int32_t is_first;       /* sgd: this is step 1 */
};

struct cuda {
    void *stream; /* cudaStream_t */
    /* numbers of the next operation, on the device; NULL: use the arguments */
    const struct step_scalars *scalars;
    void *scratch; /* on the device, 256-byte aligned; undefined between operations */
    size_t scratch_bytes;
    int sm_count; /* multiprocessors of the device */
    /* shared memory that a block may have; 0: BLOCK_SHARED (common.cuh), enough for any kernel */
    size_t shared_bytes;
    bool is_tf32; /* products of f32 tensors may round factors to tf32 (PRECISION=tf32) */
};

/* The return value of a launcher: 0, a cudaError_t (> 0), or one of these; then nothing was
 * launched. */
enum cuda_refusal {
    CUDA_REFUSAL_DTYPE = -1,   /* the kernel does not have this combination of element types */
    CUDA_REFUSAL_SHAPE = -2,   /* the contract forbids this shape */
    CUDA_REFUSAL_SCRATCH = -3, /* the smallest run of the work does not fit into scratch_bytes */
    CUDA_REFUSAL_SHARED = -4   /* a block does not fit into shared_bytes */
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
