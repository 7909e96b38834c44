#!/bin/bash
# test_gpu — the parts of the GPU tests that run without a GPU: the messages where there is none, the kernels' tests with a
# GPU's memory rules (in emulation), all of gpu-bench on the CPU, and its results. GPU_DRY=1: all of gpu-test too (a minute).
. "$(dirname "$0")/lib.sh"
gpu=$root/tests/gpu/gpu.sh
if command -v shellcheck >/dev/null; then
    ok "shellcheck finds nothing in gpu.sh" shellcheck -x -a "$gpu"
else
    skip "shellcheck finds nothing in gpu.sh" "no shellcheck here"
fi
if [ -e /dev/nvidiactl ]; then
    skip "without a GPU it says so" "there is a driver here"
else
    rc=0
    AMD_KFD=$tmp/none GPU=$tmp/none OUT=$tmp/results "$gpu" test >out 2>err || rc=$?
    ok "without a GPU it says so" is "$rc $(grep -c 'gpu-test: no GPU here: there is no /dev/nvidiactl' err)" "1 1"
fi
rc=0
"$gpu" dance >out 2>err || rc=$?
ok "another word is refused" is "$rc" 64

# What stands for build/gpu.
mkdir gpu
ln -s "$convoy" gpu/convoy
rc=0
DRY=1 GPU=$tmp/gpu OUT=$tmp/results "$gpu" test >out 2>err || rc=$?
ok "programs that are missing are named" is "$rc $(grep -c 'no .*/gpu/dry_tests; make gpu-carry' err)" "1 1"
dry=$(dirname "$convoy")/gpu/dry_tests
if [ -x "$dry" ]; then
    ln -s "$dry" gpu/dry_tests
    limit 100 "$dry" gelu >out 2>err
    ok "kernels' tests with the memory that a GPU sees" is "$? $(grep -c '^# family gelu ok' out) $(grep -c '^not ok' out)" "0 1 0"
    rc=0
    DRY=1 GPU=$tmp/gpu OUT=$tmp/results MODELS=gpt2-nano:1 "$gpu" bench >out 2>err || rc=$?
    ok "gpu-bench writes its results" holds results/bench.json \
        '.[0] | .what == "gpu-bench" and .dry and (.rows | length) == 5 and .rows[0].unit == "tokens/s" and all(.rows[]; .value > 0)'
    ok "a dry run says that it is none" is "$rc $(grep -c 'nothing here is a result' results/bench.md)" "0 1"
else
    for what in "kernels' tests with the memory that a GPU sees" "gpu-bench writes its results" "a dry run says that it is none"; do
        skip "$what" "no $dry: it is not built with sanitizers"
    done
fi
if [ -n "${GPU_DRY:-}" ] && [ -x "$dry" ]; then
    rc=0
    DRY=1 GPU=$tmp/gpu OUT=$tmp/results "$gpu" test >out 2>err || rc=$?
    ok "gpu-test on the CPU and the emulation" is "$rc $(jq '[.rows[] | select(.outcome == "failed")] | length' results/test.json)" "0 0"
else
    skip "gpu-test on the CPU and the emulation" "asked for by GPU_DRY=1"
fi
done_testing
