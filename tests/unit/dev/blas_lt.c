/* blas_lt — the numbers of hipBLASLt in src/dev/blas/lt.c, against those of its header by name. */
#include "harness.h"

#include "dev/blas/lt.h"

#define NUMBER(name, value) name = value,
#define SIZE(type, bytes) type##_bytes = bytes,
enum {
#include "tests/hip/hipblaslt.def"
};

TEST(numbers_of_hipblaslt)
{
    const struct blas_lt_numbers want = {
        .compute = {HIPBLAS_COMPUTE_32F, HIPBLAS_COMPUTE_32F_FAST_TF32},
        .transpose = {HIPBLAS_OP_N, HIPBLAS_OP_T},
        .trans_a = HIPBLASLT_MATMUL_DESC_TRANSA,
        .trans_b = HIPBLASLT_MATMUL_DESC_TRANSB,
        .epilogue = HIPBLASLT_MATMUL_DESC_EPILOGUE,
        .bias = HIPBLASLT_MATMUL_DESC_BIAS_POINTER,
        .bias_type = HIPBLASLT_MATMUL_DESC_BIAS_DATA_TYPE,
        .aux = HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        .aux_ld = HIPBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
        .invalid_value = HIPBLAS_STATUS_INVALID_VALUE,
        .execution_failed = HIPBLAS_STATUS_EXECUTION_FAILED,
        .not_supported = HIPBLAS_STATUS_NOT_SUPPORTED,
        .algo_bytes = hipblasLtMatmulAlgo_t_bytes,
        .version_unit = 100000};
    assert_memory_equal(blas_lt_numbers(true), &want, sizeof want);
    /* the rest of a result is as large as cuBLASLt's: 96 bytes with an algorithm of 64 */
    assert_int_equal(hipblasLtMatmulHeuristicResult_t_bytes - hipblasLtMatmulAlgo_t_bytes, 96 - 64);
}

HARNESS_RUN_ALL()
