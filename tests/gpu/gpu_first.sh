# shellcheck shell=bash
# gpu_first — the mode `first` of gpu.sh: the first command on a GPU, within LIMIT seconds (540). Sourced by gpu.sh after the others.
#
# A step has a planned cost and a most. It is skipped, and named, when its cost no longer fits into what is left of LIMIT; it is ended
# at its most, or at LIMIT. A step that fails, crashes or hangs stops no other. Results are written after each step: first.json,
# first.md (with the predictions of predicted.tsv beside each figure), and a folder `first` of logs, TAP and nvidia-smi's samples.
# MOST: the longest time of a step, in seconds. SLOWER: its factor on a machine that also does other work. The order: runtime and libraries, which everything needs; the likeliest losses of speed
# (the vocabulary's products, cuDNN); whether a step trains, with equal bits with and without its graph; the rest of correctness;
# tuning; last the kernel families, which the emulation has run already, and the long measurements. Left out: two ranks over NCCL on one GPU (not
# supported by NCCL), PyTorch in fp32, racecheck (minutes); gpu.sh test and bench have them.

seconds_left() { echo $((first_limit - ($(date +%s) - first_began))); }
has_setting() { "$GPU/convoy" help "$1" >/dev/null 2>&1; }
note() { printf '%s\n' "$*" >>"$work/note"; }
machine() { printf '%s\t%s\n' "$1" "$(quote "$2")" >>"$work/machine"; }

# planned_step — one step of the list.
planned_step() { # name, planned seconds, most seconds, command...
    local name=$1 cost=$2 most=$3 left
    wanted "$name" || return 0
    shift 3
    [ "$DRY" = 1 ] && cost=1
    left=$(seconds_left)
    if [ "$left" -lt "$cost" ]; then
        [ "$left" -ge 0 ] || left=0
        printf '%s\tskipped\t0\tit does not fit: about %s s are planned, %s s of LIMIT=%s are left\t%s\n' "$name" "$cost" "$left" "$first_limit" "$cost" \
            >>"$work/rows"
        say "skipped: $name (about $cost s are planned, $left s are left)"
        write_results
        return 0
    fi
    [ "$most" -le "$left" ] || most=$left
    [ "$most" -le "${MOST:-$most}" ] || most=$MOST
    step_end=$(($(date +%s) + most * ${SLOWER:-1})) step_cost=$cost
    step "$name" "$@"
    step_end='' step_cost=''
}

# ---- the machine ----

dmon_pid=''
# amd_samples — the same of all AMD GPUs, from the files of the driver amdgpu; caps are unknown. AMD_SYS: for tests, another /sys.
largest() { cat "$@" 2>/dev/null | sort -n | tail -1 | sed "s/${scale:-}\$//"; } # of these files; scale: digits to cut off
amd_samples() {
    local at
    echo '#Time sm pwr gtemp pclk'
    while :; do
        for at in "${AMD_SYS:-/sys}"/bus/pci/devices/*/gpu_busy_percent; do
            [ -e "$at" ] || exit
            at=${at%/*}
            echo "$(date +%T) $(largest "$at/gpu_busy_percent") $(scale=000000 largest "$at"/hwmon/*/power1_{average,input})" \
                "$(scale=000 largest "$at"/hwmon/*/temp*_input) $(scale=000000 largest "$at"/hwmon/*/freq1_input)"
        done
        sleep 1
    done
}
# dmon_start — samples of power, clocks, load and throttling, each second. It also keeps the driver loaded between processes.
dmon_start() {
    [ "$DRY" = 1 ] && return
    if [ $vendor = amd ]; then
        amd_samples >"$logs/dmon.txt" 2>&1 &
    else
        command -v nvidia-smi >/dev/null || return 0
        nvidia-smi dmon -s pucvm -o T >"$logs/dmon.txt" 2>&1 &
    fi
    dmon_pid=$!
    disown "$dmon_pid"
}
dmon_stop() {
    [ -n "$dmon_pid" ] || return 0
    kill "$dmon_pid" 2>/dev/null
    # Not waited for without end: a driver that hangs holds it.
    for _ in 1 2 3 4 5; do
        kill -0 "$dmon_pid" 2>/dev/null || break
        sleep 0.2
    done
    kill -9 "$dmon_pid" 2>/dev/null
    dmon_pid=''
}

