#!/bin/bash
# gpu.sh — tests and benchmarks for a machine with an NVIDIA GPU (make gpu-test, make gpu-bench); needs bash, coreutils, awk.
#
#   gpu.sh look       is there a GPU? else prints why not, and exits with 1
#   gpu.sh test       every kernel against the CPU's plain truth, golden cases, the same losses as on the CPU, compute-sanitizer on a
#                     short run, two ranks over UCX and over NCCL on one GPU, sharding, 16 bits, a checkpoint from GPU to CPU,
#                     eval, questions, 200 steps of gpt2 in bf16 beside fp32
#   gpu.sh bench      kernels against the copy bandwidth of the same run, whole steps, beside PyTorch
#
# GPU: folder with the programs (build/gpu). OUT: where the results go (tests/gpu/results): one JSON, one table. MODELS: what
# bench trains. ONLY: an expression (grep -E) for the names to run; a step that needs the output of another one fails without it.
# Results are written after each step, so a run that is cut off keeps them. DRY=1: everything on the CPU and the emulation with
# the smallest sizes, to try this script; nothing it writes is a result.
# NVIDIA's libraries: CONVOY_LIB_DIR, else PyPI's folders, else the loader's paths.
set -u
mode=${1:-}
here=$(cd "$(dirname "$0")" && pwd)
top=$(cd "$here/../.." && pwd)
GPU=${GPU:-$top/build/gpu}
case $GPU in /*) ;; *) GPU=$top/$GPU ;; esac
results=${OUT:-$here/results}
unset OUT # a setting of the program, too
DRY=${DRY:-0}
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-gpu.XXXXXX") || exit 1
trap 'rm -rf "$work"' EXIT
cd "$top" || exit 1

say() { printf '%s\n' "$*" >&2; }

look() {
    [ "$DRY" = 1 ] && return 0
    if [ ! -e /dev/nvidiactl ] && ! nvidia-smi -L >/dev/null 2>&1; then
        say "gpu-$mode: no NVIDIA GPU here: there is no /dev/nvidiactl and nvidia-smi finds none; run this on a machine with one" \
            "(sm_80 or newer; in a container with --gpus all). DRY=1 tries the script itself."
        return 1
    fi
}

# NVIDIA's libraries of PyPI's packages, all in one folder, for they look for each other beside themselves.
find_libraries() {
    local python folder file
    [ -n "${CONVOY_LIB_DIR:-}" ] && return
    for python in python3 /opt/torch/.venv/bin/python3; do
        folder=$("$python" -c 'import nvidia; print(list(nvidia.__path__)[0])' 2>/dev/null) && break
    done
    [ -n "${folder:-}" ] || return
    mkdir -p "$work/lib"
    for file in "$folder"/*/lib/lib*.so*; do
        [ -e "$file" ] && ln -sf "$file" "$work/lib/"
    done
    export CONVOY_LIB_DIR=$work/lib LD_LIBRARY_PATH=$work/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
}

# ---- results ----

rows=()       # name <tab> outcome <tab> seconds <tab> note: of test
measured=()   # name <tab> unit <tab> value <tab> part of the limit <tab> ms: of bench
quote() { printf '%s' "$1" | tr -d '\000-\010\013-\037' | sed 's/\\/\\\\/g; s/"/\\"/g; s/\t/ /g' | tr '\n' ' '; }
number() { case $1 in '' | *[!0-9.eE+-]*) printf null ;; *) printf '%s' "$1" ;; esac; }

# Asked once: on a bare machine nvidia-smi takes seconds.
gpu_name='dry run, no GPU' driver=''
look_at_gpu() {
    [ "$DRY" = 1 ] && return
    gpu_name=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -1)
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | head -1)
}

wanted() { [ -z "${ONLY:-}" ] || grep -qE -- "$ONLY" <<<"$1"; }

# Whatever hangs is ended: the rest is still to be seen.
within() { timeout -k 20 "$@"; }

