#!/bin/bash
# test_spike — SPIKE: a step whose loss is far above its history is not applied, on all ranks alike; what is left equals a run whose data
# lack the step's samples; a killed run goes on alike. And the ledger of samples, which `verify` audits.
. "$(dirname "$0")/lib.sh"

# Tokens that repeat, which a model learns; and step 81, or 81 to 90, of tokens that never follow. `clean` lacks their samples. A sample's
# first token is the last target of the one before, so it is the same in all of them.
perl -e '
    sub sample { my ($s, $bad) = @_; map { $bad && $_ ? 20 + ($_ * 7 + $s * 11) % 40 : 1 + $_ % 4 } 0 .. 7 }
    sub file { my ($name, @s) = @_; my @ids = ((map { sample($_->[0], $_->[1]) } @s), 1);
        open my $f, ">", $name or die; binmode $f; print $f pack("l<256 v*", 20240520, 1, scalar @ids, (0) x 253, @ids) }
    my @good = map { [$_, 0] } 0 .. 499;
    file("clean.bin", @good);
    file("spiked.bin", @good[0 .. 319], (map { [$_, 1] } 0 .. 3), @good[320 .. 499]);
    file("often.bin", @good[0 .. 319], (map { [$_, 1] } 0 .. 39), @good[320 .. 499]);
'
model="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=32 SEQ_LEN=8 BATCH_SIZE=1 GLOBAL_BATCH=4 SHUFFLE=0 LR=3e-3 LR_SCHEDULE=constant"
spike=SPIKE=skip
sum_of() { sha256sum <"$1/$(newest "$1")/model.safetensors"; }
skips() { grep -c '"skipped":"spike"' "$1"; }

# 1. The step is skipped; the rest is as if its samples had not been there.
run $model DATA=clean.bin STEPS=100 CHECKPOINT_DIR=clean
run $model DATA=spiked.bin STEPS=101 $spike CHECKPOINT_DIR=one CHECKPOINT_EVERY=10 METRICS_FILE=one.jsonl
ok "a step is skipped" is "$rc $(skips one.jsonl) $(jq -s -c '[.[] | select(.skipped) | .step]' one.jsonl)" "0 1 [81]"
ok "which is said with values, samples and limit" is "$(grep -cE 'step 81: loss [0-9.]+ is [0-9.]+ deviations above the expected [0-9.]+; its update is left out, and samples 320 to 323 are skipped \(1 of 5 at most in 128 steps\)' err)" 1
ok "and at the end" shows "1 of all 101 steps made no update"
ok "the weights are those of a run whose data lack these samples" is "$(sum_of one)" "$(sum_of clean)"
run $model DATA=spiked.bin STEPS=101 CHECKPOINT_DIR=off
apart() { [ "$1" != "$2" ]; }
ok "without SPIKE they are not" apart "$(sum_of off)" "$(sum_of clean)"
port=$(free_port)
begin_served $model DATA=spiked.bin STEPS=101 $spike LINGER=10m
wait_for 30 status_has '.phase == "done"'
ok "/metrics and /status count it" is "$(get /metrics | awk '$1 == "convoy_steps_skipped_total" { print $2 }') $(jq .skipped_steps status.json)" "1 1"
stop

# 2. On every mesh, all ranks decide alike.
for mesh in "SHARD=none" "SHARD=optimizer" "SHARD=gradients" "SHARD=full" "SHARD=none COMPRESS=bf16" "TP=2" "CP=2" "PP=2" "SHARD=full RECOMPUTE=block" "OPTIMIZER=muon" "SHARD=full COMPRESS=bf16" "EXACT=layout" "EXACT=layout SHARD=full PP=2 TIE_EMBEDDINGS=0"; do
    rm -rf meshed clean2
    run $model N_GPU_EACH_NODE=2 $mesh DATA=clean.bin STEPS=100 CHECKPOINT_DIR=clean2
    run $model N_GPU_EACH_NODE=2 $mesh DATA=spiked.bin STEPS=101 $spike CHECKPOINT_DIR=meshed METRICS_FILE=mesh.jsonl
    ok "2 workers, $mesh: the step is skipped, the weights are those without it" is "$rc $(skips mesh.jsonl) $(sum_of meshed)" "0 1 $(sum_of clean2)"
    rm -f mesh.jsonl