# dmon_summary — one line of the samples in which the GPU was busy; columns by their names in the first line.
dmon_summary() {
    [ -s "$logs/dmon.txt" ] || { echo "no samples: $([ $vendor = amd ] && echo "no GPU of amdgpu in /sys" || echo "nvidia-smi dmon did not run")"; return; }
    awk '
        $1 ~ /^#/ { if (!n_columns) for (i = 1; i <= NF; i++) { name = $i; sub(/^#/, "", name); if (name != "") column[name] = ++n_columns }; next }
        column["sm"] && $column["sm"] + 0 >= 50 {
            n++
            clock = $column["pclk"] + 0; power = $column["pwr"] + 0; heat = $column["gtemp"] + 0
            if (!low || clock < low) low = clock
            if (clock > high) high = clock
            if (power > most) most = power
            if (heat > hot) hot = heat
            if (column["pviol"] && $column["pviol"] + 0 > 0) capped++
            if (column["tviol"] && $column["tviol"] + 0 > 0) heated++
        }
        END {
            if (!n) { print "no sample with load"; exit }
            printf "%d s with load: clock %d to %d MHz, at most %d W and %d C", n, low, high, most, hot
            if (column["pviol"]) printf "; power cap in %d s, thermal cap in %d s", capped, heated
            print ""
        }' "$logs/dmon.txt"
}

