#!/bin/bash
# test_cuda_absent — without a GPU: the message names what is missing (69), DEVICE=auto uses the CPU, and CUDA in the program
# adds no library to those it needs.
. "$(dirname "$0")/lib.sh"
unset DEVICE
needs() { readelf -d "$convoy" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'; }
ok "no C++ and no CUDA library is needed" is "$(needs | grep -c 'stdc++\|gcc_s\|cuda\|cublas\|nccl\|nvidia')" 0
"$convoy" version >out 2>err
ok "version says whether CUDA is in it" shows '^cuda  *([0-9.]+: sm_[0-9]+|none)'
if grep -q '^cuda .*: sm_' out; then
    "$convoy" version gpu >out 2>err
    ok "version gpu names the driver that is here, and the one that this build needs" shows '^driver +(none|[0-9.]+) \(this build needs (525|580) or newer\)'
else
    skip "version gpu names the driver that is here, and the one that this build needs" "built without CUDA"
fi
if [ -e /dev/nvidiactl ]; then
    skip "DEVICE=cuda: 69, what is missing and what to do" "there is a driver here"
    skip "PRECISION=bf16 where no GPU is found" "there may be a GPU here"
    skip "DEVICE=auto: the CPU" "there may be a GPU here"
    skip "DEVICE=cuda with two workers: 69" "there is a driver here"
    skip "check of a lost GPU: 1" "there is a driver here"
else
    run $tiny STEPS=2 DEVICE=cuda
    ok "DEVICE=cuda: 69, what is missing and what to do" is \
        "$rc $(grep -cE ' error .*(no NVIDIA driver|gives this process no GPU|built without CUDA).*DEVICE=cpu' err)" "69 1"
    run $tiny STEPS=2 DEVICE=cuda N_GPU_EACH_NODE=2 BATCH_SIZE=1 GLOBAL_BATCH=2
    ok "DEVICE=cuda with two workers: 69" is "$rc" "69"
    "$root/tests/check/trees/unpack.pl" lost gpu-off-bus
    rc=0; DEVICE=cuda limit 60 "$convoy" check CHECK=quick CHECK_ROOT="$PWD/lost" >out 2>err || rc=$?
    ok "check names a lost GPU before a device is opened, which fails: 1" is "$rc $(grep -c '^ *7 of 8 GPUs' out)" "1 1"
    run $tiny STEPS=2 DEVICE=auto PRECISION=bf16
    ok "PRECISION=bf16 where no GPU is found: 69, and what to do" is "$rc $(grep -c ' error .*PRECISION=bf16 (argument) needs a GPU' err)" "69 1"
    run $tiny STEPS=2 DEVICE=auto
    ok "DEVICE=auto: the CPU, and no warning" is "$rc $(grep -c 'device cpu' err) $(grep -c ' warn ' err)" "0 1 0"
fi
run $tiny STEPS=2 DEVICE=cpu BACKEND=nccl N_GPU_EACH_NODE=2
ok "BACKEND=nccl on CPUs: 78" is "$rc $(grep -c ' error .*BACKEND=nccl (argument) does not go with DEVICE=cpu' err)" "78 1"
NCCL_COMM_ID=10.0.0.1:5000 run $tiny STEPS=2 DEVICE=auto N_GPU_EACH_NODE=2
ok "an NCCL_COMM_ID from outside: 78" is "$rc $(grep -c ' error .*NCCL_COMM_ID=10.0.0.1:5000 (environment) is refused' err)" "78 1"
for precision in tf32 fp16; do
    run $tiny STEPS=2 DEVICE=cpu PRECISION=$precision
    ok "PRECISION=$precision on a CPU: 78" is "$rc $(grep -c " error .*DEVICE=cpu (argument) does not go with PRECISION=$precision (argument)" err)" "78 1"
done
run $tiny STEPS=2 DEVICE=cpu PRECISION=auto METRICS_FILE=auto.jsonl
auto=$rc
run $tiny STEPS=2 DEVICE=cpu PRECISION=fp32 METRICS_FILE=fp32.jsonl
ok "auto is fp32 on a CPU" is "$auto $rc $(jq -c '[.loss, .grad_norm]' auto.jsonl | cmp - <(jq -c '[.loss, .grad_norm]' fp32.jsonl) && echo same)" "0 0 same"
run $tiny STEPS=2 DEVICE=cpu PRECISION=bf16 METRICS_FILE=bf16.jsonl
if grep -qw avx512_bf16 /proc/cpuinfo; then
    ok "bf16 on a CPU: other bits, a loss within 1 %" is "$rc $(jq -s '.[3].loss as $want | (.[1].loss != $want and (.[1].loss / $want - 1 | fabs) < 0.01)' bf16.jsonl fp32.jsonl)" "0 true"
else
    ok "bf16 on a CPU that has none: 69, and what to do" is "$rc $(grep -c ' error .*neither AMX tiles nor AVX512_BF16.*use PRECISION=fp32' err)" "69 1"
fi
done_testing
