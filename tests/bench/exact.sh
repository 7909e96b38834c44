#!/bin/bash
# exact — what EXACT=layout costs: steps of GPT-2 124M, B=4, T=256, on 2 and 4 workers of this machine, with and without it in
# interleaved rounds: medians of the steps, and the gate of 3 %. SHARDS of a worker is how many virtual shards each has (1 4).
# Ends with 1 when a gate is missed. Wants a quiet machine and 16 GiB of memory. `make bench-exact`.
. "$(dirname "$0")/bench_lib.sh"
rounds=${ROUNDS:-3} steps=${STEPS:-4} gate=${GATE:-3}
# steps_ms EXACT WORKERS BATCH: milliseconds of each step but the first.
steps_ms() {
    rm -f metrics.jsonl
    "$convoy" train MODEL=gpt2 DATA=/usr/share/common-licenses DEVICE=cpu BATCH_SIZE=4 SEQ_LEN=256 GLOBAL_BATCH="$3" STEPS=$((steps + 1)) \
        N_GPU_EACH_NODE="$2" EXACT="$1" CACHE_DIR="$dir/cache" METRICS_FILE=metrics.jsonl >out 2>&1 || { cat out >&2; exit 1; }
    jq -r 'select(.step > 1) | .step_ms' metrics.jsonl
}
for workers in ${RANKS:-2 4}; do
    for shards in ${SHARDS:-1 4}; do
        : >off : >layout
        for ((round = 0; round < rounds; round++)); do
            for exact in off layout; do steps_ms $exact "$workers" $((4 * workers * shards)) >>$exact; done
        done
        awk -v off="$(median <off)" -v layout="$(median <layout)" -v workers="$workers" -v shards="$shards" -v gate="$gate" 'BEGIN {
            cost = (layout / off - 1) * 100
            printf("%s %d workers, %d virtual shards each: off %.0f ms, layout %.0f ms: %+.1f %% (gate %g %%)\n",
                   (cost <= gate ? "ok    " : "NOT OK"), workers, shards, off, layout, cost, gate)
            exit cost > gate }' || failed=1
    done
done
exit $failed
