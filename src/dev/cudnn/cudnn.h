/* cudnn — causal attention of kernels/attention.h through NVIDIA's cuDNN 9, if it is installed.
 *
 * q, k and v are read in place, from the rows that the previous product wrote, and lse is kept in
 * the program's own layout; so forward and backward may each be cuDNN's or the program's kernel.
 * The backward pass has two forms (cudnn/graph.h). The deterministic one stores B·H·T·T numbers of
 * 16 bits. The atomic one stores B·H·T·D of f32, and two runs may differ in their last bits. Both
 * also store 2·B·H·T·D numbers of 16 bits if there are fewer key heads than heads. cuDNN works in
 * the caller's scratch, in runs of the largest number of samples that fit. Plans are kept. A struct
 * cudnn belongs to one stream. Only in builds with CUDA. Must not know models or settings. */
#ifndef CONVOY_DEV_CUDNN_H
#define CONVOY_DEV_CUDNN_H

#include <stdbool.h>

#include "base/status.h"
#include "kernels/cuda.h"

struct cudnn;

/* cudnn_find — writes version and path of the library, without a GPU; errors as for cudnn_open. */
enum status cudnn_find(char *about, size_t cap);
/* cudnn_open — opens the library for a stream. ST_NO_DEVICE: the library is missing, with the
 * folders searched, or does not start. */
enum status cudnn_open(void *stream, struct cudnn **out);
void cudnn_close(struct cudnn *c);              /* accepts NULL */
const char *cudnn_about(const struct cudnn *c); /* "9.19.0 from /usr/…"; until it is closed */
/* cudnn_reason — returns the reason why the last call was not done. */
const char *cudnn_reason(const struct cudnn *c);
/* cudnn_how — describes how a call was done: "engine 5, number 1 of 2 proposed, 10 samples at once,
 * 240.0 MiB of workspace". */
const char *cudnn_how(const struct cudnn *c);

/* cudnn_attention_fwd — computes attention with the contract of kernels/attention.h. *is_done
 * false: nothing was submitted to the device. is_captured: the stream is captured; then the plan
 * was made before. ST_FAULT: cuDNN failed when it ran the plan. */
enum status cudnn_attention_fwd(struct cudnn *c, const struct cuda *cuda,
                                const struct attention_fwd *a, bool is_captured, bool *is_done);
/* cudnn_attention_bwd — computes the gradients in the same way. is_atomic: in the atomic form. */
enum status cudnn_attention_bwd(struct cudnn *c, const struct cuda *cuda,
                                const struct attention_bwd *a, bool is_atomic, bool is_captured,
                                bool *is_done);
/* Returns true if cuDNN may compute this call, apart from its memory; if not, cudnn_reason returns
 * the reason. */
bool cudnn_may_bwd(struct cudnn *c, const struct attention_bwd *a, bool is_atomic);

#endif
