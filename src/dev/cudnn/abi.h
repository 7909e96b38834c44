/* cudnn_abi — the numbers and prototypes of cuDNN 9's graph interface that this program uses, so
 * that it builds without cudnn_graph.h. If that header is installed, test_cudnn_real_cuda.c
 * compares each number when it is compiled. DNN_X here is CUDNN_X there. For src/dev/cudnn and its
 * tests. Must not know attention. */
#ifndef CONVOY_DEV_CUDNN_ABI_H
#define CONVOY_DEV_CUDNN_ABI_H

#include <stddef.h>
#include <stdint.h>

#define DNN_LIST(X)                                \
    X(STATUS_NOT_SUPPORTED, 3000)                  \
    X(STATUS_INTERNAL_ERROR, 4000)                 \
    X(STATUS_EXECUTION_FAILED, 5000)               \
    X(DATA_FLOAT, 0)                               \
    X(DATA_HALF, 2)                                \
    X(DATA_INT32, 4)                               \
    X(DATA_BFLOAT16, 9)                            \
    X(DATA_BOOLEAN, 11)                            \
    X(REDUCE_TENSOR_ADD, 0)                        \
    X(REDUCE_TENSOR_MAX, 3)                        \
    X(POINTWISE_ADD, 0)                            \
    X(POINTWISE_MUL, 1)                            \
    X(POINTWISE_DIV, 6)                            \
    X(POINTWISE_SUB, 9)                            \
    X(POINTWISE_EXP, 13)                           \
    X(POINTWISE_LOG, 15)                           \
    X(POINTWISE_IDENTITY, 21)                      \
    X(POINTWISE_CMP_GE, 303)                       \
    X(POINTWISE_GEN_INDEX, 501)                    \
    X(POINTWISE_BINARY_SELECT, 601)                \
    X(HEUR_MODE_A, 3)                              \
    X(NUMERICAL_NOTE_NONDETERMINISTIC, 4)          \
    X(TYPE_HANDLE, 0)                              \
    X(TYPE_DATA_TYPE, 1)                           \
    X(TYPE_BOOLEAN, 2)                             \
    X(TYPE_INT64, 3)                               \
    X(TYPE_VOID_PTR, 6)                            \
    X(TYPE_HEUR_MODE, 8)                           \
    X(TYPE_NUMERICAL_NOTE, 11)                     \
    X(TYPE_POINTWISE_MODE, 14)                     \
    X(TYPE_BACKEND_DESCRIPTOR, 15)                 \
    X(TYPE_REDUCTION_OPERATOR_TYPE, 18)            \
    X(TYPE_CHAR, 24)                               \
    X(BACKEND_POINTWISE_DESCRIPTOR, 0)             \
    X(BACKEND_ENGINE_DESCRIPTOR, 2)                \
    X(BACKEND_ENGINECFG_DESCRIPTOR, 3)             \
    X(BACKEND_ENGINEHEUR_DESCRIPTOR, 4)            \
    X(BACKEND_EXECUTION_PLAN_DESCRIPTOR, 5)        \
    X(BACKEND_OPERATION_POINTWISE_DESCRIPTOR, 13)  \
    X(BACKEND_OPERATIONGRAPH_DESCRIPTOR, 15)       \
    X(BACKEND_VARIANT_PACK_DESCRIPTOR, 16)         \
    X(BACKEND_TENSOR_DESCRIPTOR, 17)               \
    X(BACKEND_MATMUL_DESCRIPTOR, 18)               \
    X(BACKEND_OPERATION_MATMUL_DESCRIPTOR, 19)     \
    X(BACKEND_REDUCTION_DESCRIPTOR, 21)            \
    X(BACKEND_OPERATION_REDUCTION_DESCRIPTOR, 22)  \
    X(BACKEND_OPERATION_RESHAPE_DESCRIPTOR, 31)    \
    X(BACKEND_DEVICEPROP_DESCRIPTOR, 38)           \
    X(ATTR_POINTWISE_MODE, 0)                      \
    X(ATTR_POINTWISE_MATH_PREC, 1)                 \
    X(ATTR_POINTWISE_AXIS, 9)                      \
    X(ATTR_ENGINEHEUR_MODE, 200)                   \
    X(ATTR_ENGINEHEUR_OPERATION_GRAPH, 201)        \
    X(ATTR_ENGINEHEUR_RESULTS, 202)                \
    X(ATTR_ENGINEHEUR_DEVICEPROP, 204)             \
    X(ATTR_ENGINECFG_ENGINE, 300)                  \
    X(ATTR_ENGINECFG_WORKSPACE_SIZE, 303)          \
    X(ATTR_EXECUTION_PLAN_HANDLE, 400)             \
    X(ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 401)      \
    X(ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, 402)     \
    X(ATTR_EXECUTION_PLAN_DEVICEPROP, 407)         \
    X(ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 750) \
    X(ATTR_OPERATION_POINTWISE_XDESC, 751)         \
    X(ATTR_OPERATION_POINTWISE_BDESC, 752)         \
    X(ATTR_OPERATION_POINTWISE_YDESC, 753)         \
    X(ATTR_OPERATION_POINTWISE_TDESC, 758)         \
    X(ATTR_OPERATIONGRAPH_HANDLE, 800)             \
    X(ATTR_OPERATIONGRAPH_OPS, 801)                \
    X(ATTR_TENSOR_BYTE_ALIGNMENT, 900)             \
    X(ATTR_TENSOR_DATA_TYPE, 901)                  \
    X(ATTR_TENSOR_DIMENSIONS, 902)                 \
    X(ATTR_TENSOR_STRIDES, 903)                    \
    X(ATTR_TENSOR_UNIQUE_ID, 906)                  \
    X(ATTR_TENSOR_IS_VIRTUAL, 907)                 \
    X(ATTR_TENSOR_IS_BY_VALUE, 908)                \
    X(ATTR_VARIANT_PACK_UNIQUE_IDS, 1000)          \
    X(ATTR_VARIANT_PACK_DATA_POINTERS, 1001)       \
    X(ATTR_VARIANT_PACK_WORKSPACE, 1003)           \
    X(ATTR_ENGINE_GLOBAL_INDEX, 1301)              \
    X(ATTR_ENGINE_NUMERICAL_NOTE, 1303)            \
    X(ATTR_MATMUL_COMP_TYPE, 1500)                 \
    X(ATTR_OPERATION_MATMUL_ADESC, 1520)           \
    X(ATTR_OPERATION_MATMUL_BDESC, 1521)           \
    X(ATTR_OPERATION_MATMUL_CDESC, 1522)           \
    X(ATTR_OPERATION_MATMUL_DESC, 1523)            \
    X(ATTR_REDUCTION_OPERATOR, 1600)               \
    X(ATTR_REDUCTION_COMP_TYPE, 1601)              \
    X(ATTR_OPERATION_REDUCTION_XDESC, 1610)        \
    X(ATTR_OPERATION_REDUCTION_YDESC, 1611)        \
    X(ATTR_OPERATION_REDUCTION_DESC, 1612)         \
    X(ATTR_OPERATION_RESHAPE_XDESC, 2200)          \
    X(ATTR_OPERATION_RESHAPE_YDESC, 2201)          \
    X(ATTR_DEVICEPROP_JSON_REPRESENTATION, 2702)

