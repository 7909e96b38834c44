#!/bin/bash
# test_objects — clang compiles the CUDA sources to code objects for gfx90a and gfx942 without a warning, and their registers, spills and
# shared memory are no worse than tests/hip/isa.tsv says. A sample of the files; `make isa` compiles all. No AMD GPU is needed, and none runs them.
. "$(dirname "$0")/../e2e/lib.sh"
build=$(dirname "$convoy")/amd # its own folder: the flags are others
[ "${SAN:-}" = "" ] || give_up objects "the kernels are compiled without sanitizers"
# hip TARGET… — made for AMD GPUs, warnings being errors.
hip() { make -C "$root" -s -j2 WERROR=1 CUDA=0 BUILD="$build" HIP_ARCHS="gfx90a gfx942" "$@" >out 2>err; }
hip -n hip || give_up objects "$(sed -n 's/.*\*\*\* hip: \(.*\)\.  Stop.*/\1/p' err | grep . || cat err)"

sample="compress softcap"
objects=
for f in $sample; do objects="$objects $build/hip/gfx90a/kernels/$f.co $build/hip/gfx942/kernels/$f.co"; done
# shellcheck disable=SC2086 # words
ok "clang compiles $sample for both chips without a warning" hip $objects

# The chip in the header of an object: e_flags, at byte 48.
chip() { od -An -tx1 -j48 -N1 "$build/hip/$1/kernels/$2.co" | tr -d ' '; }
ok "each object is for its chip" is "$(chip gfx90a softcap) $(chip gfx942 softcap)" "3f 4c"

# shellcheck disable=SC2086
"$root/tests/cuda/sass.pl" remarks ${objects//.co/.usage} >new.tsv
{ sed -n 2p "$root/tests/hip/isa.tsv"; grep -E "^(${sample// /|})	" "$root/tests/hip/isa.tsv"; } >old.tsv
ok "no kernel has more spills or stack, or fewer wavefronts, than tests/hip/isa.tsv" "$root/tests/cuda/sass.pl" compare old.tsv new.tsv
awk -F'\t' -v OFS='\t' 'NR == 2 { $6 = 4 } 1' new.tsv >spills.tsv
"$root/tests/cuda/sass.pl" compare old.tsv spills.tsv >out
ok "a spill fails" is "$? $(grep -c 'spill 4, more than 0' out)" "1 1"

# Products of matrix instructions: matmul in assembly, by the command that compiles its object.
hip -n "$build/hip/gfx90a/kernels/matmul.co"
assemble=$(grep -o 'clang.* -c -o [^ ]* kernels/matmul.cu' out | sed 's/ -c -o [^ ]* / -S -o '"${PWD//\//\\/}"'\/matmul.s /')
(cd "$root" && eval "$assemble") 2>err
ok "matmul multiplies bf16, f16 and floats by matrix instructions" \
    is "$(grep -oE 'v_mfma_f32_16x16x(16bf16_1k|16f16|4f32)' matmul.s | sort -u | tr '\n' ' ')" \
    "v_mfma_f32_16x16x16bf16_1k v_mfma_f32_16x16x16f16 v_mfma_f32_16x16x4f32 "

mkdir -p bad
printf '#include "kernels/common.cuh"\n__global__ void f(int *x)\n{\n    int unused;\n    *x = 0;\n}\n' >bad/warns.cu
make -C "$root" -s WERROR=1 CUDA=0 BUILD="$build" "$build/hip/gfx942/$PWD/bad/warns.co" >out 2>err
ok "a warning fails" is "$? $(grep -c 'error: unused variable' err)" "2 1"
done_testing
