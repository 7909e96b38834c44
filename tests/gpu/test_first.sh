#!/bin/bash
# test_first — gpu.sh first without a GPU: its order, its budget, steps that fail, crash and hang, programs that are missing, its JSON
# and its page. Programs of a machine with a GPU are stood in for by scripts that print what those print; a dry run is real.
. "$(dirname "$0")/../e2e/lib.sh"
gpu=$root/tests/gpu/gpu.sh

# ---- a machine with a GPU, of scripts ----

mkdir -p bin gpu t
script() { cat >"$1" && chmod +x "$1"; }
script bin/nvidia-smi <<'END'
#!/bin/bash
case "$*" in
-L) echo "GPU 0: NVIDIA ${FAKE_GPU:-H100} 80GB HBM3 (UUID: GPU-0)" ;;
*query-gpu=name,driver_version*) echo "NVIDIA ${FAKE_GPU:-H100} 80GB HBM3, 580.65.06" ;;
-q) echo 'Clocks Event Reasons' ;;
dmon*)
    echo $$ >"$FAKE/dmon.pid"
    echo '#Time        gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol'
    echo '#HH:MM:SS    Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool'
    echo ' 12:00:00      0     80     30     40      0      0      0      0      0      0   2619    345      0      0'
    echo ' 12:00:01      0    650     61     70     99     60      0      0      0      0   2619   1755      4      0'
    echo ' 12:00:02      0    690     64     72    100     60      0      0      0      0   2619   1980      0      0'
    exec sleep 1000
    ;;
esac
END
script bin/python3 <<'END'
#!/bin/bash
case "$*" in
*'import torch'*) exit 0 ;;
*'import nvidia'*) [ -n "${FAKE_NVIDIA:-}" ] && printf '%s\n' $FAKE_NVIDIA ;;
*torch_gpt2.py*) echo "torch=2.9.0 dtype=bf16 median_ms=146.0 tokens_per_s=450000.0 best_tokens_per_s=460000.0 peak_gpu_mib=40000" ;;
esac
END
script bin/ncu <<'END'
#!/bin/bash
echo "ncu $*" >>"$FAKE/calls"
echo "path of ncu: ${LD_LIBRARY_PATH:-}" >>"$FAKE/calls"
END
script bin/compute-sanitizer <<'END'
#!/bin/bash
echo "sanitizer $*" >>"$FAKE/calls"
echo "path of sanitizer: ${LD_LIBRARY_PATH:-}" >>"$FAKE/calls"
END
script gpu/convoy <<'END'
#!/bin/bash
echo "convoy $*" >>"$FAKE/calls"
case "$1" in
version)
    for file in "${CONVOY_LIB_DIR:-/none}"/lib*; do echo "library $(readlink "$file")" >>"$FAKE/calls"; done
    echo "loader ${LD_LIBRARY_PATH:-}" >>"$FAKE/calls"
    printf 'convoy 0.1.0\ncommit 0123456789ab\n'
    if [ -n "${AMD_KFD:-}" ]; then
        printf 'hip        gfx90a gfx942\namdgpu     %s GPUs\namdhip64   6.2 from /opt/rocm/lib/libamdhip64.so.6\n' "${FAKE_GPUS:-8}"
    else
        printf 'cuda       13.0: sm_90a\ncublaslt   13.1.0 from /lib/libcublasLt.so.13\n'
    fi
    ;;
