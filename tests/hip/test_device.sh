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
blaslt=$(ls -d /opt/rocm*/include /usr/include 2>/dev/null | while read -r i; do [ ! -e "$i/hipblaslt/hipblaslt.h" ] || echo "$i"; done | head -1)
if [ -n "$blaslt" ]; then
    ok "numbers and sizes are those of hipBLASLt's header" \
        g++ -fsyntax-only -std=c++17 -I"$root" -I"$blaslt" "$root/tests/hip/hipblaslt_header.cc"
else
    skip "numbers and sizes of hipBLASLt's header" "there is no hipblaslt/hipblaslt.h"
fi
ok "the program needs no library of AMD to start" is "$(readelf -d "$convoy" | grep -c amdhip)" 0
ok "version names the chips" sh -c "'$convoy' version gpu | grep -q '^hip  *gfx90a'"

# losses_of FILE SETTING… — the losses of a run on the fake.
losses_of() { run "${@:2}" METRICS_FILE="$1"; }
gpt2="$tiny STEPS=6 DROPOUT=0.1"
modern="$tiny STEPS=4 MODEL=gpt2-modern-nano"
losses_of hip.jsonl $gpt2 PRECISION=fp32 DEVICE=hip
ok "GPT-2 in fp32 trains" is "$rc" 0
ok "without hipBLASLt the log names kernels and package" says "products by the program's own kernels, at an unknown speed: hipBLASLt is not here: install hipblaslt of ROCm 6.0 or newer"
ok "repeated work runs as graphs" says "repeated work is submitted to the GPU as HIP graphs"
losses_near hip.jsonl 1e-5 "GPT-2 in fp32 has the losses of the CPU" $gpt2 PRECISION=fp32 DEVICE=cpu
losses_near hip.jsonl 1e-5 "without graphs, too" $gpt2 PRECISION=fp32 DEVICE=hip CUDA_GRAPH=off
losses_near hip.jsonl 1e-5 "DEVICE=auto finds the GPU" $gpt2 PRECISION=fp32 DEVICE=auto
ok "and uses it" says "hip 0 Emulated 0"
losses_of bf16.jsonl $gpt2 PRECISION=bf16 DEVICE=hip
losses_of modern.jsonl $modern PRECISION=bf16 DEVICE=hip
ok "the modern GPT-2 in bf16 trains" is "$rc" 0
# hipBLASLt (tests/hip/fake_hipblaslt.h). Its counts include calls that its manual does not allow.
blas=$build/hip
with_blas() { mkdir -p "$1" && ln -sf "$fake/libamdhip64.so.6" "$blas/$1/libhipblaslt.so.1" "$1/" && cp "$fake/isa.tsv" "$1/"; }
with_blas blas && with_blas blas_old && with_blas blas_lacks && with_blas blas_other
over_blas() { CONVOY_LIB_DIR=$PWD/blas FAKE_BLAS_COUNTS=$PWD/counts losses_of "$@"; } # over_blas FILE SETTING…
counted() { grep -qE "^$1 wrong 0$" counts || { echo "# $(cat counts)"; false; }; } # counted REGEX
refuses() { grep -qE "hipBLASLt does not support [0-9x]+ with $1: this product is split" err; } # refuses REGEX
over_blas blas32.jsonl $gpt2 PRECISION=fp32 DEVICE=hip
ok "the log names hipBLASLt" says "products by hipBLASLt 1.1.0 from $PWD/blas/libhipblaslt.so.1"
ok "its products are in graphs, too" says "repeated work is submitted to the GPU as HIP graphs"
ok "it computes with epilogues and without" counted 'with [1-9][0-9]* without [1-9][0-9]* halves 0'
ok "its losses are those of own kernels" near hip.jsonl blas32.jsonl 1e-5
over_blas tf32.jsonl $gpt2 PRECISION=tf32 DEVICE=hip
ok "TF32 that a chip lacks is refused" refuses '.*, 32-bit to 32-bit numbers as TF32'
ok "and computed in fp32, by the library" counted 'with [1-9][0-9]* without [1-9][0-9]* halves 0'
ok "with nearly the losses of PRECISION=fp32" near blas32.jsonl tf32.jsonl 1e-5
over_blas blas16.jsonl $gpt2 PRECISION=bf16 DEVICE=hip
ok "16-bit factors" counted 'with [1-9][0-9]* without [1-9][0-9]* halves [1-9][0-9]*'
ok "a bias gradient that it lacks is computed apart" refuses 'BGRADA, 16-bit to 32-bit numbers'
ok "losses of bf16 are those of own kernels" near bf16.jsonl blas16.jsonl 1e-3
over_blas blasm.jsonl $modern PRECISION=bf16 DEVICE=hip
ok "so are those of the modern GPT-2" near modern.jsonl blasm.jsonl 1e-3
over_blas plain.jsonl $gpt2 PRECISION=fp32 DEVICE=hip CONVOY_BLAS=plain
ok "CONVOY_BLAS=plain: no epilogue" counted 'with 0 without [1-9][0-9]* halves 0'
CONVOY_LIB_DIR=$PWD/blas "$convoy" version gpu >out 2>err
ok "version gpu lists hipBLASLt" shows '^hipblaslt +1\.1\.0 from .*/libhipblaslt\.so\.1$'
# own_products LIBRARY TEXT — a hipBLASLt that is not used: the run ends well, and the log has the reason.
own_products() {
    CONVOY_LIB_DIR=$PWD/$1 losses_of own.jsonl $tiny STEPS=1 DEVICE=hip PRECISION=fp32
    ok "$1: own products" is "$rc" 0
    ok "$1: the reason" says "$2"
}
own_products blas_old "libhipblaslt.so.1: 0.3.0 is too old: this program needs 0.6.0 (ROCm 6.0) or newer"
own_products blas_lacks "libhipblaslt.so.1: has no hipblasLtMatmul"
own_products blas_other "libhipblaslt.so.1, and this program uses the one from $PWD/blas_other/libamdhip64.so.6"

