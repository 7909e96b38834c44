/* dev_cuda — an NVIDIA GPU as a device: the CUDA runtime from C, and the launchers of
 * kernels/cuda.h as its operations.
 *
 * Always there; in a program built without CUDA every call says so. Nothing of NVIDIA's is touched
 * before the first call. */
#ifndef CONVOY_DEV_DEV_CUDA_H
#define CONVOY_DEV_DEV_CUDA_H

#include "dev/dev.h"

/* dev_cuda_built — what is built in, for people: "13.0: sm_80 sm_90a sm_100, PTX 100"; NULL:
 * nothing. */
const char *dev_cuda_built(void);
/* dev_cuda_count — how many GPUs this process may use (≥ 1). ST_NO_DEVICE: none, and why: what is
 * missing and who has it; ST_FAULT: a GPU that answers with an error. Starts the driver; a process
 * that only waits should not call it. */
enum status dev_cuda_count(int *count_out);
/* dev_cuda_blas — cuBLASLt as it would be opened here, with or without a GPU: version and path;
 * ST_NO_DEVICE: why not. */
enum status dev_cuda_blas(char *about, size_t cap);
/* dev_cuda_open — GPU number device_i of those. is_tf32: products of f32 tensors may round their
 * factors to tf32. Fails as dev_cuda_count, and ST_RETRY when its memory is taken. */
enum status dev_cuda_open(int device_i, bool is_tf32, struct dev **out);

#endif