help) case " $2 " in *" ${FAKE_WITHOUT:-none} "*) exit 64 ;; esac ;;
train)
    for word; do case $word in *=*) declare "set_${word%%=*}=${word#*=}" ;; esac; done
    [ "${FAKE_HANG:-}" != "${set_MODEL:-}" ] || { echo $$ >"$FAKE/hang.pid"; exec sleep 1000; }
    ms=123.0 mfu=43.0
    [ "$set_MODEL" != gpt2-xl ] || mfu=49.1
    loss=${FAKE_LOSS:-3.0}
    for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
        [ "$i ${set_CUDA_GRAPH:-}" != "5 ${FAKE_OTHER_BITS:-none}" ] || loss=3.0000001
        echo "{\"step\":$i,\"epoch\":1,\"loss\":$loss,\"grad_norm\":0.5,\"lr\":1,\"tokens\":1,\"step_ms\":$ms}"
    done >"${set_METRICS_FILE:-/dev/null}"
    [ "${set_DEVICE:-}" != hip ] || echo "2026-11-22T00:00:00Z info  worker  device hip 0 AMD Instinct MI300X driver 6.2"
    echo "step 12/12 mfu $mfu%"
    echo "2026-11-22T00:00:00Z info  dev_cuda  products by cuBLASLt 13.1.0 from /lib/libcublasLt.so.13"
    echo "2026-11-22T00:00:00Z info  blas_plan  cuBLASLt does not support 16x20x64 with DGELU: this product is split"
    echo "2026-11-22T00:00:00Z info  dev_cuda_graph  repeated work is submitted to the GPU as CUDA graphs: the first has 350 operations, 500 nodes"
    [ "${set_CUDA_TIMES:-}" != 1 ] || {
        echo "2026-11-22T00:00:00Z info  dev_cuda_times  times of operations: the mean of 8 steps; all operations of a step need 120.000 ms"
        echo "2026-11-22T00:00:00Z info  dev_cuda_times  times: operation        shape     calls   ms  share rate"
        echo "2026-11-22T00:00:00Z info  dev_cuda_times  times: attention_bwd    64x1024x12x64,bf16     12.0    20.0000  16.67 % 154.6 TFLOP/s"
        echo "2026-11-22T00:00:00Z info  dev_cuda_times  times: read             16,bytes     1.0    0.0000  0.00 % - -"
    }
    ;;
esac
END
script gpu/gpu_tests <<'END'
#!/bin/bash
echo "gpu_tests $*" >>"$FAKE/calls"
[ "${FAKE_HANG:-none}" != "${1:-}" ] || { echo $$ >"$FAKE/hang.pid"; exec sleep 1000; }
families="adamw attention cast combine compress dropout embed gelu grad_scale halves matmul norm reduce xent"
case "${1:-}" in
list) printf 'command %s\n' golden runtime cudnn bench tune && printf 'family %s\n' $families ;;
runtime) echo 'ok 1 - an event in a graph' ;;
golden) [ "${FAKE_FAIL:-}" != golden ] || { echo 'not ok 1 - golden_lm'; exit 1; } ;;
tune) echo "table" >"$2" ;;
cudnn)
    [ "${FAKE_WITHOUT:-}" != cudnn ] || { echo 'Bail out! attention_fwd: ATTENTION=cudnn: no libcudnn_graph.so.9 in /lib'; exit 1; }
    echo '2026-11-22T00:00:00Z info  dev_cuda_attention  attention forward: cuDNN 9.19.0 from /lib/libcudnn_graph.so.9, engine 1, number 1 of 2 proposed' >&2
    echo 'ok 1 - attention_fwd out: nmse 4e-06, allowed 0.00016'
    [ "${FAKE_FAIL:-}" != cudnn ] || { printf 'not ok %s - attention_bwd %s: nmse 0.1, allowed 0.00016\n' 2 dq 3 dk; exit 1; }
    ;;
bench)
    echo '# products: CONVOY_BLAS=auto, cuBLASLt 13.1.0 from /lib/libcublasLt.so.13'
    echo '# NVIDIA H100 80GB HBM3, 132 multiprocessors, 85.0 GB'
    printf 'copy\tGB/s\t3000.0\t1.000\t1.4316\nnorm_fwd 65536x768 bf16\tGB/s\t2700.0\t0.900\t0.0746\n'
    printf 'xent 8192x50257 stride 50304 bf16\tGB/s\t1800.0\t0.600\t0.9000\nadamw 124M fp32\tGB/s\trefused\t\t\n'
    ;;