#define DNN_VALUE(name, value) DNN_##name = (value),
enum dnn_value { DNN_LIST(DNN_VALUE) };
#undef DNN_VALUE

/* A cudnnStatus_t (0: success), and the types of a descriptor and a handle for a caller. */
typedef int dnn_status;
typedef void *dnn_desc, *dnn_handle;

#define DNN_CALLS(X)                                                                      \
    X(size_t, cudnnGetVersion, (void))                                                    \
    X(size_t, cudnnGetCudartVersion, (void))                                              \
    X(void, cudnnGetLastErrorString, (char *out, size_t cap))                             \
    X(dnn_status, cudnnCreate, (dnn_handle * out))                                        \
    X(dnn_status, cudnnDestroy, (dnn_handle handle))                                      \
    X(dnn_status, cudnnSetStream, (dnn_handle handle, void *stream))                      \
    X(dnn_status, cudnnBackendCreateDescriptor, (int type, dnn_desc *out))                \
    X(dnn_status, cudnnBackendDestroyDescriptor, (dnn_desc desc))                         \
    X(dnn_status, cudnnBackendFinalize, (dnn_desc desc))                                  \
    X(dnn_status, cudnnBackendSetAttribute,                                               \
      (dnn_desc desc, int name, int type, int64_t n, const void *values))                 \
    X(dnn_status, cudnnBackendGetAttribute,                                               \
      (dnn_desc desc, int name, int type, int64_t cap, int64_t *n_out, void *values_out)) \
    X(dnn_status, cudnnBackendExecute, (dnn_handle handle, dnn_desc plan, dnn_desc pack))

struct dnn_table {
#define DNN_ENTRY(result, name, args) result(*name) args;
    DNN_CALLS(DNN_ENTRY)
#undef DNN_ENTRY
};

#endif