# begin — one step of the test: its output goes to a log of its own.
step() { # name, command...
    local name=$1 began rc log
    wanted "$name" || return 0
    shift
    log=$work/$(printf '%s' "$name" | tr -c 'a-z0-9' '_').log
    began=$(date +%s)
    "$@" >"$log" 2>&1
    rc=$?
    note=$(cat "$work/note" 2>/dev/null)
    rm -f "$work/note"
    case $rc in
    0) outcome=ok ;;
    77)
        outcome=skipped
        [ -n "$note" ] || note="a dry run has no GPU"
        ;;
    *) outcome=failed note=${note:-$(grep -E ' error |not ok|Bail out|ERROR SUMMARY' "$log" | head -3)} ;;
    esac
    rows+=("$name	$outcome	$(($(date +%s) - began))	$(quote "$note")")
    say "$outcome: $name${note:+ ($(quote "$note"))}"
    [ "$outcome" != failed ] || { failures=$((failures + 1)) && tail -20 "$log" >&2; }
    write_results
}

write_results() {
    local stamp base row name outcome seconds text unit value part ms first=1
    mkdir -p "$results" || return 1
    stamp=$(date -u +%Y-%m-%dT%H:%M:%SZ)
    base=$results/$mode
    {
        printf '{"what":"gpu-%s","when":"%s","dry":%s,"gpu":"%s","driver":"%s","version":"%s","precision":"%s","rows":[' "$mode" "$stamp" \
            "$([ "$DRY" = 1 ] && echo true || echo false)" "$(quote "$gpu_name")" "$driver" "$(quote "$("$GPU/convoy" version 2>/dev/null | head -1)")" \
            "${precision:-}"
        for row in "${rows[@]}"; do
            IFS='	' read -r name outcome seconds text <<<"$row"
            printf '%s\n{"name":"%s","outcome":"%s","seconds":%s,"note":"%s"}' "$([ $first = 1 ] || echo ,)" "$name" "$outcome" \
                "$(number "$seconds")" "$text"
            first=0
        done
        for row in "${measured[@]}"; do
            name=$(cut -f1 <<<"$row") unit=$(cut -f2 <<<"$row") value=$(cut -f3 <<<"$row") part=$(cut -f4 <<<"$row") ms=$(cut -f5 <<<"$row")
            printf '%s\n{"name":"%s","unit":"%s","value":%s,"of_limit":%s,"ms":%s}' "$([ $first = 1 ] || echo ,)" "$(quote "$name")" \
                "$unit" "$(number "$value")" "$(number "$part")" "$(number "$ms")"
            first=0
        done
        printf '\n]}\n'
    } >"$base.json.new" && mv "$base.json.new" "$base.json"
    {
        echo "# gpu-$mode on $gpu_name, driver $driver, $stamp"
        [ "$DRY" = 1 ] && echo && echo "A dry run without a GPU: nothing here is a result."
        echo
        if [ ${#rows[@]} -gt 0 ]; then
            echo '| what | outcome | seconds | note |'
            echo '|---|---|---|---|'
            for row in "${rows[@]}"; do awk -F'\t' '{gsub(/\|/, "\\|"); print "| " $1 " | " $2 " | " $3 " | " $4 " |"}' <<<"$row"; done
            echo
        fi
        if [ ${#measured[@]} -gt 0 ]; then
            echo '| what | value | unit | part of the limit | ms |'
            echo '|---|---|---|---|---|'
            for row in "${measured[@]}"; do awk -F'\t' '{print "| " $1 " | " $3 " | " $2 " | " $4 " | " $5 " |"}' <<<"$row"; done
        fi
    } >"$base.md"
}
write_last() {
    write_results && say "written: $results/$mode.json $results/$mode.md"
}

# ---- test ----

device=cuda
[ "$DRY" = 1 ] && device=cpu
export STATUS_PORT=0 JOIN_TIMEOUT=60s
nano="MODEL=gpt2-nano SEQ_LEN=64 BATCH_SIZE=2 GLOBAL_BATCH=4 STEPS=10 SEED=3 LR=1e-3 PRECISION=fp32"

# train — losses of the steps go to $work/NAME.losses.
train() { # name, settings...
    local name=$1
    shift
    rm -f "$work/$name.jsonl"
    # shellcheck disable=SC2086 # words
    within 300 "$GPU/convoy" train $nano DATA="$work/text" METRICS_FILE="$work/$name.jsonl" "$@" || return
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$work/$name.jsonl" >"$work/$name.losses"
    [ -s "$work/$name.losses" ]
}

# near — are the losses of two runs within 1e-4 of each other, or within $3? Notes how far apart they are.
near() {
    paste "$work/$1.losses" "$work/$2.losses" | awk -v out="$work/note" -v most="${3:-1e-4}" '
        { d = ($1 - $2) / $2; if (d < 0) d = -d; if (d > worst || d != d) worst = d; if ($1 == "" || $2 == "") bad = 1 }
        END { printf "%d losses, %.1e apart at most\n", NR, worst >out; exit bad || !(worst <= most) || NR == 0 }'
}

# two — two nodes of one worker each on this machine, the same GPU for both.
two() { # name, settings...
    local name=$1 port=$((20000 + RANDOM % 20000)) rc
    shift
    rm -f "$work/$name.jsonl"
    # shellcheck disable=SC2086 # all: UCX over TCP too, which BACKEND=ucx takes only when it is asked to
    UCX_TLS="${UCX_TLS-all}" JOB_TOKEN=0123456789abcdef0123 NCCL_HOSTID=convoy-b NODE_ID=1 within "${LIMIT:-300}" "$GPU/convoy" train $nano DATA="$work/text" N_NODES=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port "$@" >"$work/$name.1" 2>&1 &
    # shellcheck disable=SC2086
    UCX_TLS="${UCX_TLS-all}" JOB_TOKEN=0123456789abcdef0123 NCCL_HOSTID=convoy-a NODE_ID=0 within "${LIMIT:-300}" "$GPU/convoy" train $nano DATA="$work/text" N_NODES=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port METRICS_FILE="$work/$name.jsonl" "$@"
    rc=$?
    wait $! || rc=$?
    cat "$work/$name.1"
    [ $rc = 0 ] || return $rc
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$work/$name.jsonl" >"$work/$name.losses"
}

kernels() { # family
    if [ "$DRY" = 1 ]; then within 300 "$GPU/dry_tests" "$1"; else within 300 "$GPU/gpu_tests" "$1"; fi
}
runtime() {
    [ "$DRY" = 1 ] && return 77
    within 120 "$GPU/gpu_tests" runtime
}
golden() {
    [ "$DRY" = 1 ] && return 77
    GOLDEN_DEVICE=cuda within 300 "$GPU/gpu_tests" golden
}
# What others are compared with, where ONLY has left that step out.
base() { [ -s "$work/gpu.losses" ] || train gpu DEVICE=$device; }
as_on_cpu() { train cpu DEVICE=cpu && train gpu DEVICE=$device && near gpu cpu; }
# graphs — CUDA_GRAPH=auto and off: the same bits, with dropout and accumulation.
graphs() {
    train whole DEVICE=$device DROPOUT=0.1 BATCH_SIZE=1 && train eager DEVICE=$device DROPOUT=0.1 BATCH_SIZE=1 CUDA_GRAPH=off &&
        cmp "$work/whole.losses" "$work/eager.losses"
}
two_graphs() { two ucx_eager DEVICE=$device BACKEND=ucx CUDA_GRAPH=off && cmp "$work/ucx.losses" "$work/ucx_eager.losses"; }
over_ucx() { base && two ucx DEVICE=$device BACKEND=ucx && near ucx gpu; }
# NCCL's manual: two ranks on one device are "not supported and may lead to hangs". So neither a refusal nor a hang is ours.
over_nccl() {
    local rc
    [ "$DRY" = 1 ] && return 77
    base || return
    LIMIT=90 two nccl DEVICE=cuda BACKEND=nccl
    rc=$?
    [ $rc = 0 ] && { near nccl gpu; return; }
    if grep -hiqE 'duplicate gpu|NCCL refuses' "$work"/*nccl*; then
        echo "NCCL refuses two ranks on one GPU here" >"$work/note"
        return 77
    fi
    [ $rc = 124 ] || [ $rc = 137 ] || return 1
    echo "two ranks on one GPU came to no end within 90 s, which NCCL's manual foresees" >"$work/note"
    return 77
}
sharded() { base && two full DEVICE=$device BACKEND=ucx SHARD=full && near full gpu; }
squeezed() { two int8 DEVICE=$device BACKEND=ucx COMPRESS=int8 && tail -1 "$work/int8.losses" >"$work/note"; }
checkpoint() {
    rm -rf "$work/ckpt"
    train half DEVICE=$device STEPS=10 CHECKPOINT_DIR="$work/ckpt" CHECKPOINT_EVERY=5 || return
    rm -rf "$work/ckpt/step-00000010"
    train rest DEVICE=cpu STEPS=10 CHECKPOINT_DIR="$work/ckpt" RESUME=required || return
    tail -5 "$work/cpu.losses" >"$work/tail.losses"
    near rest tail
}
# Passes in 16 bits: losses beside those of fp32, and the same bits when the model is shared out. A CPU has fp32 alone.
narrow() { # precision
    local as=$1
    [ "$DRY" = 1 ] && as=fp32
    base && train narrow DEVICE=$device PRECISION="$as" && near narrow gpu 1e-2 &&
        two narrow_two DEVICE=$device PRECISION="$as" BACKEND=ucx && two narrow_full DEVICE=$device PRECISION="$as" BACKEND=ucx SHARD=full &&
        cmp "$work/narrow_two.losses" "$work/narrow_full.losses"
}
# questions — a SQuAD file in which each answer can be read off.
questions() {
    awk 'BEGIN {
        printf "{\"version\":\"v2.0\",\"data\":[{\"title\":\"boxes\",\"paragraphs\":["
        split("red blue green white black", colour, " ")
        for (i = 1; i <= 24; i++) {
            text = "Box " i " is " colour[i % 5 + 1] " and weighs " i * 3 " grams."
            printf "%s{\"context\":\"%s\",\"qas\":[{\"id\":\"q%d\",\"question\":\"What colour is box %d?\",\"is_impossible\":false,", \
                (i > 1 ? "," : ""), text, i, i
            printf "\"answers\":[{\"text\":\"%s\",\"answer_start\":%d}]}]}", colour[i % 5 + 1], index(text, colour[i % 5 + 1]) - 1
        }
        print "]}]}"
    }'
}
answers() {
    questions >"$work/boxes.json" && rm -rf "$work/qa" || return
    train qa DEVICE=cpu TASK=qa DATA="$work/boxes.json" && train qa_gpu DEVICE=$device TASK=qa DATA="$work/boxes.json" \
        CHECKPOINT_DIR="$work/qa" && near qa_gpu qa || return
    evaluated qa boxes.json '"f1":'
}
# evaluated — the same number from a checkpoint on the GPU and on the CPU, in fp32.
evaluated() { # folder, data, name
    local where
    for where in $device cpu; do
        within 120 "$GPU/convoy" eval DEVICE="$where" PRECISION=fp32 CHECKPOINT_DIR="$work/$1" VAL_DATA="$work/$2" JSON=1 >"$work/eval.$where" || return
        sed -n "s/.*$3\([^,}]*\).*/\1/p" "$work/eval.$where" >"$work/eval_$where.losses"
    done
    near "eval_$device" eval_cpu
}
# curve — gpt2, 200 steps, on tinyshakespeare where that was carried along: bf16 beside fp32, step by step, within 1 %.
curve() {
    local text=$GPU/tinyshakespeare.txt of="MODEL=gpt2 SEQ_LEN=256 BATCH_SIZE=8 GLOBAL_BATCH=8 STEPS=200 LR=3e-4" what=tinyshakespeare
    [ -s "$text" ] || text=$work/text what="this system's licences"
    [ "$DRY" = 1 ] && of=STEPS=20
    # shellcheck disable=SC2086 # words
    train curve_fp32 DEVICE=$device DATA="$text" $of &&
        train curve DEVICE=$device DATA="$text" $of PRECISION="$([ "$DRY" = 1 ] && echo fp32 || echo bf16)" && near curve curve_fp32 1e-2
    local rc=$?
    [ -s "$work/note" ] && echo "on $what" >>"$work/note"
    return $rc
}
# collectives — nothing wrong in any; between one GPU and itself nothing moves, but all the rest is as between several.
collectives() {
    local n
    n=$(gpus)
    within 300 "$GPU/convoy" bench DEVICE=$device N_GPU_EACH_NODE="$n" BENCH_MAX=4 JSON=1 >"$work/collectives" &&
        grep -q '"wrong":' "$work/collectives" && echo "$n GPUs, $(sed -n 's/.*"transport":[^"]*"\([^"]*\)".*/\1/p' "$work/collectives")" >"$work/note"
}
gpus() { if [ "$DRY" = 1 ]; then echo 2; else nvidia-smi -L 2>/dev/null | grep -c ^GPU; fi; }
generates() { within 120 "$GPU/convoy" generate DEVICE=$device CHECKPOINT_DIR="$work/ckpt" PROMPT=The TOKENS=8 SEED=1; }
sanitizer() { # tool, command...
    local tool=$1
    shift
    command -v compute-sanitizer >/dev/null || { echo "no compute-sanitizer here" >"$work/note"; return 77; }
    [ "$DRY" = 1 ] && return 77
    within 300 compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 9 "$@" >"$work/sanitizer" 2>&1
    local rc=$?
    cat "$work/sanitizer"
    if grep -q 'Device not supported' "$work/sanitizer"; then
        echo "compute-sanitizer does not support this device" >"$work/note"
        return 77
    fi
    return $rc
}

families() { sed -n 's/^    X(.*/&/p' "$here/real.h" | grep -o '([a-z_]*)' | tr -d '()'; }

run_test() {
    local family
    failures=0
    # Every family of kernels; a dry run takes two.
    for family in $(families); do
        [ "$DRY" = 1 ] && case $family in norm | reduce) ;; *) continue ;; esac
        step "kernels $family" kernels "$family"
    done
    cat /usr/share/common-licenses/* 2>/dev/null | head -c 300000 >"$work/text"
    [ -s "$work/text" ] || cat "$top"/*.md "$top"/src/*/*.c | head -c 300000 >"$work/text"
    step "what we lean on of CUDA's runtime" runtime
    step "golden cases within 1e-4" golden
    step "losses as on the CPU" as_on_cpu
    step "CUDA_GRAPH=off: the same bits" graphs
    step "two ranks over UCX" over_ucx
    step "two ranks, CUDA_GRAPH=off: the same bits" two_graphs
    step "two ranks over NCCL" over_nccl
    step "SHARD=full over UCX" sharded
    step "COMPRESS=int8 over UCX" squeezed
    step "bf16: losses within 1 %, the same bits with SHARD=full" narrow bf16
    step "fp16: losses within 1 %, the same bits with SHARD=full" narrow fp16
    step "a checkpoint of the GPU on the CPU" checkpoint
    step "eval as on the CPU" evaluated ckpt text '"loss":'
    step "questions: losses and f1 as on the CPU" answers
    step "gpt2, 200 steps: bf16 within 1 % of fp32" curve
    step "generate" generates
    step "collectives" collectives
    # shellcheck disable=SC2086
    step "compute-sanitizer memcheck, training" sanitizer memcheck "$GPU/convoy" train $nano STEPS=2 DATA="$work/text" DEVICE=cuda
    step "compute-sanitizer memcheck, kernels norm" sanitizer memcheck "$GPU/gpu_tests" norm
    for family in norm matmul attention; do
        step "compute-sanitizer racecheck, kernels $family" sanitizer racecheck "$GPU/gpu_tests" "$family"
    done
    write_last
    [ $failures = 0 ]
}