*)
    for family in ${1:-$families}; do
        [ "$family" != "${FAKE_CRASH:-none}" ] || kill -SEGV $$
        if [ "$family" = "${FAKE_RED:-none}" ]; then
            printf 'not ok 1 - fast_matches_plain\n# worst 3.1e-08 1e-08 norm_bwd of rows\n# family %s failed\n' "$family"
            exit 1
        fi
        printf '# worst 2e-09 1e-08 a test\n# family %s ok\n' "$family"
    done
    ;;
esac
END
cp -r gpu none_gpu && rm none_gpu/convoy

export FAKE=$tmp TMPDIR=$tmp/t
# first — a run on that machine: $rc, files out and err, r.json, r.md.
first() { # variables...
    rc=0
    rm -rf calls dmon.pid hang.pid results
    : >calls
    env PATH="${path:-$tmp/bin:$PATH}" GPU="$tmp/gpu" OUT="$tmp/results" MOST=$((60 * $(slow))) "$@" "$gpu" first >out 2>err || rc=$?
    r=$tmp/results
}
json() { jq -e "$1" "$r/first.json" >/dev/null || { echo "# first.json: $1 is not so"; jq -c '[.steps[] | [.name, .outcome, .note]]' "$r/first.json" | sed 's/^/# /'; false; }; }
page() { grep -qE -- "$1" "$r/first.md" || { echo "# first.md has no line $1"; false; }; }
called() { is "$(grep -cE -- "$1" calls)" "$2"; }
has_ended() { [ ! -s "$1" ] || ! kill -0 "$(cat "$1")" 2>/dev/null; } # the process whose number is in the file

first
ok "a run in which all goes well ends with 0" is "$rc" 0
ok "the steps have their order" is "$(jq -r '[.steps[].name | split(" ")[0]] | join(" ")' results/first.json)" \
    "what environment products ATTENTION=cudnn: step step golden losses CUDA CONVOY_BLAS=off: tune kernels, memcheck kernel times PyTorch ncu step step step step step"
ok "every step is ok" json 'all(.steps[]; .outcome == "ok")'
ok "all families ran in one process" called '^gpu_tests $' 1
ok "the machine is named: GPU, driver, commit, cuBLASLt, PyTorch" json '.machine | .GPU == "NVIDIA H100 80GB HBM3" and .driver == "580.65.06" and
    .commit == "0123456789ab" and (.cublaslt | startswith("13.1.0")) and .PyTorch == "2.9.0"'
ok "clocks and caps are those of the samples with load" json '.machine["clocks and caps"] ==
    "2 s with load: clock 1755 to 1980 MHz, at most 690 W and 64 C; power cap in 1 s, thermal cap in 0 s"'
ok "a figure has its prediction beside it" json '.rows[] | select(.name == "step gpt2 B64 T1024 bf16") | .value > 532000 and .predicted == 491000 and .gate == 520000 and .met'
ok "the page has it, too" page '^\| step gpt2 B64 T1024 bf16 \| 532813 \| tokens/s \| 0.430 \| 123.0 \| 491000 \| 1.09 \|$'
ok "a gate that is missed says so" page '^\| xent 8192x50257 stride 50304 bf16, share of this run.s copy bandwidth \| 0.85 \| 0.600 \| no \|$'
ok "a gate that is met says so" page '^\| norm_fwd 65536x768 bf16, share of this run.s copy bandwidth \| 0.85 \| 0.900 \| yes \|$'
ok "what was not measured is a dash" page '^\| attention_fwd B64 H12 T1024 D64 bf16, TFLOP/s \| 250 \| - \| - \|$'
ok "what was refused is no number" json '.rows[] | select(.name == "adamw 124M fp32") | .value == null and .met == null'
ok "gpt2 is compared with PyTorch's of the same run" json '.rows[] | select(.name == "gpt2 B64 T1024 bf16 over PyTorch compile") | .value == 1.184 and .gate == 1.15 and .met'
ok "the share of the peak of the largest model has its gate" json '.rows[] | select(.name == "mfu gpt2-xl B16 T1024 bf16") | .value == 49.1 and .gate == 48 and .met'
ok "times of operations are in the JSON, with predictions" json '.times | length == 2 and (.[0] | .operation == "attention_bwd" and .ms == 20 and .unit == "TFLOP/s" and .predicted_ms == 23.1)'
ok "and on the page" page '^\| attention_bwd \| 64x1024x12x64,bf16 \| 12.0 \| 20.0000 \| 16.67 \| 154.6 TFLOP/s \| 23.1 \| 0.87 \|$'
ok "the other ways are measured, too: no graphs, no epilogues, own attention" json '[.rows[].name | select(startswith("step gpt2 "))] == ["step gpt2 B64 T1024 bf16", "step gpt2 B64 T1024 bf16 CUDA_GRAPH=off",
    "step gpt2 B64 T1024 bf16 CONVOY_BLAS=plain", "step gpt2 B64 T1024 bf16 ATTENTION=own"]'
