#!/bin/bash
# test_ptx — a second front end reads the CUDA kernels: clang makes PTX of each without a warning, and NVIDIA's assembler takes it.
# A sample of the files; COMPILE_ALL=1 (make test-all) all of them. Nothing is run.
. "$(dirname "$0")/../e2e/lib.sh"
build=$(dirname "$convoy")
[ "${SAN:-}" = "" ] || give_up ptx "the kernels are compiled without sanitizers"
there clang-22 || give_up ptx "clang-22 is not installed here; \`make test-all\` installs it where nvcc is"
make -C "$root" -s -n BUILD="$build/clang-ptx" ptx >/dev/null 2>err || give_up ptx "$(sed -n 's/.*\*\*\* ptx: \(.*\)\.  Stop.*/\1/p' err | grep . || cat err)"
# ptx FILE... — the PTX of these files, or of all.
ptx() { make -C "$root" -s -j2 WERROR=1 BUILD="$build/clang-ptx" ${1:+CU="$*"} ptx >out 2>err; }
files=$(cd "$root" && echo kernels/*.cu)
[ -n "${COMPILE_ALL:-}" ] || files="kernels/softcap.cu kernels/cast.cu kernels/rope.cu"
# shellcheck disable=SC2086 # words
ok "clang-22 makes PTX of the kernels without a warning, and ptxas takes it" ptx $files
made=0
for f in $files; do grep -q '\.entry' "$build/clang-ptx/ptx/${f%.cu}.ptx" && [ -s "$build/clang-ptx/ptx/${f%.cu}.cubin" ] && made=$((made + 1)); done
ok "each file has kernels" is "$made" "$(echo "$files" | wc -w)"

# What nvcc accepts and clang warns of, and what only the assembler refuses.
mkdir bad
printf '__global__ void f(float *x)\n{\n#pragma unroll(2)\n    for (int i = 0; i < 8; i++)\n        x[i] = 0;\n}\n' >bad/warns.cu
printf '__global__ void f(int *x)\n{\n    asm volatile("st.global.u33 [%%0], 1;" ::"l"(x));\n}\n' >bad/refused.cu
for f in warns refused; do
    ptx "$PWD/bad/$f.cu"
    ok "bad/$f.cu fails" is "$? $(grep -cE 'error: .*unroll|u33' err | sed 's/[1-9].*/named/')" "2 named"
done
done_testing