# ---- bench ----

models="gpt2:64 gpt2-medium:64 gpt2-large:32 gpt2-xl:16" # with the batches of the issue's table; smaller where memory is short
bench_steps=30

steps_of() { # model, batch, precision, settings... -> the median of the last steps, and mfu of the console
    local model=$1 batch=$2
    rm -f "$work/bench.jsonl"
    timeout 500 "$GPU/convoy" train MODEL="$model" DATA=synthetic SEQ_LEN="$seq" BATCH_SIZE="$batch" STEPS=$bench_steps DEVICE=$device PRECISION="$3" SEED=1 \
        METRICS_FILE="$work/bench.jsonl" "${@:4}" >"$work/bench.log" 2>&1
}

# measure — one row of the results.
measure() {
    measured+=("$1")
    say "measured: $1"
    write_results
}

bench_model() { # model:batch, settings...
    local model=${1%%:*} batch=${1##*:} rc=75 ms
    wanted "step $*" || return 0
    while [ "$batch" -ge 1 ]; do
        steps_of "$model" "$batch" "$precision" "${@:2}"
        rc=$?
        [ $rc = 75 ] || break
        grep -q 'out of memory' "$work/bench.log" || break
        batch=$((batch / 2))
    done
    # What the program says of products, graphs and events: which way it goes here is known to no other machine.
    grep -E 'cuBLASLt|CUDA graph|products by|an event in a graph' "$work/bench.log" >&2
    if [ $rc != 0 ]; then
        say "failed: $model: $(grep ' error ' "$work/bench.log" | head -1)"
        failures=$((failures + 1))
        return
    fi
    ms=$(sed -n 's/.*"step_ms":\([^,}]*\).*/\1/p' "$work/bench.jsonl" | tail -n +$((bench_steps / 3)) | sort -g | awk '{v[NR] = $1} END {print v[int((NR + 1) / 2)]}')
    measure "step $model B$batch T$seq $precision${2:+ $2}	tokens/s	$(awk -v b="$batch" -v t="$seq" -v ms="$ms" 'BEGIN {printf "%.0f", b * t / ms * 1000}')	$(
        grep -o 'mfu [0-9.]*%' "$work/bench.log" | tail -1 | awk '{printf "%.3f", $2 / 100}')	$ms"
}