raw() { local name; for name in kernels.tap kernels.tsv times.log nvidia-smi.txt dmon.txt torch_bf16.log tuned.txt version.txt bench_gpt2_B64_.log bench_gpt2-xl_B16_.log; do [ -s "results/first/$name" ] || { echo "# no $name"; return 1; }; done; }
ok "raw logs are kept" raw
ok "which way a run went stands beside it" json '.steps[] | select(.name == "step gpt2:64") | .note ==
    "CUDA graphs: 350 operations, 500 nodes; products by cuBLASLt 13.1.0 from /lib/libcublasLt.so.13; products that cuBLASLt refused: 1"'
in_sources() { local k; for k in $(grep -oE 'regex:[^ ]*' calls | sed 's/.*://'); do grep -qE "$k[a-z_]*\(" "$root"/kernels/*.cu || { echo "# no kernel $k"; return 1; }; done; }
ok "the kernels that ncu looks for exist" in_sources
ok "ncu is asked for five kernels" called '^ncu .*regex:(attention_bwd_mma|attention_fwd_mma|xent_row|norm_bwd|gelu_fwd) ' 5
ok "memcheck looks at one family" called '^sanitizer --tool memcheck .*gpu_tests norm$' 1
ok "the vocabulary's products come early, and no row twice" json '[.rows[].name | select(. == "copy")] | length == 1'
ok "… of a run of the benchmark with their names" called '^gpu_tests bench x50$' 1
ok "the worst error of a family is a figure, beside its limit" json '.rows[] | select(.name == "error of kernels norm") | .value == 2e-9 and .of_limit == 0.2'
ok "cuDNN's engine is named" json '.steps[] | select(.name | startswith("ATTENTION")) | .note |
    test("attention forward: cuDNN 9.19.0 from /lib/libcudnn_graph.so.9, engine 1, number 1 of 2 proposed")'
ok "steps without graphs have the bits of those with graphs" json '.steps[] | select(.name == "step gpt2:64 CUDA_GRAPH=off, the same bits") | .note | test("12 steps have the same bits with graphs")'
ok "16-bit losses are compared: cuDNN with own, cuBLASLt with own" called 'train .*LAYERS=2 .*(ATTENTION=cudnn|ATTENTION=own|CONVOY_BLAS=auto|CONVOY_BLAS=off)$' 4
ok "the sampler is ended, the work folder removed" is "$(has_ended dmon.pid && ls t | wc -l)" 0

# ---- a budget ----

first LIMIT=0
ok "with no time left every step is skipped and named" json '(.steps | length) == 22 and all(.steps[]; .outcome == "skipped" and (.note | test("it does not fit: about [0-9]+ s are planned, 0 s of LIMIT=0 are left")))'
ok "which is no failure" is "$rc $(grep -c '^skipped: ' err)" "0 22"
ok "the page is there all the same, with dashes" page '^\| step gpt2 B64 T1024 bf16 \| - \| tokens/s \| - \| - \| 491000 \| - \|$'
first LIMIT=50 ONLY='environment|golden|kernels, all|ncu'
ok "what fits runs, what does not is skipped" json '[.steps[] | [.name[0:6], .outcome]] == [["enviro", "ok"], ["golden", "ok"], ["kernel", "skipped"], ["ncu on", "skipped"]]'

# ---- steps that go wrong ----

first FAKE_FAIL=golden ONLY='golden|losses'
ok "a step that fails is a failure of the run" is "$rc" 1
ok "its reason stands beside it, and the next ones run" json '[.steps[].outcome] == ["ok", "failed", "ok", "ok"] and (.steps[1].note | test("not ok 1 - golden_lm"))'
first FAKE_HANG=golden MOST=$((6 * $(slow))) ONLY='environment|golden|losses as on'
ok "a step that hangs is ended, and the next ones run" json '[.steps[].outcome] == ["ok", "failed", "ok"] and (.steps[1].note | test("ended after its time limit"))'
ok "nothing of it is left running" has_ended hang.pid
first FAKE_CRASH=attention ONLY='kernels, all'
ok "families behind a crash run alone" json '.steps[0] | .outcome == "failed" and (.note | test("^1 families passed in one process \\(exit code 139\\); alone: cast .* xent; failed: attention"))'
first FAKE_RED=norm ONLY='kernels, all'
ok "a red family has its worst error beside the limit" json '(.steps[0].note | test("failed: norm \\(3.1e-08 of 1e-08 in norm_bwd of rows\\)")) and
    any(.rows[]; .name == "error of kernels norm" and .value == 3.1e-8 and .of_limit == 3.1)'
first FAKE_FAIL=cudnn ONLY='ATTENTION=cudnn'
ok "the first operation that differs with cuDNN is named" json '.steps[0] | .outcome == "failed" and (.note | test("the first difference: not ok 2 - attention_bwd dq: nmse 0.1"))'
first FAKE_OTHER_BITS=off ONLY='step gpt2:64( CUDA_GRAPH|$)'
ok "the first step with other bits is named" json '[.steps[].outcome] == ["ok", "failed"] and (.steps[1].note |
    test("step 5 differs: loss and norm 3.0 0.5 with graphs, 3.0000001 0.5 without"))'
first FAKE_HANG=gpt2-xl MOST=$((6 * $(slow))) ONLY='gpt2-'
ok "a model that hangs costs only its own row" json '[.steps[].outcome] == ["ok", "ok", "failed"] and any(.rows[]; .name == "step gpt2-large B32 T1024 bf16")'
first FAKE_LOSS=nan ONLY='losses as on'
ok "losses that are no numbers fail" is "$rc" 1
first FAKE_WITHOUT=ATTENTION ONLY='ATTENTION|BLAS'
ok "a setting that this version lacks is a reason" json '.steps[0].outcome == "skipped" and .steps[0].note == "this version has no setting ATTENTION" and .steps[1].outcome == "ok"'
rm -rf results dmon.pid hang.pid
env PATH="$tmp/bin:$PATH" GPU="$tmp/gpu" OUT="$tmp/results" FAKE_HANG=golden ONLY='environment|golden' "$gpu" first >out 2>err &
pid=$!
started+=("$pid")
wait_for 20 test -s hang.pid
kill -TERM "$pid"
finish
ok "a run that is ended from outside ends at once and keeps what it has" is "$rc $(jq -r '.steps[0].outcome' results/first.json)" "143 ok"
ok "neither its sampler nor the step under way stay behind" eval 'wait_for 10 has_ended hang.pid && has_ended dmon.pid'

# ---- libraries ----

mkdir -p one/cublas/lib one/cudnn/lib two/cublas/lib two/nccl/lib
touch one/cublas/lib/libcublasLt.so.13 one/cudnn/lib/libcudnn_graph.so.9 two/cublas/lib/libcublasLt.so.13 two/nccl/lib/libnccl.so.2
first FAKE_NVIDIA="$tmp/one $tmp/two" ONLY=environment
ok "libraries of all folders of the package nvidia are found, the first of a name counts" is "$(sed -n "s,^library $tmp/,,p" calls | sort -u | tr '\n' ' ')" \
    "one/cublas/lib/libcublasLt.so.13 one/cudnn/lib/libcudnn_graph.so.9 two/nccl/lib/libnccl.so.2 "
first CONVOY_LIB_DIR="$tmp/two" LD_LIBRARY_PATH=/old ONLY=environment
ok "the caller's folder of libraries is the loader's too" called "^loader $tmp/two:$tmp/two/cublas/lib:$tmp/two/nccl/lib:/old\$" 2
first FAKE_NVIDIA="$tmp/one" LD_LIBRARY_PATH=/driver ONLY='memcheck|ncu'
ok "memcheck and ncu have the caller's path, which may have the driver, without NVIDIA's libraries" is "$(grep '^path of' calls | sort -u | tr '\n' ' ')" \
    "path of ncu: /driver path of sanitizer: /driver "
first FAKE_WITHOUT=cudnn ONLY='ATTENTION'
ok "where cuDNN is missing its comparison is skipped" json '.steps[0].outcome == "skipped" and .steps[0].note == "no cuDNN here"'

# ---- what is missing ----

mkdir few
for tool in bash sh env awk sed grep sort head tail tr cat date mktemp mkdir rm mv ln ls tee uname nproc timeout sleep dirname paste cmp wc; do
    ln -s "$(command -v $tool)" few/
done
: >ctl
path=$tmp/few first NVIDIA_CTL="$tmp/ctl" ONLY='environment|kernel table|PyTorch|memcheck|ncu'
ok "without nvidia-smi, Python and ncu the rest runs" json '[.steps[] | [.outcome, .note]] == [["ok", "no nvidia-smi here: neither clocks nor the driver'"'"'s version are known"],
    ["skipped", "no compute-sanitizer here"], ["ok", ""], ["skipped", "no PyTorch here"], ["skipped", "no ncu here"]]'
ok "and the GPU has the name that the benchmark gives" json '.gpu == "NVIDIA H100 80GB HBM3" and .driver == "" and .machine["clocks and caps"] == "no samples: nvidia-smi dmon did not run"'
first FAKE_GPU=H200 ONLY='step gpt2:64$'
ok "an H200 has its own predictions" json '.rows[0] | .predicted == 520000 and .gate == 560000 and .met == false'
first FAKE_GPU=B200 ONLY='step gpt2:64$'
ok "another chip has none" json '.rows[0] | .predicted == null and .gate == null and .met == null'
rc=0
env PATH="$tmp/bin:$PATH" GPU="$tmp/gpu" OUT="$tmp/ctl/results" "$gpu" first >out 2>err || rc=$?
ok "a folder that cannot be written to is said in plain words" is "$rc $(cat err)" \
    "1 gpu-first: nothing can be written to $tmp/ctl/results: Not a directory; set OUT to a folder that can be written"
rc=0
env PATH="$tmp/bin:$PATH" GPU="$tmp/none_gpu" OUT="$tmp/results" "$gpu" first >out 2>err || rc=$?
ok "a program that is missing is named" is "$rc $(grep -c 'no .*/none_gpu/convoy; make gpu-carry' err)" "1 1"

# ---- an AMD machine ----

# Samples of eight idle GPUs; one works.
"$root/tests/check/trees/unpack.pl" amd mi300x
for idle in amd/sys/bus/pci/devices/0000:{26,46,65,85,a6,c6,e5}:00.0; do echo 0 >"$idle/gpu_busy_percent"; done
: >kfd
on_amd() { path=$tmp/few first NVIDIA_CTL="$tmp/none" AMD_KFD="$tmp/kfd" AMD_SYS="$tmp/amd/sys" "$@"; }
on_amd
ok "on an AMD machine a run ends with 0" is "$rc" 0
ok "steps of NVIDIA's libraries and tools are skipped, with that reason" is "$(jq -r '.steps[] | select(.outcome == "skipped") | .name + ": " + .note' results/first.json)" \
    "what is relied on of CUDA's runtime: for NVIDIA GPUs only: it checks CUDA's runtime
products of the vocabulary, 50257 and 50304: for NVIDIA GPUs only: gpu_tests has no bench for AMD GPUs
ATTENTION=cudnn: operations and losses as with own attention: for NVIDIA GPUs only: cuDNN
tune: for NVIDIA GPUs only: it tunes cuBLASLt
memcheck of one family: for NVIDIA GPUs only: compute-sanitizer
kernel table: for NVIDIA GPUs only: gpu_tests has no bench for AMD GPUs
PyTorch gpt2 B64 T1024 bf16: no PyTorch here
ncu on five kernels: for NVIDIA GPUs only: Nsight Compute
step gpt2:4 ATTENTION=own: for NVIDIA GPUs only: AMD GPUs have no other attention"
ok "all others are ok" is "$(jq -r '[.steps[] | select(.outcome != "skipped") | .outcome + " " + (.name | split(":")[0])] | join("; ")' results/first.json)" \
    "ok environment; ok step gpt2; ok step gpt2; ok golden cases within 1e-4; ok losses as on the CPU; ok HIP graphs; ok two GPUs over RCCL; ok CONVOY_BLAS=off; ok kernels, all families in one process; ok times of operations; ok step gpt2; ok step gpt2"
ok "no run is on NVIDIA's device" is "$(grep -c 'DEVICE=cuda' calls)" 0
ok "the machine is named: GPU, kernel driver, chips, runtime" json '.machine | .GPU == "AMD Instinct MI300X" and .driver == "6.8.5" and .hip == "gfx90a gfx942" and
    .amdgpu == "8 GPUs" and (.amdhip64 | startswith("6.2 from"))'
ok "clocks and power come from the driver's files" json '.machine["clocks and caps"] | test("^[1-9][0-9]* s with load: clock 2100 to 2100 MHz, at most 137 W and 41 C$")'
ok "no prediction is claimed" json 'all(.rows[]; .predicted == null and .gate == null)'
on_amd FAKE_GPUS=1 ONLY=RCCL
ok "with one GPU nothing runs over RCCL" json '.steps[0].outcome == "skipped" and .steps[0].note == "one GPU only"'
rc=0
env PATH="$tmp/few" NVIDIA_CTL="$tmp/none" AMD_KFD="$tmp/kfd" GPU="$tmp/gpu" OUT="$tmp/results" "$gpu" test >out 2>err || rc=$?
ok "gpu.sh test is refused there" is "$rc $(cat err)" "64 gpu-test: for NVIDIA GPUs only; gpu.sh first is for AMD GPUs, too"
rc=0
env PATH="$tmp/few" NVIDIA_CTL="$tmp/none" AMD_KFD="$tmp/none" GPU="$tmp/gpu" OUT="$tmp/results" "$gpu" first >out 2>err || rc=$?
ok "without a GPU of either vendor the command says so" is "$rc $(grep -c 'no GPU here: there is no /dev/nvidiactl, nvidia-smi finds none, and there is no /dev/kfd' err)" "1 1"

# ---- a dry run ----

dry=$(dirname "$convoy")/gpu/dry_tests
if [ -x "$dry" ]; then
    mkdir dry
    ln -s "$convoy" "$dry" dry/
    rc=0
    DRY=1 DRY_FAMILIES="gelu grad_scale" GPU=$tmp/dry OUT=$tmp/results limit 100 "$gpu" first >out 2>err || rc=$?
    r=$tmp/results
    ok "a dry run of the real programs" is "$rc" 0
    ok "what needs a GPU is skipped, the rest is ok" json '[.steps[] | select(.outcome == "ok" and (.name | test("ATTENTION|CONVOY_BLAS") | not)) | .name |
        split(" ")[0]] == ["environment", "step", "step", "losses", "CUDA", "kernels,", "step"] and all(.steps[]; .outcome != "failed")'
    ok "it says that it is none" is "$(grep -c 'nothing here is a result' results/first.md) $(jq .dry results/first.json)" "1 true"
    ok "its steps have rates" json '[.rows[] | select(.unit == "tokens/s") | .value > 0] | all and length >= 3'
else
    skip "a dry run of the real programs" "no $dry: it is not built with sanitizers"
fi
done_testing
