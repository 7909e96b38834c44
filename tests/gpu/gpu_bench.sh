# shellcheck shell=bash
# gpu_bench — the mode `bench` of gpu.sh, and what `first` shares with it: whole steps of models, beside PyTorch. Sourced by gpu.sh
# after gpu_lib.sh.

models="gpt2:64 gpt2-medium:64 gpt2-large:32 gpt2-xl:16" # with the batches of the issue's table; smaller where memory is short
bench_steps=30

# steps_of — trains for a few steps; its log stays in $logs.
steps_of() { # model, batch, precision, settings... -> $work/bench.jsonl, $bench_log
    local model=$1 batch=$2
    bench_log=$logs/bench_${model}_B$batch$(printf '_%s' "${@:4}" | tr -c 'a-zA-Z0-9_' '_').log
    rm -f "$work/bench.jsonl"
    within 500 "$GPU/convoy" train MODEL="$model" DATA=synthetic SEQ_LEN="$seq" BATCH_SIZE="$batch" STEPS=$bench_steps DEVICE=$device PRECISION="$3" SEED=1 \
        METRICS_FILE="$work/bench.jsonl" "${@:4}" >"$bench_log" 2>&1
}

# measure — one row of the results.
measure() {
    printf '%s\n' "$1" >>"$work/measured"
    say "measured: $1"
    write_results
}

# median_ms — of the last two thirds of the steps.
median_ms() {
    sed -n 's/.*"step_ms":\([^,}]*\).*/\1/p' "$work/bench.jsonl" | tail -n +$((bench_steps / 3)) | sort -g |
        awk '{v[NR] = $1} END {if (NR) print v[int((NR + 1) / 2)]}'
}

# train_smaller — as many samples at a time as there is memory for, from $batch down.
train_smaller() { # model, settings...
    local rc=75
    while [ "$batch" -ge 1 ]; do
        steps_of "$1" "$batch" "$precision" "${@:2}"
        rc=$?
        [ $rc = 75 ] || break
        grep -q 'out of memory' "$bench_log" || break
        batch=$((batch / 2))
    done
    return $rc
}

# model_rate — trains a model and adds the row of its rate. 0: measured.
model_rate() { # model:batch, settings...
    local model=${1%%:*} batch=${1##*:} ms rc
    train_smaller "$model" "${@:2}"
    rc=$? bench_batch=$batch
    # What the program says of products, graphs and events: which way it goes here is known to no other machine.
    grep -E 'cuBLASLt|(CUDA|HIP) graph|products by|attention by|an event in a graph' "$bench_log" >&2
    if [ $rc != 0 ]; then
        echo "$model: exit code $rc: $(grep ' error ' "$bench_log" | head -1)" >"$work/note"
        return $rc
    fi
    ms=$(median_ms)
    [ -n "$ms" ] || { echo "$model: no step was written to METRICS_FILE" >"$work/note"; return 1; }
    measure "step $model B$batch T$seq $precision${2:+ $2}	tokens/s	$(awk -v b="$batch" -v t="$seq" -v ms="$ms" 'BEGIN {printf "%.0f", b * t / ms * 1000}')	$(
        grep -o 'mfu [0-9.]*%' "$bench_log" | tail -1 | awk '{printf "%.3f", $2 / 100}')	$ms"
}

bench_model() { # model:batch, settings...
    wanted "step $*" || return 0
    model_rate "$@" && return
    say "failed: $(cat "$work/note")"
    failures=$((failures + 1))
}

# Of its last line, "… tokens_per_s=MEDIAN best_tokens_per_s=BEST …", the median.
torch_rate() { tail -1 "$1" | grep -o 'tokens_per_s=[0-9.]*' | head -1 | sed 's/.*=//'; }

# torch_python — the first Python that has PyTorch.
torch_python() {
    local python
    while read -r python; do
        within 60 "$python" -c 'import torch' 2>/dev/null && { echo "$python"; return; }
    done < <(pythons)
    return 1
}

# torch_step — PyTorch's step of gpt2, compiled. 0: measured; 77: there is none, and why.
torch_step() { # precision, most seconds
    local python
    [ "$DRY" = 1 ] && return 77
    python=$(torch_python) || { echo "no PyTorch here" >"$work/note"; return 77; }
    within "$2" "$python" "$here/torch_gpt2.py" --dtype "$1" --batch 64 --seq 1024 --steps 30 --warmup 10 >"$logs/torch_$1.log" 2>&1 ||
        { tail -1 "$logs/torch_$1.log" >"$work/note"; return 1; }
    measure "PyTorch gpt2 B64 T1024 $1 compile	tokens/s	$(torch_rate "$logs/torch_$1.log")		"
}

bench_torch() {
    local precision rc
    for precision in bf16 fp32; do
        wanted "PyTorch gpt2 B64 T1024 $precision" || continue
        torch_step $precision 400
        rc=$?
        [ $rc = 0 ] || say "$([ $rc = 77 ] && echo skipped || echo failed): PyTorch $precision: $(cat "$work/note" 2>/dev/null || echo "a dry run has no GPU")"
    done
}

# kernel_table — the rows of gpu_tests bench, but for those that were measured before; the lines about the machine go to the log.
kernel_table() { # a word in the rows' names; none: all
    local rc table=$logs/kernels${1:+_$1}.tsv
    [ "$DRY" = 1 ] && return 77
    nvidia_only "gpu_tests has no bench for AMD GPUs" || return
    within 300 "$GPU/gpu_tests" bench "$@" >"$table"
    rc=$?
    grep '^#' "$table" >&2
    grep -v '^#' "$table" | awk -F '\t' 'FILENAME != "-" { has[$1] = 1; next } !($1 in has)' "$work/measured" - >"$work/new"
    tee -a "$work/measured" <"$work/new" >&2
    write_results
    return $rc
}

bench_collectives() {
    local sizes=4-1Gi
    [ "$DRY" = 1 ] && sizes=4-4Mi
    within 300 "$GPU/convoy" bench DEVICE=$device N_GPU_EACH_NODE="$(gpus)" BENCH_SIZES=$sizes >"$work/collectives" ||
        { say "failed: collectives" && failures=$((failures + 1)) && return; }
    say "$(head -1 "$work/collectives")"
    # the largest of each: name, "1.0 GiB", runs, median and best us, bus GB/s …
    while read -r name size unit us bus; do
        measure "$name $size $unit, $(gpus) ranks	bus GB/s	$bus		$(awk -v us="$us" 'BEGIN {printf "%.3f", us / 1000}')"
    done < <(awk 'NR > 2 {last[$1] = $1 " " $2 " " $3 " " $5 " " $7} END {for (name in last) print last[name]}' "$work/collectives" | sort)
}

# bench_settings — sequence, precision and models of a dry run, or the best precision that this version has.
bench_settings() {
    seq=1024 precision=bf16
    if [ "$DRY" = 1 ]; then
        models=gpt2-nano:2 bench_steps=6 seq=32 precision=fp32
    else
        "$GPU/convoy" config PRECISION=bf16 >/dev/null 2>&1 || precision=fp32
    fi
}

run_bench() {
    local row
    bench_settings
    if [ "$DRY" != 1 ] && wanted kernels; then kernel_table || failures=1; fi
    for row in ${MODELS:-$models}; do bench_model "$row"; done
    [ "$DRY" = 1 ] || bench_model gpt2:64 CUDA_GRAPH=off
    [ "$(gpus)" -lt 2 ] || bench_collectives
    bench_torch
    write_last
    [ $failures = 0 ]
}