if [ -x "$cuda" ]; then
    hip=$convoy convoy=$cuda
    export CONVOY_LIB_DIR=${cuda%/*} # which has the tests' cuBLASLt
    losses_near hip.jsonl 1e-5 "GPT-2 in fp32 has the losses of emulated CUDA GPUs" $gpt2 PRECISION=fp32 DEVICE=cuda
    ok "their products are cuBLASLt's" says "products by cuBLASLt 13.0.2 from"
    ok "over hipBLASLt it has them, too" near near.jsonl blas32.jsonl 1e-6
    losses_near bf16.jsonl 1e-3 "GPT-2 in bf16 has them" $gpt2 PRECISION=bf16 DEVICE=cuda
    ok "over hipBLASLt it has them, too" near near.jsonl blas16.jsonl 1e-6
    losses_near modern.jsonl 1e-3 "the modern GPT-2 in bf16 has them" $modern PRECISION=bf16 DEVICE=cuda
    ok "over hipBLASLt it has them, too" near near.jsonl blasm.jsonl 1e-6
    convoy=$hip
    export CONVOY_LIB_DIR=$fake
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
# ---- around it ----

# The GPU's numbers come from files of the driver amdgpu, here of a made-up tree. The second GPU has only a temperature.
"$root/tests/check/trees/unpack.pl" tree mi300x
pci=tree/sys/bus/pci/devices
mv "$pci/0000:05:00.0" "$pci/0000:3b:00.0"
mkdir -p "$pci/0000:3c:00.0/hwmon/hwmon5" && echo 52000 >"$pci/0000:3c:00.0/hwmon/hwmon5/temp1_input"
file() { cat "$pci/0000:3b:00.0/$1"; }
port=$(free_port)
EMULATED_GPUS=2 begin_served $tiny STEPS=1000000 DEVICE=hip N_GPU_EACH_NODE=2 BATCH_SIZE=1 PRECISION=fp32 CHECK=off CHECK_ROOT="$PWD/tree"
ok "a job serves the numbers of both GPUs" wait_for 60 status_has '[.ranks[].gpu.temperature_celsius] | all(. != null) and length == 2'
ok "/status has the numbers of the files" is "$(jq -c '.ranks[0].gpu | del(.age_seconds) | .memory_utilisation |= (. * 1000 | round / 1000)' status.json)" \
    "$(jq -nc --argjson busy "$(file gpu_busy_percent)" --argjson memory "$(file mem_busy_percent)" --argjson used "$(file mem_info_vram_used)" \
        --argjson total "$(file mem_info_vram_total)" --argjson heat "$(file hwmon/hwmon4/temp2_input)" --argjson power "$(file hwmon/hwmon4/power1_input)" \
        --argjson cap "$(file hwmon/hwmon4/power1_cap)" --argjson clock "$(file hwmon/hwmon4/freq1_input)" --argjson memory_clock "$(file hwmon/hwmon4/freq2_input)" \
        '{utilisation: ($busy / 100), memory_utilisation: ($memory / 100), memory_used_bytes: $used, memory_total_bytes: $total,
        temperature_celsius: ($heat / 1000), power_watts: ($power / 1000000), power_limit_watts: ($cap / 1000000), clock_hertz: $clock,
        memory_clock_hertz: $memory_clock, ecc_corrected: 0, ecc_uncorrected: 0, xids: null, xid_last: null}')"
ok "a number without a file is unknown, not 0" is "$(jq -c '.ranks[1].gpu | del(.age_seconds) | with_entries(select(.value != null))' status.json)" '{"temperature_celsius":52}'
get /metrics >metrics
ok "/metrics has them, too" grep -qE '^convoy_gpu_power_watts\{.*rank="0".*\} 137$' metrics
ok "and leaves out unknown ones" is "$(grep -c '^convoy_gpu_power_watts{' metrics)" 1
stop
run $tiny STEPS=2 DEVICE=hip CHECK_ROOT="$PWD/empty-tree" CHECK=off
ok "without these files a job trains, and the log says what is missing" is "$rc $(grep -c 'have no numbers of GPUs: there is no folder .*/0000:3b:00.0 of the driver amdgpu' err)" "0 1"

# Two nodes share a GPU: RCCL refuses that, and the report names RCCL.
job="$tiny LAYERS=1 EMBED=16 PRECISION=fp32 DEVICE=hip CHECKPOINT_EVERY=5 CHECKPOINT_DIR=$PWD/run N_NODES=2"
rehearse() { rc=0; limit 150 "$convoy" rehearse $job "$@" >out 2>err || rc=$?; }
rehearse DURATION="$(secs 4)" FAULT_EVERY="$(secs 2)" FAULT_MIX=kill SEED=3
ok "a rehearsal on an AMD GPU: exit 0" is "$rc" 0
ok "its report names RCCL" shows '^devices      1 GPU for 2 workers, which share them: hip 0 Emulated 0 .*; tcp between workers, because RCCL refuses two ranks on one GPU$'
rehearse BACKEND=nccl
ok "BACKEND=nccl for it is refused" is "$rc" 78
ok "with RCCL's name" says "would share 1 GPUs, and RCCL refuses two ranks on one GPU; use BACKEND=auto"

# The first command on an AMD machine, with the steps that an emulated GPU has time for.
mkdir bin gpu && printf '#!/bin/sh\nexit 9\n' >bin/nvidia-smi && chmod +x bin/nvidia-smi
ln -s "$convoy" "$build/hip/gpu_tests" gpu/
: >kfd
rc=0
PATH=$PWD/bin:$PATH NVIDIA_CTL=$PWD/none AMD_KFD=$PWD/kfd AMD_SYS=$PWD/tree/sys GPU=$PWD/gpu OUT=$PWD/results LIMIT=$((540 * $(slow))) SLOWER=$(slow) \
    FAMILIES="norm reduce gelu" SMALLER="LAYERS=1 HEADS=2 EMBED=16 SEQ_LEN=16 GLOBAL_BATCH=2 STEPS=4" \
    ONLY='environment|ATTENTION=cudnn|losses as on the CPU|kernels, all' "$root/tests/gpu/gpu.sh" first >out 2>err || rc=$?
ok "gpu.sh first on an AMD machine: exit 0" is "$rc" 0
ok "its steps are ok, but for NVIDIA's" is "$(jq -r '[.steps[] | .outcome + " " + (.name | split(" ")[0])] | join("; ")' results/first.json)" \
    "ok environment; skipped ATTENTION=cudnn:; ok losses; ok kernels,"
ok "the program reports the GPU and the runtime" holds results/first.json \
    '.[0] | .gpu == "Emulated 0" and (.machine | .amdgpu == "1 GPU" and (.amdhip64 | endswith("libamdhip64.so.6")) and .hip == "gfx90a")'
golden() { (cd "$root" && GOLDEN_DEVICE=hip limit 120 "$build/hip/gpu_tests" golden); }
golden >out 2>err
ok "golden cases within 1e-4" is "$(grep -c "^ok [0-9]" out) $(grep -c "^not ok" out)" "5 0"
ok "kernels ran on it, with their errors" holds results/first.json '.[0].rows | map(select(.name | startswith("error of kernels")) | .of_limit > 0) == [true, true, true]'

# What a machine may lack. alone.so hides AMD's own library, if this machine has one, and shows a /dev/kfd that may not be opened.
cat >alone.c <<'END'
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int glob(const char *pattern, int flags, int (*on_error)(const char *, int), glob_t *out)
{
    int (*next)(const char *, int, int (*)(const char *, int), glob_t *);
    *(void **)&next = dlsym(RTLD_NEXT, "glob");
    return strstr(pattern, "libamdhip64") && (strstr(pattern, "/usr/") || strstr(pattern, "/opt/"))
        ? GLOB_NOMATCH : next(pattern, flags, on_error, out);
}
int access(const char *path, int mode)
{
    if (getenv("DENIED") == NULL || strcmp(path, "/dev/kfd") != 0)
        return faccessat(AT_FDCWD, path, mode, 0);
    errno = EACCES;
    return mode == F_OK ? 0 : -1;
}
END
gcc -shared -fPIC -o alone.so alone.c
# without FUNCTION — a folder of the fake runtime without it, under every name that the loader may be asked for; no function: without any.
without() {
    mkdir -p lacks
    if [ -n "${1:-}" ]; then LC_ALL=C sed "s/$1/${1%?}_/g" "$fake/libamdhip64.so.6" >lacks/libamdhip64.so.6; else gcc -shared -o lacks/libamdhip64.so.6 -x c /dev/null; fi
    cp "$fake/isa.tsv" lacks/
    ln -sf libamdhip64.so.6 lacks/libamdhip64.so.5
    ln -sf libamdhip64.so.6 lacks/libamdhip64.so.7
}
lacks() { LD_PRELOAD=$PWD/alone.so LD_LIBRARY_PATH=$PWD/lacks CONVOY_LIB_DIR=$PWD/lacks "$@"; }
without
lacks refused "no usable libamdhip64" 69 "AMD's runtime (libamdhip64) is not here: install hip-runtime-amd of ROCm 5.2 or newer"
ok "the message names the file that is passed over" grep -qE "lacks/libamdhip64\.so\.[567]: has no hip" err
without hipGraphInstantiateWithFlags
lacks refused "a libamdhip64 without a function" 69 "is not here: install hip-runtime-amd of ROCm 5.2 or newer"
ok "the message names file and function" grep -qE "lacks/libamdhip64\.so\.[567]: has no hipGraphInstantiateWithFlags" err
without hipEventRecordWithFlags
lacks losses_near hip.jsonl 1e-5 "without hipEventRecordWithFlags the losses are the same" $gpt2 PRECISION=fp32 DEVICE=hip
ok "one operation at a time: the log names file, function and version" \
    grep -qE 'submitted one operation at a time, because it cannot be made a HIP graph: .*lacks/libamdhip64\.so\.[567] has no hipEventRecordWithFlags; ROCm 7\.0 has it' err
export DENIED=1
EMULATED_GPUS=0 LD_PRELOAD=$PWD/alone.so refused "a /dev/kfd that may not be opened" 69 "this user may not open /dev/kfd (Permission denied): add the user to the groups render and video"
ok "the message has the containers' option" says "--group-add video --group-add "
done_testing
