#!/bin/bash
# test_cuda_absent — without a GPU: the message names what is missing (69), DEVICE=auto uses the CPU, and CUDA in the program
# adds no library to those it needs. With NVIDIA's driver on the machine that cannot be used (tests/cuda/unfit_driver.c), DEVICE=auto gives a warning
# with reason and remedy, also in /status and on the page, and the run trains on the CPU; DEVICE=cuda ends with 69 and the same sentence, which
# docs/gpu.md has, too.
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
    skip "DEVICE=cuda with two workers: 69" "there is a driver here"
else
    run $tiny STEPS=2 DEVICE=cuda
    ok "DEVICE=cuda: 69, what is missing and what to do" is \
        "$rc $(grep -cE ' error .*(no NVIDIA driver|gives this process no GPU|built without CUDA).*DEVICE=cpu' err)" "69 1"
    try "DEVICE=cuda with two workers: 69" 69 -- train $tiny STEPS=2 DEVICE=cuda N_GPU_EACH_NODE=2 BATCH_SIZE=1 GLOBAL_BATCH=2
    "$root/tests/check/trees/unpack.pl" lost gpu-off-bus
    rc=0; DEVICE=cuda limit 60 "$convoy" check CHECK=quick CHECK_ROOT="$PWD/lost" >out 2>err || rc=$?
    ok "check names a lost GPU before a device is opened, which fails: 1" is "$rc $(grep -c '^ *7 of 8 GPUs' out)" "1 1"
    try "PRECISION=bf16 where no GPU is found: 69, and what to do" 69 ' error .*PRECISION=bf16 (argument) needs a GPU' -- train $tiny STEPS=2 DEVICE=auto PRECISION=bf16
    try "DEVICE=auto: the CPU, and no warning" 0 'device cpu' '! warn ' -- train $tiny STEPS=2 DEVICE=auto
fi
try "BACKEND=nccl on CPUs: 78" 78 ' error .*BACKEND=nccl (argument) does not go with DEVICE=cpu' -- train $tiny STEPS=2 DEVICE=cpu BACKEND=nccl N_GPU_EACH_NODE=2
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

# A driver that cannot be used.
[ ! -e /dev/nvidiactl ] || give_up "a driver that cannot be used" "there is a driver here"
there gcc || give_up "a driver that cannot be used" "no gcc here"
mkdir driver
gcc -shared -fPIC -Wl,-soname,libcuda.so.1 -o driver/libcuda.so.1 "$root/tests/cuda/unfit_driver.c"
driver=$tmp/driver
auto="DEVICE=auto uses the CPU: "
built=$("$convoy" version | sed -n 's/^cuda  *\([0-9.]*\).*/\1/p')
needs=${built:-13.0} newest=$((${needs%%.*} >= 13 ? 580 : 525))

# has_once LEVEL TEXT… — err has one line of that level with all of these.
has_once() {
    local level=$1 lines
    shift
    lines=$(grep -F " $level " err)
    for text in "$@"; do lines=$(grep -F -- "$text" <<<"$lines"); done
    [ "$(grep -c . <<<"$lines")" = 1 ] || { echo "# err has not one line '$level' with: $*"; false; }
}
# documented TEXT… — docs/gpu.md has one line with all of these; its numbers are of CUDA 13.0.
documented() {
    local lines
    lines=$(cat "$root/docs/gpu.md")
    for text in "$@"; do lines=$(grep -F -- "$text" <<<"$lines"); done
    [ "$needs" != 13.0 ] || [ "$(grep -c . <<<"$lines")" = 1 ] || { echo "# docs/gpu.md has not one line with: $*"; false; }
}

# unfit NAME SYMPTOM REMEDY [NAME=VALUE…] — both values of DEVICE, with these variables in the environment.
unfit() {
    local name=$1 symptom=$2 remedy=$3
    shift 3
    local -x LD_LIBRARY_PATH=$driver "$@"
    if [ -z "$built" ]; then
        symptom="this program was built without CUDA" remedy="build it with CUDA=1 where nvcc is, use the image gpu"
    fi
    try "$name, DEVICE=auto: the CPU" 0 'device cpu' -- train $tiny STEPS=2 DEVICE=auto
    ok "$name, DEVICE=auto: one warning, with reason and remedy" has_once warn "$auto" "$symptom" "$remedy"
    try "$name, DEVICE=cuda: 69" 69 -- train $tiny STEPS=2 DEVICE=cuda
    ok "$name, DEVICE=cuda: the same sentence" has_once error "$symptom" "$remedy"
    ok "$name: docs/gpu.md has it" documented "$symptom" "$remedy"
}

unfit "an old driver" "is too old: it supports CUDA $((${needs%%.*} - 1)).4, this program needs $needs" \
    "install driver $newest or newer" FAKE_CUDA=$(((${needs%%.*} - 1) * 1000 + 40))
