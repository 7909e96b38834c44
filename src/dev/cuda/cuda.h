/* dev_cuda — opens a GPU as a device: memory and streams through the vendor's runtime, CUDA or HIP,
 * operations through the launchers of kernels/cuda.h.
 *
 * In a program that was built without the vendor's runtime every function returns ST_NO_DEVICE with
 * that message. No library of a vendor is loaded before the first call. Must not know models or
 * ranks. */
#ifndef CONVOY_DEV_DEV_CUDA_H
#define CONVOY_DEV_DEV_CUDA_H

#include "dev/dev.h"

/* dev_cuda_built — returns the CUDA version and the chips that the program was built for, for
 * users: "13.0: sm_80 sm_90a sm_100, PTX 100". NULL: built without CUDA. */
const char *dev_cuda_built(void);

/* Returns the first release of NVIDIA's driver on which this build runs, such as 580; 0: built
 * without CUDA. */
int dev_cuda_driver_least(void);

/* dev_cuda_choose — chooses the vendor of the GPUs of this process. ST_NO_DEVICE: this program was
 * built without it. Call it before the functions below. */
enum dev_gpu { DEV_GPU_CUDA, DEV_GPU_HIP };
enum status dev_cuda_choose(enum dev_gpu vendor);
/* dev_cuda_chosen — returns the vendor that was chosen; at first CUDA. */
enum dev_gpu dev_cuda_chosen(void);
/* dev_hip_built — returns the chips of AMD that this program has code for, "gfx90a gfx942"; NULL:
 * built without HIP. */
const char *dev_hip_built(void);
/* dev_hip_find — writes version and path of AMD's runtime. ST_NO_DEVICE: there is none, with the
 * reason. */
enum status dev_hip_find(char *about, size_t cap);
/* dev_hip_function — returns the address of hipGetDevice in the loaded runtime of AMD; NULL: none
 * is loaded. */
const void *dev_hip_function(void);

/* dev_cuda_count — counts the GPUs that this process may use, ≥ 1. ST_NO_DEVICE: there is none; the
 * message names the missing part and its package. ST_FAULT: a GPU answers with an error. Starts the
 * driver, so a process that does not compute should not call it. */
enum status dev_cuda_count(int *count_out);

/* dev_cuda_blas — writes version and path of the vendor's library for products that a stream would
 * load; needs no GPU. ST_NO_DEVICE: there is none, with the reason. */
enum status dev_cuda_blas(enum dev_gpu vendor, char *about, size_t cap);
/* dev_cuda_blas_name — returns the name of the library of the chosen vendor: "cuBLASLt". */
const char *dev_cuda_blas_name(void);

/* The library for products:
 *   auto    cuBLASLt or hipBLASLt with its epilogues
 *   plain   the same without epilogues: bias, GELU and their gradients by kernels of their own
 *   off     this program's kernels */
enum dev_cuda_blas_kind { DEV_CUDA_BLAS_AUTO, DEV_CUDA_BLAS_PLAIN, DEV_CUDA_BLAS_OFF };
/* dev_cuda_blas_use — chooses the library for products in all streams of this process that are
 * opened afterwards. Serves to find which library causes a difference (CONVOY_BLAS). */
void dev_cuda_blas_use(enum dev_cuda_blas_kind use);

/* dev_cuda_open — opens GPU number device_i, below the count of dev_cuda_count. is_tf32: products
 * of f32 tensors may round their factors to tf32. Fails as dev_cuda_count does, and with ST_RETRY
 * if its memory is in use. */
enum status dev_cuda_open(int device_i, bool is_tf32, struct dev **out);

/* The kernels of attention: this program's or NVIDIA's cuDNN (cudnn.h). auto: cuDNN if the table of
 * cuda/attention.c has the shape and the library is installed, else own. cudnn: always, but for the
 * decoding of one token; a shape that cuDNN cannot compute is ST_BAD_SETTING, and a missing library
 * ST_NO_DEVICE. */
enum dev_cuda_attention {
    DEV_CUDA_ATTENTION_AUTO,
    DEV_CUDA_ATTENTION_OWN,
    DEV_CUDA_ATTENTION_CUDNN
};
/* dev_cuda_attention — chooses the kernels of attention. is_atomic: cuDNN's backward pass adds in
 * any order (cudnn.h), and auto may choose it, too. At first: auto, deterministic. Call it before
 * the device's first operation. */
void dev_cuda_attention(struct dev *dev, enum dev_cuda_attention by, bool is_atomic);

/* The shape of an attention: T tokens, H heads, K key heads, D elements. */
struct dev_cuda_attention_shape {
    int64_t t, h, hk, d;
    enum dtype dtype;
};
/* Returns true if the program's own kernels compute this attention on every chip: by the choice, or
 * because no row of the table has its type and shape. Also in builds without CUDA, for plans. */
bool dev_cuda_attention_is_own(enum dev_cuda_attention by, bool is_atomic, bool is_backward,
                               const struct dev_cuda_attention_shape *shape);
/* Returns the bytes of a device that a stream allocates in addition to CUDA_SCRATCH_BYTES if cuDNN
 * computes the backward pass of this shape: the scratch of one sample, if that is more. 0: it is
 * not more, or cuDNN computes this shape on no chip. Also in builds without CUDA, for plans. */
int64_t dev_cuda_attention_bytes(enum dev_cuda_attention by, bool is_atomic,
                                 const struct dev_cuda_attention_shape *shape);
/* dev_cuda_attention_find — writes version and path of the cuDNN that a stream would load, like
 * dev_cuda_blas. */
enum status dev_cuda_attention_find(char *about, size_t cap);

#endif
