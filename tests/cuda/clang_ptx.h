/* clang_ptx — the intrinsics of CUDA that the kernels use and clang's CUDA headers lack. For
 * tests/suite/test_compilers.sh, which compiles the kernels to PTX with clang. */
#ifndef CONVOY_TESTS_CLANG_PTX_H
#define CONVOY_TESTS_CLANG_PTX_H

__device__ static inline void __stcs(uint4 *to, uint4 v)
{
    asm volatile("st.global.cs.v4.u32 [%0], {%1,%2,%3,%4};" ::"l"(to), "r"(v.x), "r"(v.y), "r"(v.z),
                 "r"(v.w)
                 : "memory");
}
__device__ static inline void __stcs(uint2 *to, uint2 v)
{
    asm volatile("st.global.cs.v2.u32 [%0], {%1,%2};" ::"l"(to), "r"(v.x), "r"(v.y) : "memory");
}
__device__ static inline void __stcs(unsigned *to, unsigned v)
{
    asm volatile("st.global.cs.u32 [%0], %1;" ::"l"(to), "r"(v) : "memory");
}

#endif