unfit "no GPU" "gives this process no GPU (CUDA error 100, no CUDA-capable device is detected)" \
    "there is no /dev/nvidia*: the machine has no NVIDIA GPU, or its container was given none; start it with --gpus all" FAKE_ERROR=100
unfit "no fabric manager" "CUDA error 802, system not yet initialized): nvidia-fabricmanager, which sets up NVSwitches, does not run" \
    '`systemctl enable --now nvidia-fabricmanager` on the host' FAKE_ERROR=802
unfit "two versions of the driver" "CUDA error 803, system has unsupported display driver / cuda driver combination)" \
    "restart the machine after an update of the driver, and then its containers" FAKE_ERROR=803
unfit "cuda-compat" "CUDA error 804, forward compatibility was attempted on non supported HW)" \
    "remove its folder from LD_LIBRARY_PATH" FAKE_ERROR=804
unfit "the toolkit's stub" "CUDA error 34, CUDA driver is a stub library)" "remove the folder stubs from LD_LIBRARY_PATH" FAKE_ERROR=34

# Without the library: what the kernel and the device files tell.
real=$convoy
apart="unshare -m"
$apart true 2>/dev/null || apart="unshare -rm"
if $apart mount -t tmpfs none "$tmp" 2>/dev/null; then
    driver=$tmp/none
    cat >in_container <<EOF
#!/bin/bash
exec $apart bash -c 'mount -t tmpfs none /sys/module && mkdir /sys/module/nvidia && echo 550.54.14 >/sys/module/nvidia/version &&
    exec "\$@"' - "$real" "\$@"
EOF
    cat >with_file <<EOF
#!/bin/bash
exec $apart bash -c 'mount --rbind /dev "$tmp/dev" && mount -t tmpfs none /dev && for f in null zero full random urandom; do
    touch /dev/\$f && mount --bind "$tmp/dev/\$f" /dev/\$f; done && mkdir /dev/shm && ln -s /proc/self/fd /dev/fd &&
    touch /dev/nvidia0 && exec "\$@"' - "$real" "\$@"
EOF
    mkdir dev
    chmod +x in_container with_file
    convoy=$tmp/in_container
    unfit "a container without --gpus all" \
        "no NVIDIA driver: libcuda.so.1 is not in the loader's paths, though this machine's kernel has driver 550.54.14" \
        "start a container with --gpus all (nvidia-container-toolkit), else install the driver"
    convoy=$tmp/with_file
    unfit "a device file without a driver" \
        "no NVIDIA driver: libcuda.so.1 is not in the loader's paths, though a device file /dev/nvidia* is here" \
        "start a container with --gpus all (nvidia-container-toolkit), else install the driver"
    if [ -n "$built" ]; then
        convoy=$tmp/in_container driver=$tmp/driver
        unfit "an old driver that tells its release" "the NVIDIA driver 550.54.14 is too old: it supports" "install driver $newest or newer" \
            FAKE_CUDA=$(((${needs%%.*} - 1) * 1000 + 40))
    fi
    convoy=$real
else
    skip "a container without --gpus all, a device file without a driver" "no mount namespaces here"
fi

# Who is told, and how often.
export LD_LIBRARY_PATH=$tmp/driver FAKE_ERROR=802
run $tiny STEPS=2 DEVICE=auto N_GPU_EACH_NODE=2 BATCH_SIZE=1 GLOBAL_BATCH=2
ok "one warning of two workers" has_once warn "$auto"
try "none with DEVICE=cpu" 0 '! warn ' -- train $tiny STEPS=2 DEVICE=cpu
port=$(free_port)
quiet="STATUS_PORT=$port" begin_training $tiny STEPS=1000000 DEVICE=auto CHECKPOINT_DIR=run CHECKPOINT_EVERY=0
sentence=$(sed -n "s/.* warn .*\($auto.*\)/\1/p" err)
curl -s "http://127.0.0.1:$port/status" >status.json
ok "/status has the warning's sentence" is "$(jq -r .device_note status.json)" "$sentence"
ok "and it is one" is "$(echo "$sentence" | grep -c .)" 1
curl -s "http://127.0.0.1:$port/" >out
ok "the page without scripts has it" is "$(sed 's/&#60;/</g; s/&#62;/>/g; s/&#38;/\&/g; s/&#34;/"/g' out | grep -cF -- "<li>$sentence</li>")" 1
STATUS_PORT=$port "$convoy" status >out
ok "convoy status has it" is "$(grep -cF -- "warning     $sentence" out)" 1
stop
ok "the stored answer has it" is "$(jq -r .record.status.device_note run/history.json)" "$sentence"
done_testing