# describe — the page's head; anew after each step, for the clocks.
describe() {
    : >"$work/machine"
    # The program reports the name of an AMD GPU in the log of a run.
    [ -n "$gpu_name" ] || gpu_name=$(sed -n 's/.* device hip [0-9]* \(.*\) driver .*/\1/p' "$logs"/*.log 2>/dev/null | head -1)
    machine GPU "$gpu_name"
    machine driver "${driver:--}"
    machine convoy "$version"
    sed -n 's/^commit *//p' "$logs/version.txt" 2>/dev/null | while IFS= read -r line; do machine commit "$line"; done
    sed -n 's/ *$//; s/^\(cuda\|cublaslt\|nccl\|cudnn\|hip\|amdgpu\|amdhip64\|hipblaslt\|rccl\) */\1\t/p' "$logs/version.txt" 2>/dev/null | while IFS=$'\t' read -r what line; do machine "$what" "$line"; done
    machine host "$(uname -srm), $(nproc) processors, $(awk '/^MemTotal/ {printf "%.0f GiB", $2 / 1048576}' /proc/meminfo) of memory"
    machine PyTorch "${torch_version:--}"
    machine "clocks and caps" "$(if [ "$DRY" = 1 ]; then echo -; else dmon_summary; fi)"
    machine seconds "$(($(date +%s) - first_began)) of $first_limit"
}

environment() {
    within 30 "$GPU/convoy" version gpu | tee "$logs/version.txt"
    local rc=${PIPESTATUS[0]}
    uname -a
    [ "$DRY" = 1 ] && return "$rc"
    if [ $vendor = amd ]; then
        ! command -v amd-smi >/dev/null || within 60 amd-smi metric >"$logs/amd-smi.txt" 2>&1 || note "amd-smi failed: $(tail -1 "$logs/amd-smi.txt")"
        return "$rc"
    fi
    if ! command -v nvidia-smi >/dev/null; then
        note "no nvidia-smi here: neither clocks nor the driver's version are known"
        return "$rc"
    fi
    within 30 nvidia-smi -q >"$logs/nvidia-smi.txt" 2>&1 || note "nvidia-smi -q failed: $(tail -1 "$logs/nvidia-smi.txt")"
    ls -l "${CONVOY_LIB_DIR:-/nonexistent}" 2>/dev/null
    return "$rc"
}

# ---- right? ----

# worst_of — the error of a family that is nearest to its limit, from its last run: "3.1e-08 of 1e-08 in norm_bwd".
worst_of() { # family, TAP files; those that are missing do not count
    cat "${@:2}" 2>/dev/null | awk -v family="$1" '
        $1 == "#" && $2 == "worst" { error = $3; limit = $4; sub(/^# worst [^ ]* [^ ]* /, ""); test = $0; has = 1 }
        $1 == "#" && $2 == "family" { if ($3 == family && has) last = error " of " limit " in " test; has = 0 }
        END { print last }'
}

# families_first — all families in one process, then those that did not pass, each alone: after a crash the rest did not run. The
# worst error of each becomes a figure, beside its limit.
families_first() {
    local program names=${FAMILIES:-} family again='' bad='' alone='' rc error of limit worst
    program=$(test_program)
    [ "$DRY" = 1 ] && names=${DRY_FAMILIES:-norm reduce}
    # shellcheck disable=SC2086 # words
    within 180 "$GPU/$program" $names >"$logs/kernels.tap" 2>&1
    rc=$?
    for family in ${names:-$(families)}; do
        grep -q "^# family $family ok\$" "$logs/kernels.tap" || again="$again $family"
    done
    for family in $again; do
        if within 60 "$GPU/$program" "$family" >"$logs/kernels_$family.tap" 2>&1; then
            alone="$alone $family"
        else
            worst=$(worst_of "$family" "$logs/kernels_$family.tap")
            bad="$bad $family${worst:+ ($worst)}"
        fi
    done
    for family in ${names:-$(families)}; do
        read -r error of limit worst < <(worst_of "$family" "$logs/kernels.tap" "$logs/kernels_$family.tap")
        [ -z "$limit" ] || awk -v name="error of kernels $family" -v error="$error" -v limit="$limit" \
            'BEGIN { printf "%s\tnmse\t%s\t%.3f\t\n", name, error, (limit > 0 ? error / limit : error > 0) }' >>"$work/measured"
    done
    note "$(grep -c '^# family .* ok$' "$logs/kernels.tap") families passed in one process$([ $rc = 0 ] || echo " (exit code $rc)")${alone:+; alone:$alone}${bad:+; failed:$bad}"
    [ -z "$bad$alone" ] && [ $rc = 0 ]
}

# both — two ways of computing the same in 16 bits: losses and norms of gradients within 1 %. Heads are 64 wide, as GPT-2's.
# Why 1 %: roundings of bf16 (2^-9 of a number) are averaged over all gradients in a norm. On the emulation (2026-11-23, four steps of
# tests/golden/lm in bf16, products of cuBLASLt's stand-in beside own products) norms were 2.2e-4 to 4.4e-4 apart and losses 5.3e-5 at
# most, without growth from step to step. So a correct GPU has a factor of 20, and this model has more numbers to average over. A
# kernel that leaves out a tile, a head or a scale changes the norm of the first step by percents.
wide="LAYERS=2 HEADS=4 EMBED=256 CONTEXT=256 SEQ_LEN=256 BATCH_SIZE=4 GLOBAL_BATCH=4"
both() { # setting, one value, the other
    local precision=bf16
    has_setting "$1" || { note "this version has no setting $1"; return 77; }
    [ "$DRY" = 1 ] && precision=fp32
    # shellcheck disable=SC2086 # words
    train one DEVICE=$device PRECISION=$precision $wide "$1=$2" && train other DEVICE=$device PRECISION=$precision $wide "$1=$3" &&
        near one other 1e-2 && near one other 1e-2 norms
}
# attention_first — first each operation by itself, so that the one that differs is named, then losses of a training run.
attention_first() {
    local rc
    nvidia_only cuDNN || return
    has_setting ATTENTION && [ "$DRY" = 1 ] && return 77
    has_setting ATTENTION || { note "this version has no setting ATTENTION"; return 77; }
    within 60 "$GPU/gpu_tests" cudnn >"$work/attention.log" 2>&1
    rc=$?
    cat "$work/attention.log"
    # Where cuDNN is missing, that is no failure of the program.
    grep -q 'no libcudnn' "$work/attention.log" && { note "no cuDNN here"; return 77; }
    note "$(sed -n 's/.* \(attention .*: cuDNN .*\)/\1/p' "$work/attention.log" | awk 'NR > 1 { printf "; " } { printf "%s", $0 }')"
    if [ $rc != 0 ]; then
        note "the first difference: $(grep -E '^not ok|^Bail out' "$work/attention.log" | head -1)"
        return $rc
    fi
    both ATTENTION cudnn own
}
blas_first() { both CONVOY_BLAS auto off; }

# ---- fast? ----

# times_first — a short run with times of operations; its table becomes a section of the page.
times_first() {
    local model=${first_model%%:*} batch=${first_model##*:}
    [ "$DRY" = 1 ] && return 77
    has_setting CUDA_TIMES || { note "this version has no setting CUDA_TIMES"; return 77; }
    within 120 "$GPU/convoy" train MODEL="$model" DATA=synthetic SEQ_LEN="$seq" BATCH_SIZE="$batch" STEPS=10 DEVICE=$device PRECISION="$precision" SEED=1 \
        CUDA_TIMES=1 >"$logs/times.log" 2>&1 || { note "$(grep ' error ' "$logs/times.log" | head -1)"; return 1; }
    sed -n 's/.* times: //p' "$logs/times.log" | awk -v OFS='\t' '$1 != "operation" && NF >= 8 { print $1, $2, $3, $4, $5, $7, $8 }' >"$work/times"
    note "$(sed -n 's/.*times of operations: //p' "$logs/times.log" | tail -1)"
    [ -s "$work/times" ]
}

# kernels_first — without nvidia-smi the benchmark's first line has the name of the GPU.
kernels_first() { # a word in the rows' names
    kernel_table "$@"
    local rc=$?
    [ -n "$gpu_name" ] || gpu_name=$(sed -n 's/^# \(.*\), [0-9]* multiprocessors.*/\1/p' "$logs"/kernels*.tsv | head -1)
    return $rc
}

# derived — figures made of others.
derived() { cat >"$work/derived" && cat "$work/derived" >>"$work/measured"; }

# torch_first — PyTorch's step, and ours over it.
torch_first() {
    torch_step bf16 200 || return
    torch_version=$(tail -1 "$logs/torch_bf16.log" | sed -n 's/.*torch=\([^ ]*\).*/\1/p')
    awk -F'\t' '
        $1 == "step gpt2 B64 T1024 bf16" { ours = $3 }
        $1 == "PyTorch gpt2 B64 T1024 bf16 compile" { theirs = $3 }
        END { if (ours > 0 && theirs > 0) printf "gpt2 B64 T1024 bf16 over PyTorch compile\ttimes\t%.3f\t\t\n", ours / theirs }' "$work/measured" | derived
}

tune_first() {
    local seconds
    [ "$DRY" = 1 ] && return 77
    nvidia_only "it tunes cuBLASLt" || return
    "$GPU/gpu_tests" list | grep -qx 'command tune' || { note "this gpu_tests has no tune"; return 77; }
    # It ends by itself, so that what was measured until then is a result.
    seconds=$((step_end - $(date +%s) - 15))
    [ "$seconds" -lt 80 ] || seconds=80
    TUNE_SECONDS=$seconds within 100 "$GPU/gpu_tests" tune "$logs/tuned.txt"
}

memcheck_first() { sanitizer memcheck "$GPU/gpu_tests" norm; }

# ncu_first — Nsight Compute's counters of five kernels, two launches each, after those that warm up.
ncu_first() {
    local ncu kernel rc=0
    [ "$DRY" = 1 ] && return 77
    nvidia_only "Nsight Compute" || return
    for ncu in "$(command -v ncu)" /usr/local/cuda/bin/ncu /opt/nvidia/nsight-compute/*/ncu; do [ -x "$ncu" ] && break; done
    [ -x "$ncu" ] || { note "no ncu here"; return 77; }
    for kernel in attention_bwd:attention_bwd_mma attention_fwd:attention_fwd_mma xent:xent_row norm_bwd:norm_bwd gelu_fwd:gelu_fwd; do
        # ncu brings libraries of its own; those of PyPI would hide them
        within 40 env LD_LIBRARY_PATH="$caller_path" "$ncu" --clock-control none --launch-skip 6 --launch-count 2 -k "regex:${kernel#*:}" --set full --csv --page raw \
            --log-file "$logs/ncu_${kernel%%:*}.csv" "$GPU/gpu_tests" bench "$([ "${kernel%%_*}" != attention ] || echo 'own ')${kernel%%:*}" || rc=1
        if grep -qs ERR_NVGPUCTRPERM "$logs/ncu_${kernel%%:*}.csv"; then
            note "the driver does not let this user read counters (ERR_NVGPUCTRPERM)"
            return 77
        fi
    done
    return $rc
}

# paths_of — which way a run went, as its log has it: library of products, refused products, attention, graphs.
paths_of() { # log
    {
        sed -n 's/.* \(products by .*\)/\1/p; s/.* \(attention .*: cuDNN .*\)/\1/p; s/.* \(attention .*: own .*\)/\1/p
            s/.*as \(CUDA\|HIP\) graphs: the first has \(.*\)/\1 graphs: \2/p; s/.*\(cannot be made a [A-Z]* graph.*\)/\1/p' "$1" | sort -u
        [ $vendor = amd ] || echo "products that cuBLASLt refused: $(grep -c 'cuBLASLt does not support' "$1")"
    } | awk 'NR > 1 { printf "; " } { printf "%s", $0 } END { print "" }'
}

# model_first — and the share of the peak that it has, as a figure of its own.
model_first() { # model:batch, settings...
    model_rate "$@" || return
    note "$(paths_of "$bench_log")"
    [ $# = 1 ] || return 0
    awk -F'\t' -v start="step ${1%%:*} " '
        index($1, start) == 1 && $4 != "" { name = $1; sub(/^step /, "mfu ", name); printf "%s\t%%\t%.1f\t\t\n", name, $4 * 100 }' "$work/measured" | derived
}

# steps_with_graphs — the step of first_model, and its losses and norms of gradients for steps_without_graphs.
losses_and_norms() { sed -n 's/.*"loss":\([^,]*\),.*"grad_norm":\([^,]*\),.*/\1 \2/p' "$work/bench.jsonl"; }
steps_with_graphs() {
    rm -f "$work/graphs"
    model_first "$first_model" || return
    { echo "batch $bench_batch" && losses_and_norms; } >"$work/graphs"
}
# steps_without_graphs — the same step with CUDA_GRAPH=off: its rate, and that it gives the same bits.
steps_without_graphs() {
    model_first "$first_model" CUDA_GRAPH=off || return
    [ -s "$work/graphs" ] || { note "no steps with graphs to compare with"; return 0; }
    { echo "batch $bench_batch" && losses_and_norms; } | paste -d '|' "$work/graphs" - | awk -F '|' '
        NR == 1 && $1 != $2 { print "not compared: " $1 " with graphs, " $2 " without"; ended = 1; exit 0 }
        $1 != $2 { printf "step %d differs: loss and norm %s with graphs, %s without", NR - 1, $1, $2; ended = 1; exit 1 }
        END { if (!ended) { printf "%d steps have the same bits with graphs", NR - 1; exit NR < 2 } }' >"$work/graphs.note"
    local rc=$?
    note "$(cat "$work/graphs.note")"
    return $rc
}

other_way() { # setting=value
    [ "$1" != ATTENTION=own ] || nvidia_only "AMD GPUs have no other attention" || return
    has_setting "${1%%=*}" || { note "this version has no setting ${1%%=*}"; return 77; }
    model_first "$first_model" "$1"
}

# rccl_first — runs a job on two AMD GPUs. NVIDIA GPUs are left out, because their first machine has only one.
rccl_first() {
    [ "$(gpus)" -ge 2 ] || { note "one GPU only"; return 77; }
    base && train rccl DEVICE=$device N_GPU_EACH_NODE=2 BATCH_SIZE=1 BACKEND=nccl && near rccl gpu
}

# ---- all ----

first_costs() { # model: seconds that a run of it takes
    case $1 in gpt2-xl) echo 60 ;; gpt2-large) echo 40 ;; gpt2-medium) echo 30 ;; *) echo 20 ;; esac
}

run_first() {
    local row
    first_limit=${LIMIT:-540} first_began=$(($(date +%s) - SECONDS)) torch_version='' first_model=gpt2:64 rest="gpt2-medium:64 gpt2-large:32 gpt2-xl:16"
    # Products may be slow, so a small batch is tried first.
    [ $vendor = nvidia ] || first_model=gpt2:4 rest=gpt2:64
    unset LIMIT
    trap 'dmon_stop; rm -rf "$work"' EXIT
    bench_settings
    [ "$DRY" = 1 ] && first_model=gpt2-nano:2
    text_for_training
    dmon_start
    planned_step "what is relied on of CUDA's runtime" 10 60 runtime
    planned_step "environment" 5 60 environment
    planned_step "products of the vocabulary, 50257 and 50304" 15 60 kernels_first x50
    planned_step "ATTENTION=cudnn: operations and losses as with own attention" 25 90 attention_first
    planned_step "step $first_model" 20 90 steps_with_graphs
    planned_step "step $first_model CUDA_GRAPH=off, the same bits" 20 90 steps_without_graphs
    planned_step "golden cases within 1e-4" 20 90 golden
    planned_step "losses as on the CPU" 25 90 as_on_cpu
    planned_step "$runtime graphs: the same bits as one by one" 20 90 graphs
    [ $vendor = nvidia ] || planned_step "two GPUs over RCCL: losses as on one" 25 90 rccl_first
    planned_step "CONVOY_BLAS=off: losses as with the vendor's library" 20 90 blas_first
    planned_step "tune" 45 100 tune_first
    planned_step "kernels, all families in one process" 60 240 families_first
    planned_step "memcheck of one family" 40 90 memcheck_first
    planned_step "kernel table" 45 120 kernels_first
    planned_step "times of operations" 20 90 times_first
    planned_step "PyTorch gpt2 B64 T1024 bf16" 110 200 torch_first
    planned_step "ncu on five kernels" 60 120 ncu_first
    for row in ${MODELS:-$rest}; do
        [ "$DRY" = 1 ] && row=gpt2-nano:1
        planned_step "step $row" "$(first_costs "${row%%:*}")" 120 model_first "$row"
        [ "$DRY" = 1 ] && break
    done
    # What a choice of the program is worth: its other ways.
    planned_step "step $first_model CONVOY_BLAS=plain" 20 90 other_way CONVOY_BLAS=plain
    planned_step "step $first_model ATTENTION=own" 20 90 other_way ATTENTION=own
    dmon_stop
    write_last
    [ $failures = 0 ]
}
