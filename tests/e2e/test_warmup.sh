#!/bin/bash
# test_warmup — batches and windows of attention that grow over the first steps: on every mesh, after a restart, in whole epochs; and the
# fall of LR_SCHEDULE=wsd. What does not go together is refused.
. "$(dirname "$0")/lib.sh"
model="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=50257 CONTEXT=64 DATA=/usr/share/common-licenses/GPL-3 BATCH_SIZE=1 SEQ_LEN=32 LR=3e-3 DROPOUT=0.1"
batch="GLOBAL_BATCH=8 BATCH_WARMUP=6 BATCH_START=2"
window="WINDOW_WARMUP=10 WINDOW_START=2"

# 1. Samples of each step; every sample once, in order: with a rate of 0 the losses are those of equal steps of 2 samples.
run $model $batch STEPS=8 METRICS_FILE=batch.jsonl
ok "steps of 2, 2, 4, 4, 6, 6, 8, 8 samples" is "$(jq -s -c '[.[].tokens / 32]' batch.jsonl)" "[2,4,8,12,18,24,32,40]"
still="$model LR=0 MIN_LR=0 DROPOUT=0"
run $still $batch STEPS=8 METRICS_FILE=grown.jsonl
run $still GLOBAL_BATCH=2 STEPS=20 METRICS_FILE=equal.jsonl
means() { jq -s -c '[.[].loss] as $l | [[0,1],[1,2],[2,4],[4,6],[6,9],[9,12],[12,16],[16,20]] | map(. as [$a, $b] | $l[$a:$b] | add / length)' equal.jsonl; }
ok "the samples are those of equal steps" test "$(jq -s --argjson want "$(means)" '[[.[].loss], $want] | transpose | map((.[0] - .[1]) | fabs) | max < 1e-5' grown.jsonl)" = true

# 2. The same on every mesh, with both.
both="$model $batch $window"
run $both STEPS=20 METRICS_FILE=one.jsonl CHECKPOINT_DIR=one CHECKPOINT_EVERY=4
for mesh in "N_GPU_EACH_NODE=2" "N_GPU_EACH_NODE=2 SHARD=full" "N_GPU_EACH_NODE=2 TP=2" "N_GPU_EACH_NODE=2 CP=2" "BATCH_SIZE=2" "RECOMPUTE=block"; do
    losses_near one.jsonl 1e-5 "$mesh: losses within 1e-5 of one worker's" $both STEPS=20 $mesh
done

# 3. Resumed in the middle; another schedule is named.
ls -d one/step-* | sort | tail -n +2 | xargs rm -r
cp -r one other
run $both STEPS=20 METRICS_FILE=two.jsonl CHECKPOINT_DIR=one
first=$(jq -s '.[0].step' two.jsonl)
tail -n +"$first" one.jsonl >last.jsonl
ok "it went on within the warm-up" test "$first" -gt 1 -a "$first" -lt 20
ok "a resumed run has the same losses, bit for bit" is "$(losses two.jsonl)" "$(losses last.jsonl)"
run $model $batch STEPS=20 CHECKPOINT_DIR=other
ok "to go on without the window is said" says "WINDOW_WARMUP was 10, is not set"

# 4. The window: other losses while it grows, those of no window where it has all tokens at once.
run $model STEPS=3 METRICS_FILE=all.jsonl
run $model STEPS=3 $window METRICS_FILE=narrow.jsonl
run $model STEPS=3 WINDOW_WARMUP=2 WINDOW_START=64 METRICS_FILE=wide.jsonl
apart() { ! near "$@"; }
ok "a token that sees 2 tokens has other losses" apart all.jsonl narrow.jsonl 1e-4
ok "a window of all tokens has the losses of none" near all.jsonl wide.jsonl 1e-6

# 5. EPOCHS: whole steps in the samples that there are, for the steps of the warm-up are smaller.
run $model GLOBAL_BATCH=8 EPOCHS=1 METRICS_FILE=epoch.jsonl
run $model $batch EPOCHS=1 METRICS_FILE=grown.jsonl
last() { jq -s '.[-1].tokens' "$1"; }
ok "an epoch ends at most a step before its last sample" test $(($(last grown.jsonl) - $(last epoch.jsonl))) -gt -256 -a $(($(last grown.jsonl) - $(last epoch.jsonl))) -lt 256
ok "and takes more steps" test "$(wc -l <grown.jsonl)" -gt "$(wc -l <epoch.jsonl)"

# 6. wsd falls in DECAY_STEPS.
run $model STEPS=10 LR=1e-3 LR_SCHEDULE=wsd DECAY_STEPS=2 METRICS_FILE=wsd.jsonl
ok "the rate falls in the last two steps" is "$(jq -s -c '[.[].lr * 1e4 | round]' wsd.jsonl)" "[10,10,10,10,10,10,10,10,10,5]"

# 7. Refused, each with the values.
refused() { run $model STEPS=1 "${@:2}"; ok "refused: ${*:2}" is "$rc $(grep -c "$1" err)" "78 1"; }
refused "must divide GLOBAL_BATCH=8" GLOBAL_BATCH=8 BATCH_WARMUP=2 BATCH_START=3
refused "must divide GLOBAL_BATCH=8" GLOBAL_BATCH=8 BATCH_WARMUP=2 BATCH_START=16
refused "be a multiple of 2, BATCH_SIZE times workers" GLOBAL_BATCH=8 BATCH_SIZE=2 BATCH_WARMUP=2 BATCH_START=1
refused "has no effect" BATCH_WARMUP=2
refused "PP=2 (argument) does not go with BATCH_WARMUP=" $batch PP=2 N_GPU_EACH_NODE=2
refused "WINDOW_WARMUP=2 (argument) is not for TASK=qa" TASK=qa DATA=synthetic WINDOW_WARMUP=2
refused "DECAY_STEPS=2 (argument) is over STEPS=1" DECAY_STEPS=2 LR_SCHEDULE=wsd
done_testing
