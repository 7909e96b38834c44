#!/bin/bash
# ckpt — what checkpoints of GPT-2 124M (1.5 GB) cost: how long training waits for one that is written in the background
# (gate 150 ms), how much slower the steps are meanwhile, how long the writing takes; then bench_ckpt: saving and loading
# against the disk. Ends with 1 when a gate fails. Wants a quiet machine, 4 GiB of memory and of disk under TMPDIR.
export LOG_LEVEL=info
. "$(dirname "$0")/bench_lib.sh"
export XDG_CACHE_HOME=$dir/cache
"$convoy" train MODEL=gpt2 DATA=/usr/share/common-licenses BATCH_SIZE=4 SEQ_LEN=64 STEPS="${STEPS:-26}" CHECKPOINT_EVERY=8 CHECKPOINT_KEEP=1 \
    CHECKPOINT_DIR=run METRICS_FILE=m.jsonl >out 2>err || die "training failed"
grep -E 'memory:|checkpoint ' err | sed 's|^[^ ]* info  *checkpoint/async  |  |'
jq -rs '
    def median: sort | .[length / 2 | floor];
    (map(.checkpoint_stall_ms // empty) ) as $stalls
    | (map(select(.checkpoint_stall_ms).step)) as $at
    | (map(select(.step as $s | ($s > 2) and all($at[]; $s < . or $s > . + 3)).step_ms) | median) as $quiet
    | [.[] | select(.step as $s | any($at[]; $s >= . and $s <= . + 3)).step_ms] as $during
    | "\($stalls | max) \($quiet) \(($during | add) - ($during | length) * $quiet | . / ($at | length)) \($at | length)"' m.jsonl >figures
read -r stall quiet lost n <figures
verdict=ok
at_most 0.001 "$stall" && at_most "$stall" 150 || { verdict="NOT OK" failed=1; }
printf '  %s: training waits %.0f ms at most for each of %d checkpoints (gate 150 ms)\n' "$verdict" "$stall" "$n"
printf '  a step takes %.0f ms; the four steps during a writing lose %.0f ms in all\n' "$quiet" "$lost"
rm -rf run
"$build/tests/bench/bench_ckpt" || failed=1
exit $failed
