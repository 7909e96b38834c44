#!/bin/bash
# test_device — DEVICE=hip without an AMD GPU: the program with objects of clang inside (build/hip/convoy) over a fake libamdhip64, whose
# kernels run on the emulation with wavefronts of 64 (tests/hip/fake_amdhip64.c). Losses are those of the CPU and of emulated CUDA GPUs.
. "$(dirname "$0")/../e2e/lib.sh"
build=$(dirname "$convoy") cuda=$(dirname "$convoy")/gpu/convoy_emulated
convoy=$build/hip/convoy fake=$build/hip/fake
[ -z "${SAN:-}" ] || give_up "AMD GPUs" "kernels switch stacks, and sanitizers do not support that"
[ -x "$convoy" ] && [ -e "$fake/libamdhip64.so.6" ] ||
    give_up "AMD GPUs" "no $convoy: it needs clang-19, HIP's headers and device libraries, and CUDA's headers (kernels/hip.mk)"
export CONVOY_LIB_DIR=$fake
unset DEVICE JOB_TOKEN FAULT

ok "each call and constant is the one of HIP's header" \
    gcc -fsyntax-only -Wall -Werror -std=c11 -I"$root/src" -I"$root" "$root/tests/hip/headers.c"
ok "the program needs no library of AMD to start" is "$(readelf -d "$convoy" | grep -c amdhip)" 0
ok "version names the chips" sh -c "'$convoy' version gpu | grep -q '^hip  *gfx90a'"

# losses_of FILE SETTING… — the losses of a run on the fake.
losses_of() { run "${@:2}" METRICS_FILE="$1"; }
gpt2="$tiny STEPS=6 DROPOUT=0.1"
modern="$tiny STEPS=4 MODEL=gpt2-modern-nano"
losses_of hip.jsonl $gpt2 PRECISION=fp32 DEVICE=hip
ok "GPT-2 in fp32 trains" is "$rc" 0
ok "the log names device and kernels" says "products by the program's own kernels without matrix instructions"
ok "repeated work runs as graphs" says "repeated work is submitted to the GPU as CUDA graphs"
losses_near hip.jsonl 1e-5 "GPT-2 in fp32 has the losses of the CPU" $gpt2 PRECISION=fp32 DEVICE=cpu
losses_near hip.jsonl 1e-5 "without graphs, too" $gpt2 PRECISION=fp32 DEVICE=hip CUDA_GRAPH=off
losses_near hip.jsonl 1e-5 "DEVICE=auto finds the GPU" $gpt2 PRECISION=fp32 DEVICE=auto
ok "and uses it" says "hip 0 Emulated 0"
losses_of bf16.jsonl $gpt2 PRECISION=bf16 DEVICE=hip
losses_of modern.jsonl $modern PRECISION=bf16 DEVICE=hip
ok "the modern GPT-2 in bf16 trains" is "$rc" 0
if [ -x "$cuda" ]; then
    hip=$convoy convoy=$cuda
    losses_near hip.jsonl 1e-5 "GPT-2 in fp32 has the losses of emulated CUDA GPUs" $gpt2 PRECISION=fp32 DEVICE=cuda
    losses_near bf16.jsonl 1e-3 "GPT-2 in bf16 has them" $gpt2 PRECISION=bf16 DEVICE=cuda
    losses_near modern.jsonl 1e-3 "the modern GPT-2 in bf16 has them" $modern PRECISION=bf16 DEVICE=cuda
    convoy=$hip
else
    skip "losses of emulated CUDA GPUs" "built without CUDA"
fi

EMULATED_GPUS=2 losses_of two.jsonl $gpt2 PRECISION=fp32 DEVICE=hip N_GPU_EACH_NODE=2 BATCH_SIZE=1 SHARD=full
ok "two GPUs train without RCCL" is "$rc" 0
ok "the log says why their exchanges go through the host" says "has no RCCL, so exchanges between GPUs go through host memory"
ok "and what to install" says "RCCL is not here: install rccl of ROCm 6.0 or newer"
losses_near two.jsonl 1e-5 "two GPUs have the losses of two workers on CPUs" $gpt2 PRECISION=fp32 DEVICE=cpu N_GPU_EACH_NODE=2 BATCH_SIZE=1 SHARD=full

# RCCL: the library that is opened. The fake RCCL works between the threads of a process only, so no job trains over it here.
rccl=$build/tests/comm
with_rccl() { mkdir -p "$1" && ln -sf "$fake/libamdhip64.so.6" "$rccl/$1/librccl.so.1" "$1/" && cp "$fake/isa.tsv" "$1/"; }
with_rccl rccl && with_rccl rccl_old && with_rccl rccl_other
CONVOY_LIB_DIR=$PWD/rccl "$convoy" version gpu >out 2>err
ok "version gpu lists RCCL" shows '^rccl +2\.22\.3 from .*/librccl\.so\.1$'

# Errors.
refused() { # NAME CODE TEXT SETTING…
    run $tiny STEPS=2 DEVICE=hip "${@:4}"
    ok "$1: exit $2" is "$rc" "$2"
    ok "$1: the message" says "$3"
}
EMULATED_GPUS=0 refused "no GPU" 69 "--device /dev/kfd --device /dev/dri --group-add video"
EMULATED_CHIP=gfx1100 refused "another chip" 69 "GPU 0 (Emulated 0) is none of gfx90a, for which this program has code"
two="N_GPU_EACH_NODE=2 BATCH_SIZE=1 BACKEND=nccl"
EMULATED_GPUS=2 refused "BACKEND=nccl without RCCL" 69 "RCCL is not here: install rccl of ROCm 6.0 or newer" $two
CONVOY_LIB_DIR=$PWD/rccl_old EMULATED_GPUS=2 refused "RCCL of ROCm 5.7" 69 "2.17.1 is too old: this program needs 2.18.0 or newer" $two
CONVOY_LIB_DIR=$PWD/rccl_other EMULATED_GPUS=2 refused "RCCL with another runtime" 69 "librccl.so.1, and this program uses the one from $PWD/rccl_other/libamdhip64.so.6" $two
refused "ATTENTION=cudnn" 78 "needs an NVIDIA GPU" ATTENTION=cudnn PRECISION=bf16
EMULATED_GPUS=0 losses_near hip.jsonl 1e-5 "DEVICE=auto without a GPU: the CPU" $gpt2 PRECISION=fp32 DEVICE=auto
mkdir empty
gcc -shared -o empty/libamdhip64.so.6 -x c /dev/null
if ldconfig -p | grep -q libamdhip64; then
    skip "no usable libamdhip64" "this machine has AMD's own"
else
    CONVOY_LIB_DIR=$PWD/empty refused "no usable libamdhip64" 69 "AMD's runtime (libamdhip64) is not here: install hip-runtime-amd"
    ok "the message names the file that is passed over" says "empty/libamdhip64.so.6: has no hip"
fi
done_testing