# Of its last line, "… tokens_per_s=MEDIAN best_tokens_per_s=BEST …", the median.
torch_rate() { tail -1 "$1" | grep -o 'tokens_per_s=[0-9.]*' | head -1 | sed 's/.*=//'; }

bench_torch() {
    local peer=$GPU/torch_gpt2.py python line
    for python in python3 /opt/torch/.venv/bin/python3; do "$python" -c 'import torch' 2>/dev/null && break || python=; done
    if [ -z "$python" ] || [ ! -f "$peer" ] || [ "$DRY" = 1 ]; then
        say "skipped: PyTorch's step: $([ -n "$python" ] && echo "no torch_gpt2.py in $GPU" || echo "no PyTorch here")"
        return
    fi
    for line in "bf16 --dtype bf16" "fp32 --dtype fp32"; do
        wanted "PyTorch gpt2 B64 T1024 ${line%% *}" || continue
        # shellcheck disable=SC2086
        within 400 "$python" "$peer" --device cuda ${line#* } --batch 64 --seq 1024 --vocab 50304 --compile --attention sdpa --fused --steps 30 \
            --warmup 10 >"$work/torch.log" 2>&1 || { say "failed: PyTorch ${line%% *}: $(tail -1 "$work/torch.log")"; continue; }
        measure "PyTorch gpt2 B64 T1024 ${line%% *} compile	tokens/s	$(torch_rate "$work/torch.log")		"
    done
}

bench_collectives() {
    local most=1024
    [ "$DRY" = 1 ] && most=4
    within 300 "$GPU/convoy" bench DEVICE=$device N_GPU_EACH_NODE="$(gpus)" BENCH_MAX=$most >"$work/collectives" ||
        { say "failed: collectives" && failures=$((failures + 1)) && return; }
    say "$(head -1 "$work/collectives")"
    # the largest of each: name, "1.0 GiB", runs, median and best us, bus GB/s …
    while read -r name size unit us bus; do
        measure "$name $size $unit, $(gpus) ranks	bus GB/s	$bus		$(awk -v us="$us" 'BEGIN {printf "%.3f", us / 1000}')"
    done < <(awk 'NR > 2 {last[$1] = $1 " " $2 " " $3 " " $5 " " $7} END {for (name in last) print last[name]}' "$work/collectives" | sort)
}

run_bench() {
    local row
    failures=0
    seq=1024
    if [ "$DRY" = 1 ]; then
        models=gpt2-nano:2 bench_steps=6 seq=32 precision=fp32
    else
        : >"$work/kernels"
        if wanted kernels; then within 300 "$GPU/gpu_tests" bench >"$work/kernels" || failures=1; fi
        while IFS= read -r row; do
            case $row in '#'*) say "$row" ;; *) measure "$row" ;; esac
        done <"$work/kernels"
        # The best precision that this version has.
        precision=bf16
        "$GPU/convoy" config PRECISION=bf16 >/dev/null 2>&1 || precision=fp32
    fi
    for row in ${MODELS:-$models}; do bench_model "$row"; done
    [ "$DRY" = 1 ] || bench_model gpt2:64 CUDA_GRAPH=off
    [ "$(gpus)" -lt 2 ] || bench_collectives
    bench_torch
    write_last
    [ $failures = 0 ]
}

case $mode in
look) look ;;
test | bench)
    look || exit 1
    for program in convoy "$([ "$DRY" = 1 ] && echo dry_tests || echo gpu_tests)"; do
        [ -x "$GPU/$program" ] || { say "gpu-$mode: no $GPU/$program; make gpu-carry builds it where nvcc is"; exit 1; }
    done
    find_libraries
    look_at_gpu
    "run_$mode"
    ;;
*)
    say "gpu.sh look|test|bench"
    exit 64
    ;;
esac
