#!/bin/bash
# mesh — one model over two workers of one thread each, on this machine. Tensor parallelism beside data parallelism: the same
# samples a step, GPT-2 124M and a Llama of its size. A pipeline of two equal stages: how long its first stage waits, beside the
# formula. Prints a JSON object a row; ends with 1 when a gate is missed. Wants two quiet cores and 5 GiB of memory; about a
# minute. ROWS="tp-gpt2 tp-llama pp pp-chunks", SEQ_LEN, STEPS and ROUNDS make it shorter or longer; with BUILD=DIR it runs
# that build.
. "$(dirname "$0")/bench_lib.sh"
needs jq
seq=${SEQ_LEN:-64} steps=${STEPS:-6} rounds=${ROUNDS:-1}
two="DATA=synthetic DEVICE=cpu N_GPU_EACH_NODE=2 SEQ_LEN=$seq STEPS=$steps CACHE_DIR=$dir/cache"

# train NAME SETTING… — adds the lines of all steps but the first, which touches new memory, to NAME.
train() {
    local name=$1
    shift
    rm -f lines
    "$convoy" train $two "$@" METRICS_FILE=lines >out 2>err || die "training failed: $*"
    tail -n +2 lines >>"$name"
}
ms() { jq ".$2" "$1" | median; } # ms FILE KEY
ratio() { awk -v a="$1" -v b="$2" 'BEGIN { printf "%.3f", a / b }'; }
# row NAME VALUE GATE at_least|at_most JSON — prints and judges.
row() {
    local ok=true
    awk -v v="$2" -v g="$3" -v how="$4" 'BEGIN { exit !(how == "at_least" ? v >= g : v <= g) }' || { ok=false; failed=1; }
    jq -cn --arg row "$1" --argjson gate "$3" --argjson ok $ok --argjson more "$5" '{row: $row} + $more + {gate: $gate, ok: $ok}'
}

# tensor NAME SETTING… — four samples a step: two on each of two ranks, or all four on both.
tensor() {
    local name=$1 i
    shift
    rm -f dp tp
    for i in $(seq "$rounds"); do
        train dp "$@" BATCH_SIZE=2 GLOBAL_BATCH=4
        train tp "$@" BATCH_SIZE=4 GLOBAL_BATCH=4 TP=2
    done
    local log dp tp speed
    log=$(sed -n 's/.*tensor parallelism: communication took \([0-9.]*\)% .*/"tp_comm_percent": \1/p' out)
    dp=$(ms dp step_ms) tp=$(ms tp step_ms)
    speed=$(ratio "$dp" "$tp")
    row "$name" "$speed" 0.9 at_least \
        "{\"samples\": 4, \"seq_len\": $seq, \"dp_ms\": $dp, \"tp_ms\": $tp, \"tp_speed_over_dp\": $speed, $log}"
}
# pipeline NAME SETTING… — stages of the same layers; vocabulary and positions cost next to nothing.
pipeline() {
    local name=$1 log waited formula over
    shift
    train pp MODEL=gpt2 VOCAB=128 LAYERS=8 BATCH_SIZE=1 SEQ_LEN=256 GLOBAL_BATCH=8 PP=2 STEPS=4 "$@"
    log=$(sed -n 's/.*pipeline: .* waited for messages in \([0-9.]*\)% .*: \([0-9.]*\)% if all.*/\1 \2/p' out)
    waited=${log% *} formula=${log#* }
    over=$(ratio "$waited" "$formula")
    row "$name" "$over" 1.1 at_most \
        "{\"stages\": 2, \"micro_batches\": 8, \"seq_len\": 256, \"bubble_percent\": $waited, \"formula_percent\": $formula, \"over_formula\": $over}"
}
for r in ${ROWS:-tp-gpt2 tp-llama pp pp-chunks}; do
    case $r in
    tp-gpt2) tensor tp-gpt2 MODEL=gpt2 ;;
    # SmolLM2 135M with heads that two ranks can share
    tp-llama) tensor tp-llama MODEL=smollm2-135m HEADS=8 KV_HEADS=4 HEAD_DIM=64 ;;
    pp) pipeline pp ;;
    pp-chunks) pipeline pp-chunks PP_CHUNKS=2 ;;
    *) die "$r is not a row" ;;
    esac
done
exit $failed
