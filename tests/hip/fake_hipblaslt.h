/* fake_hipblaslt — makes hipBLASLt of the tests' cuBLASLt (tests/cuda/fake_blas.c): its names, and
 * its numbers of tests/hip/hipblaslt.def. Other attributes are invalid. Unlike cuBLASLt it has no
 * bias gradient for results that are wider than the factors, and TF32 only if EMULATED_CHIP is
 * gfx942: examples of refusals, because the real rules are not known here.
 *
 *   FAKE_VERSION, FAKE_LACKS, FAKE_RUNTIME   an old version, a missing function, an own runtime
 *   FAKE_BLAS_COUNTS   a file to which the library writes its counts when the program ends */
#ifndef CONVOY_TESTS_FAKE_HIPBLASLT_H
#define CONVOY_TESTS_FAKE_HIPBLASLT_H
#include <stdint.h>
#include <stdio.h>

#define NUMBER(name, value) name = value,
#define SIZE(type, bytes) type##_bytes = bytes,
enum {
#include "hipblaslt.def"
};
#undef NUMBER
#undef SIZE
struct hip_algo {
    uint8_t data[16];
    size_t max_workspace_bytes;
};
struct hip_result {
    struct hip_algo algo;
    size_t workspaceSize;
    int state;
    float wavesCount;
    int reserved[4];
};
_Static_assert(sizeof(struct hip_algo) == hipblasLtMatmulAlgo_t_bytes, "as in hipblaslt.def");
_Static_assert(sizeof(struct hip_result) == hipblasLtMatmulHeuristicResult_t_bytes, "as there");
#define cublasLtMatmulAlgo_t struct hip_algo
#define cublasLtMatmulHeuristicResult_t struct hip_result

#define cublasLtCreate hipblasLtCreate
#define cublasLtDestroy hipblasLtDestroy
#ifdef FAKE_LACKS
#define cublasLtMatmul hip_has_no_Matmul
#else
#define cublasLtMatmul hipblasLtMatmul
#endif
#define cublasLtMatmulAlgoCheck hip_has_no_AlgoCheck
#define cublasLtMatmulAlgoGetHeuristic hipblasLtMatmulAlgoGetHeuristic
#define cublasLtMatmulDescCreate hipblasLtMatmulDescCreate
#define cublasLtMatmulDescDestroy hipblasLtMatmulDescDestroy
#define cublasLtMatmulDescSetAttribute hipblasLtMatmulDescSetAttribute
#define cublasLtMatmulPreferenceCreate hipblasLtMatmulPreferenceCreate
#define cublasLtMatmulPreferenceDestroy hipblasLtMatmulPreferenceDestroy
#define cublasLtMatmulPreferenceSetAttribute hipblasLtMatmulPreferenceSetAttribute
#define cublasLtMatrixLayoutCreate hipblasLtMatrixLayoutCreate
#define cublasLtMatrixLayoutDestroy hipblasLtMatrixLayoutDestroy

#define CUBLAS_STATUS_SUCCESS ((cublasStatus_t)HIPBLAS_STATUS_SUCCESS)
#define CUBLAS_STATUS_INVALID_VALUE ((cublasStatus_t)HIPBLAS_STATUS_INVALID_VALUE)
#define CUBLAS_STATUS_EXECUTION_FAILED ((cublasStatus_t)HIPBLAS_STATUS_EXECUTION_FAILED)
#define CUBLAS_STATUS_NOT_SUPPORTED ((cublasStatus_t)HIPBLAS_STATUS_NOT_SUPPORTED)
#define CUBLAS_OP_N ((cublasOperation_t)HIPBLAS_OP_N)
#define CUBLAS_OP_T ((cublasOperation_t)HIPBLAS_OP_T)
#define CUBLAS_COMPUTE_32F ((cublasComputeType_t)HIPBLAS_COMPUTE_32F)
#define CUBLAS_COMPUTE_32F_FAST_TF32 ((cublasComputeType_t)HIPBLAS_COMPUTE_32F_FAST_TF32)
#define CUDA_R_32F ((cudaDataType_t)HIP_R_32F)
#define CUDA_R_16F ((cudaDataType_t)HIP_R_16F)
#define CUDA_R_16BF ((cudaDataType_t)HIP_R_16BF)
#define CUBLASLT_EPILOGUE_DEFAULT ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_DEFAULT)
#define CUBLASLT_EPILOGUE_BIAS ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_BIAS)
#define CUBLASLT_EPILOGUE_GELU ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_GELU)
#define CUBLASLT_EPILOGUE_GELU_BIAS ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_GELU_BIAS)
#define CUBLASLT_EPILOGUE_GELU_AUX ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_GELU_AUX)
#define CUBLASLT_EPILOGUE_GELU_AUX_BIAS ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_GELU_AUX_BIAS)
#define CUBLASLT_EPILOGUE_DGELU ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_DGELU)
#define CUBLASLT_EPILOGUE_BGRADA ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_BGRADA)
#define CUBLASLT_EPILOGUE_BGRADB ((cublasLtEpilogue_t)HIPBLASLT_EPILOGUE_BGRADB)
#define CUBLASLT_MATMUL_DESC_TRANSA HIPBLASLT_MATMUL_DESC_TRANSA
#define CUBLASLT_MATMUL_DESC_TRANSB HIPBLASLT_MATMUL_DESC_TRANSB
#define CUBLASLT_MATMUL_DESC_EPILOGUE HIPBLASLT_MATMUL_DESC_EPILOGUE
#define CUBLASLT_MATMUL_DESC_BIAS_POINTER HIPBLASLT_MATMUL_DESC_BIAS_POINTER
#define CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE
#define CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER
#define CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD
#define CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES HIPBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES
#endif
