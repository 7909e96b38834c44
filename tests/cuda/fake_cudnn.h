/* fake_cudnn — a plan as a stream keeps it (fake_cudnn.c), and what computes it
 * (fake_cudnn_run.c). */
#ifndef CONVOY_TESTS_FAKE_CUDNN_H
#define CONVOY_TESTS_FAKE_CUDNN_H

#include <stdbool.h>
#include <stddef.h>

#include "dev/cudnn/abi.h"

/* An operation is known by its descriptor. */
#define OP DNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR
#define OM DNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR
#define OR DNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR
#define OV DNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR

#define TENSORS_MAX 40
#define OPS_MAX 32

struct tensor {
    const void *desc; /* while the job is made */
    int64_t dims[4], strides[4];
    int type;
    bool is_virtual, is_out;
    char *at;    /* stored: its memory */
    float value; /* a host's number */
    bool is_host;
};
struct step {
    int type, mode, axis, in[3], in_n, out;
};
/* All that a stream keeps of a plan that was submitted. */
struct job {
    struct tensor tensor[TENSORS_MAX];
    struct step step[OPS_MAX];
    int tensors_n, steps_n;
    char *workspace;
    int64_t workspace_bytes;
};

int fake_cudnn_run(void *arg); /* struct job */

typedef void touch_fn(const char *who, const void *at, size_t bytes, int is_write);
extern touch_fn *fake_cudnn_touch; /* NULL: accesses are not noted */

#endif