done

# 3. Killed before and after the spike: what goes on from a checkpoint decides alike.
for at in 78 85; do
    run $model DATA=spiked.bin STEPS=101 $spike CHECKPOINT_DIR=kill$at CHECKPOINT_EVERY=10 FAULT=kill@step=$at METRICS_FILE=kill.jsonl
    ok "kill -9 in step $at: one restart, one skip, the same weights" is "$rc $(grep -c 'resuming from' err) $(skips kill.jsonl) $(sum_of kill$at)" "0 1 1 $(sum_of clean)"
    rm -f kill.jsonl
done
begin $model DATA=spiked.bin STEPS=101 $spike CHECKPOINT_DIR=cut CHECKPOINT_EVERY=10 FAULT=stall@step=86 STEP_TIMEOUT=1h
saved() { [ "$(newest_step cut)" = 80 ]; }
wait_for 30 saved
for p in $(workers_of "$pid") "$pid"; do kill -KILL "$p"; done
finish
run $model DATA=spiked.bin STEPS=101 $spike CHECKPOINT_DIR=cut CHECKPOINT_EVERY=10
ok "all processes killed, the command given again: the same weights" is "$rc $(sum_of cut)" "0 $(sum_of clean)"

# 4. Stop: before the update, with 79; too many: the same.
run $model DATA=spiked.bin STEPS=101 SPIKE=stop CHECKPOINT_DIR=stop CHECKPOINT_EVERY=10 MAX_RESTARTS=0
ok "SPIKE=stop ends with 79" is "$rc $(grep -cE 'step 81: loss [0-9.]+ is .* look at samples 320 to 323, lower LR or raise SPIKE_SIGMA, or set SPIKE=skip' err)" "79 1"
ok "and SPIKE=skip goes on from there" is "$(run $model DATA=spiked.bin STEPS=101 $spike CHECKPOINT_DIR=stop; echo $rc) $(sum_of stop)" "0 $(sum_of clean)"
run $model DATA=spiked.bin STEPS=101 SPIKE=stop CHECKPOINT_DIR=again CHECKPOINT_EVERY=10
ok "a spike that comes back ends the run after one more try" is "$rc $(grep -c 'restart . of 3' err)" "79 1"
run $model DATA=often.bin STEPS=101 $spike CHECKPOINT_DIR=often MAX_RESTARTS=0 METRICS_FILE=often.jsonl
ok "a sixth one ends with 79" is "$rc $(skips often.jsonl) $(grep -c 'step 86: .*; SPIKE=skip leaves out 5 of 128 steps at most' err)" "79 5 1"
run $model DATA=clean.bin STEPS=100 SPIKE=stop FAULT=spike@step=90 CHECKPOINT_DIR=flipped CHECKPOINT_EVERY=20
ok "a fault that does not come back is healed by going on from the checkpoint" is "$rc $(grep -c 'restart 1 of 3 from the checkpoint of step 80' err) $(sum_of flipped)" "0 1 $(sum_of clean)"
run $model DATA=clean.bin STEPS=100 $spike FAULT=nan@step=90 METRICS_FILE=nan.jsonl
ok "SPIKE=skip: a step that is not finite is skipped" is "$rc $(jq -s -c '[.[] | select(.skipped) | [.step, .skipped, .loss != null]]' nan.jsonl)" '0 [[90,"not finite",true]]'

# 5. With LOCAL_STEPS: nodes decide on the mean of their numbers, so alike.
port=$(free_port)
pair="N_NODES=2 MASTER_PORT=$port JOB_TOKEN=none MASTER_ADDR=127.0.0.1 LOCAL_STEPS=5"
"$convoy" train $quiet $model $pair NODE_ID=1 DATA=spiked.bin STEPS=101 $spike >out1 2>err1 &
started+=($!)
run $model $pair NODE_ID=0 DATA=spiked.bin STEPS=101 $spike METRICS_FILE=local.jsonl CHECKPOINT_DIR=local
ok "LOCAL_STEPS: skipped on both nodes, and the run ends" is "$rc $(skips local.jsonl)" "0 1"

# 6. What does not go together.
try "refused: error feedback" 78 'SPIKE=skip (argument) does not go with COMPRESS=int8' -- train $model STEPS=1 $spike COMPRESS=int8
done_testing
