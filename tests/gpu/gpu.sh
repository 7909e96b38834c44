#!/bin/bash
# gpu.sh — tests and benchmarks for a machine with a GPU (make gpu-first, gpu-test, gpu-bench); needs bash, coreutils, awk.
#
#   gpu.sh first      the first command on a GPU: what is most worth knowing, in LIMIT seconds (540). Each step has a cost, and one
#                     that no longer fits is skipped and named. A page with predictions beside what was measured (gpu_first.sh)
#   gpu.sh look       is there a GPU? else prints why not, and exits with 1
#   gpu.sh test       every kernel against the CPU's plain truth, golden cases, the same losses as on the CPU, compute-sanitizer on a
#                     short run, two ranks over UCX and over NCCL on one GPU, sharding, 16 bits, a checkpoint from GPU to CPU,
#                     eval, questions, 200 steps of gpt2 in bf16 beside fp32
#   gpu.sh bench      kernels against the copy bandwidth of the same run, whole steps, beside PyTorch
#
# GPU: folder with the programs (build/gpu). OUT: where the results go (tests/gpu/results): one JSON, one table, a folder of logs.
# MODELS: what bench and first train. ONLY: an expression (grep -E) for the names to run; a step that needs the output of another one
# fails without it. FAMILIES: of kernels, for first. Results are written after each step, so a run that is cut off keeps them. DRY=1: everything on the CPU and the
# emulation with the smallest sizes, to try this script; nothing it writes is a result.
# NVIDIA's libraries: CONVOY_LIB_DIR, else PyPI's folders, else the loader's paths.
# AMD's GPUs, if there is none of NVIDIA: `first` only, with programs of `make HIP=1 CUDA=0 gpu-carry`; steps that need NVIDIA's
# libraries or tools are skipped and give that as the reason. No AMD GPU has run it yet.
set -u
export LC_ALL=C
mode=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
GPU=${GPU:-$top/build/gpu}
case $GPU in /*) ;; *) GPU=$top/$GPU ;; esac
results=${OUT:-$here/results}
case $results in /*) ;; *) results=$PWD/$results ;; esac
unset OUT # a setting of the program, too
DRY=${DRY:-0}
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
trap 'kill "${child:-}" 2>/dev/null; exit 143' TERM INT
cd "$top" || exit 1
logs=$work
# shellcheck source-path=SCRIPTDIR
. "$here/gpu_lib.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/gpu_test.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/gpu_bench.sh"
# shellcheck source-path=SCRIPTDIR
. "$here/gpu_first.sh"

case $mode in
look) look ;;
first | test | bench)
    look || exit 1
    [ "$mode" = first ] || [ $vendor = nvidia ] || { say "gpu-$mode: for NVIDIA GPUs only; gpu.sh first is for AMD GPUs, too"; exit 64; }
    for program in convoy "$(test_program)"; do
        [ -x "$GPU/$program" ] || { say "gpu-$mode: no $GPU/$program; $carry"; exit 1; }
    done
    can_write || exit 1
    find_libraries
    look_at_gpu
    "run_$mode"
    ;;
*)
    say "gpu.sh first|look|test|bench"
    exit 64
    ;;
esac
