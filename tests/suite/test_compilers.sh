#!/bin/bash
# test_compilers — clang makes the program without a warning, and so does a compiler for aarch64 its objects; the kernels of NEON are
# made by tests/arm/test_neon.sh. A sample of the files; COMPILE_ALL=1 (make test-all) all of them.
. "$(dirname "$0")/../e2e/lib.sh"
build=$(dirname "$convoy")
[ "${SAN:-}" = "" ] || give_up compilers "they are tried without sanitizers"
sample="src/base/isa src/base/thread_pool src/comm/core/sum src/comm/core/sum_cpu src/dev/cpu/cpu src/dev/cpu/isa src/node/worker/worker kernels/cast kernels/norm"
# objects FOLDER COMPILER SETTING… — without a warning; the folder stays, so a later run makes what changed.
objects() {
    local folder=$build/$1 cc=$2 what=objects f
    shift 2
    if [ -z "${COMPILE_ALL:-}" ]; then
        what=
        for f in $sample; do what="$what $folder/$f.o"; done
    fi
    make -C "$root" -s -j2 CC="$cc" WERROR=1 DEBUG_INFO= CUDA=0 BUILD="$folder" "$@" $what >out 2>err
}
if there clang; then
    ok "clang makes the objects without a warning" objects clang clang
    if [ -n "${COMPILE_ALL:-}" ]; then
        make -C "$root" -s -j2 CC=clang WERROR=1 DEBUG_INFO= CUDA=0 BUILD="$build/clang" all >out 2>err
        ok "and the program" is "$? $("$build/clang/convoy" version | sed -n 1p)" "0 $("$convoy" version | sed -n 1p)"
        run $tiny STEPS=5 METRICS_FILE=gcc.jsonl
        usual=$convoy
        convoy=$build/clang/convoy
        run $tiny STEPS=5 METRICS_FILE=clang.jsonl
        convoy=$usual
        ok "which trains to the same losses" near gcc.jsonl clang.jsonl 1e-6
    else
        skip "and the program" "COMPILE_ALL=1 makes it"
    fi
    if grep -q sm_ "$build/cuda.txt"; then
        make -C "$root" -s CC=clang WERROR=1 DEBUG_INFO= BUILD="$build/clang-cuda" "$build"/clang-cuda/src/dev/{cuda/cuda,cuda/event,cuda/graph,blas/blas}.o >out 2>err
        ok "with CUDA's headers, too" is $? 0
    else
        skip "with CUDA's headers, too" "there is no nvcc"
    fi
else
    skip "clang" "not installed here; \`make test-all\` installs it"
fi
arm=aarch64-linux-gnu-gcc
if there $arm && [ -d /usr/aarch64-linux-gnu/include ]; then
    # The libraries' headers of this machine do: the few that differ are of machines of the same width.
    ok "$arm makes the objects without a warning" objects aarch64 "$arm -idirafter /usr/include/$(gcc -dumpmachine)" LEVELS= AMX=
    ok "they are aarch64's" is "$(LC_ALL=C readelf -h "$build/aarch64/src/dev/cpu/isa.o" | grep -c AArch64)" 1
else
    skip "aarch64" "gcc-aarch64-linux-gnu is not installed here; \`make test-all\` installs it"
fi
done_testing
