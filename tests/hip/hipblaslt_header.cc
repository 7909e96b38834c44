// hipblaslt_header — compares tests/hip/hipblaslt.def with hipBLASLt's own header, which is C++. Compiled by test_device.sh if the header is
// installed; nothing is run.
#define __HIP_PLATFORM_AMD__ 1
#include <cstddef>
#include <hipblaslt/hipblaslt.h>
#define NUMBER(name, value) static_assert(static_cast<int>(name) == value, #name);
#define SIZE(type, bytes) static_assert(sizeof(type) == bytes, #type);
#include "tests/hip/hipblaslt.def"
static_assert(offsetof(hipblasLtMatmulHeuristicResult_t, workspaceSize) == 24, "after the algorithm");
static_assert(offsetof(hipblasLtMatmulHeuristicResult_t, state) == 32, "as in cuBLASLt");
