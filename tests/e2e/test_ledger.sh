#!/bin/bash
# test_ledger — the ledger of samples beside the checkpoints, and `convoy verify`: every sample of every step exactly once, over restarts,
# kill -9, lost nodes, skips, batches that grow, another GLOBAL_BATCH; and what it says where a line is missing or changed (a disk that is full for a while: test_rehearse).
. "$(dirname "$0")/lib.sh"
verify() { rc=0; "$convoy" verify "$@" >out 2>err || rc=$?; }
number() { "$convoy" verify "$1" JSON=1 2>/dev/null | jq -c "[$2]"; }

# 1. A calm run: one line for all steps.
run $tiny STEPS=50 CHECKPOINT_DIR=calm
verify calm
ok "a calm run: every sample exactly once" is "$rc $(grep -c '"steps":' calm/ledger.jsonl)" "0 1"
ok "shown with steps and samples" shows "^steps +1 to 50, samples 0 to 99: every sample exactly once"
run $tiny STEPS=80 CHECKPOINT_DIR=calm
verify calm
ok "gone on: two generations, nothing done again" is "$rc $(number calm .last_step,.generations,.steps_done_again)" "0 [80,2,0]"
ok "no checkpoint, no ledger" is "$(run $tiny STEPS=5; ls | grep -c ledger)" 0

# 2. Restarts: the steps between checkpoint and failure are done again.
run $tiny STEPS=60 CHECKPOINT_DIR=killed CHECKPOINT_EVERY=16 FAULT=kill@step=41
verify killed
ok "a killed worker: exactly once" is "$rc $(number killed .last_step,.generations,.last_sample)" "0 [60,2,119]"
run $tiny STEPS=60 CHECKPOINT_DIR=nan CHECKPOINT_EVERY=16 FAULT=nan@step=41
verify nan
ok "a step that is not finite: done again, which is said" is "$rc $(number nan .last_step,.steps_done_again) $(grep -c 'done again  8 steps' out)" "0 [60,8] 1"
for i in 1 2 3 4 5 6; do # at whatever moment
    begin_training $tiny STEPS=100000000 CHECKPOINT_DIR=random CHECKPOINT_EVERY=7
    sleep 0.$((RANDOM % 30 + 10))
    for p in $(workers_of "$pid") "$pid"; do kill -KILL "$p"; done
    finish
done
verify random
ok "kill -9 of all processes, six times: exactly once, up to the newest checkpoint" is "$rc $(number random .generations)" "0 [6]"
last=$(newest_step random)
ok "and the ledger is not behind it" test "$(number random .last_step | tr -d '[]')" -ge "$last"

# 3. Skips, batches that grow, several workers.
model="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=1 LR=1e-3"
run $model STEPS=80 CHECKPOINT_DIR=skip SPIKE=skip FAULT=spike@step=70 GLOBAL_BATCH=8 BATCH_WARMUP=6 BATCH_START=2 N_GPU_EACH_NODE=2
verify skip
ok "a spike that was skipped" is "$rc $(number skip .steps_applied,.steps_skipped_spike,.last_sample) $(grep -c 'skipped     1 step, 8 samples' out)" "0 [79,1,615] 1"
run $model STEPS=40 CHECKPOINT_DIR=notfinite SPIKE=skip FAULT=nan@step=3 GLOBAL_BATCH=2
verify notfinite
ok "a step that was not finite and skipped" is "$rc $(number notfinite .steps_skipped_not_finite)" "0 [1]"

# 4. Two nodes, of which one is killed and comes back.
port=$(free_port)
pair="N_NODES=2 MASTER_PORT=$port JOB_TOKEN=none MASTER_ADDR=127.0.0.1 STEPS=3000 CHECKPOINT_EVERY=100"
second() { # its folder stays empty
    "$convoy" train $quiet $tiny $pair NODE_ID=1 CHECKPOINT_DIR=pair1 >out1 2>err1 & other=$!; started+=("$other")
}
second
begin $tiny $pair NODE_ID=0 CHECKPOINT_DIR=pair
node0=$pid
saved() { [ -n "$(newest pair)" ]; }
wait_for 60 saved
for p in $(workers_of "$other") "$other"; do kill -KILL "$p"; done
second
pid=$node0
finish
verify pair
ok "a node was lost and came back: exactly once" is "$rc $(number pair .last_step,.generations)" "0 [3000,2]"

# 5. What is missing or wrong is named.
cp -r killed gap
rm gap/ledger.jsonl
run $tiny STEPS=70 CHECKPOINT_DIR=gap
ok "a lost ledger is warned about" says "does not have steps 1 to 60 of this run"
try "verify: the steps that are not in it" 1 'steps 1 to 60 are not in it' -- verify gap
cp -r calm behind
head -n 3 calm/ledger.jsonl >behind/ledger.jsonl
try "verify: a checkpoint that is newer" 1 'ends with step 50, but there is a checkpoint of step 80' -- verify behind
cp -r calm changed
sed -i 's/"steps":50/"steps":51/' changed/ledger.jsonl
try "verify: a line that was changed" 65 'line 3 is not a line of a ledger' -- verify changed
run $tiny STEPS=90 CHECKPOINT_DIR=changed
ok "a run moves it aside and goes on" is "$rc $(ls changed | grep -c damaged)" "0 1"
mkdir empty; verify empty; ok "verify: no ledger" is "$rc" 66
: >empty/ledger.jsonl; verify empty; ok "verify: nothing was trained" is "$rc $(grep -c 'no step' out)" "0 1"
verify nowhere; ok "verify: no such folder" is "$rc" 66
verify; ok "verify: no word" is "$rc" 64

# 5b. Checkpoints that are damaged: every one is listed, for people and programs, by verify and status alike.
run $tiny STEPS=60 CHECKPOINT_DIR=sound CHECKPOINT_EVERY=20
look() { rc=0; "$convoy" "$1" "$2" >out 2>err || rc=$?; listed=$("$convoy" "$1" "$2" JSON=1 2>/dev/null | jq -c '[.damaged[].step]'); }
look verify sound; ok "verify: whole checkpoints" is "$rc $listed" "0 []"
look status sound; ok "status: whole checkpoints" is "$rc $listed" "0 []"
cp -r sound short; for i in 20 40 60; do truncate -s 100 short/step-000000$i/model.safetensors; done
cp -r sound unlisted; truncate -s 30 unlisted/step-00000040/manifest.json
cp -r sound rotten; printf '\377\377\377\377' | dd of=rotten/step-00000020/optim_v.safetensors bs=1 seek=20000 conv=notrunc 2>/dev/null
look verify short; ok "verify: all are cut" is "$rc $listed $(grep -c '^damaged .*has 100 bytes' out)" "1 [60,40,20] 3"
look status short; ok "status: all are cut" is "$rc $listed $(grep -c '^damaged .*has 100 bytes' out)" "1 [60,40,20] 3"
look verify unlisted; ok "verify: a manifest is cut" is "$rc $listed $(grep -c '^damaged .*manifest.json has 30 bytes' out)" "1 [40] 1"
look status unlisted; ok "status: a manifest is cut, and the newest one is shown" is "$rc $listed $(grep -c '^step  *60 ' out)" "1 [40] 1"
look verify rotten; ok "verify: bytes that changed" is "$rc $listed $(grep -c '^damaged .*its content is damaged' out)" "1 [20] 1"
cp -r short both; sed -i 's/"steps":20/"steps":21/' both/ledger.jsonl
look verify both; ok "verify: the ledger, too" is "$rc $listed $("$convoy" verify both JSON=1 2>/dev/null | jq -c '[.last_step,(.problem | test("line 3 is not a line of a ledger"))]')" "65 [60,40,20] [null,true]"
# A run that has failed, by the history that its page leaves.
rc=0; "$convoy" train STATUS_PORT=$(free_port) STATUS_ADDR=127.0.0.1 $tiny STEPS=60 CHECKPOINT_DIR=failed CHECKPOINT_EVERY=20 FAULT=nan@step=41 MAX_RESTARTS=0 >out 2>err || rc=$?
ok "a run fails" is "$rc" 79
look status failed; ok "status of its folder: 1, and the reason" is "$rc $(grep -c 'failed: the run has failed: .*\(exit code 79 after step 40\|step 41: loss .* norm nan\)' err)" "1 1"
ok "as JSON" is "$("$convoy" status failed JSON=1 2>/dev/null | jq -c '[.phase,.step,(.error | test("exit code 79|norm nan"))]')" '["failed",40,true]'
rc=0; "$convoy" train STATUS_PORT=$(free_port) STATUS_ADDR=127.0.0.1 $tiny STEPS=60 CHECKPOINT_DIR=failed CHECKPOINT_EVERY=20 >out 2>err || rc=$?
ok "done after all: healthy" is "$rc $("$convoy" status failed JSON=1 | jq -c '[.phase,.step,.error]')" '0 ["done",60,null]'
port=$(free_port) begin_served $tiny STEPS=100000000 CHECKPOINT_DIR=stopped
wait_for 30 grep -q '^step 2/' out
stop
ok "a run that SIGTERM stopped after a checkpoint has not failed" is \
    "$("$convoy" status stopped JSON=1 | jq -c '[.phase,.error]') $("$convoy" status stopped >/dev/null 2>&1; echo $?)" '["stopped",null] 0'
rm -rf stopped/step-*
ok "a run without a checkpoint yet is known by its history" is "$("$convoy" status stopped JSON=1 | jq -c '[.phase,.step]')" '["stopped",null]'

# 6. Weights: what is kept has the checksums that were written; a machine that computed something else is found.
run $tiny STEPS=60 CHECKPOINT_DIR=flipped CHECKPOINT_EVERY=20 CHECKPOINT_KEEP=9 FAULT=flip@step=30
rm -r flipped/step-00000040 flipped/step-00000060
verify flipped
ok "three checkpoints, one kept" is "$rc $(number flipped .checkpoints,.checkpoints_kept) $(grep -c '^made by     convoy .* 1 worker: cpu' out)" "0 [3,1] 1"
run $tiny STEPS=60 CHECKPOINT_DIR=flipped CHECKPOINT_EVERY=20
try "done again, the weights are others: named" 1 'the weights after step 40 were [0-9a-f]* in generation 1, and are [0-9a-f]* in generation 2' -- verify flipped
run $tiny STEPS=60 CHECKPOINT_DIR=even CHECKPOINT_EVERY=20
rm -r even/step-00000040 even/step-00000060
run $tiny STEPS=60 CHECKPOINT_DIR=even CHECKPOINT_EVERY=20
verify even
ok "done again without a fault: equal" is "$rc $(number even .checkpoints,.generations)" "0 [3,2]"
rm -r even/step-00000060
run $tiny LR=2e-3 STEPS=60 CHECKPOINT_DIR=other
cp -r other/step-00000060 even/step-00000060
try "a checkpoint of another run" 1 'step-00000060 has weights .* its files belong to another run, or were changed' -- verify even
ok "provenance, as JSON" is "$("$convoy" verify killed JSON=1 | jq -c '.provenance | [.settings.SEED, .model.layers, .ranks, .layout.TP, .layout.SHARD, .exact]')" '[1,2,1,1,"none",true]'

# 7. RESUME=never: the ledger goes with its checkpoints.
run $tiny STEPS=20 CHECKPOINT_DIR=calm RESUME=never
verify calm
ok "RESUME=never begins a new one" is "$rc $(number calm .last_step,.generations) $(ls calm/before-*/ledger.jsonl | wc -l)" "0 [20,1] 1"

# 8. EPOCHS counts samples: with another GLOBAL_BATCH, here by another number of workers, those that are left are trained, once each.
tokens 20240520 1 1025 $(for i in $(seq 1025); do echo $((i * 7 % 61)); done) >epoch.bin # 64 samples
epoch="$model DATA=epoch.bin BATCH_SIZE=2 CHECKPOINT_KEEP=9"
run $epoch CHECKPOINT_DIR=batch STOP_AFTER=16
verify batch
ok "half of an epoch: which samples are left is said" is "$(grep '^epochs' out)" "epochs      32 of the 64 samples of epoch 1, 32 are left"
run $epoch CHECKPOINT_DIR=batch CHECKPOINT_EVERY=4 N_GPU_EACH_NODE=2 METRICS_FILE=batch.jsonl
ok "… two workers train them in 8 steps of 4" is "$rc $(steps_of batch.jsonl) $(jq -s -c 'last | [.step, .tokens]' batch.jsonl)" "0 8 [24,1024]"
ok "… and it is said where they go on" says "resuming from batch/step-00000016: step 16 of 24, sample 32 of 64"
verify batch
ok "every sample of the epoch" is "$rc $(grep '^epochs' out)" "0 epochs      1 of 64 samples: every sample of the epoch"
ok "… as JSON" is "$(number batch .epoch_samples,.epochs_whole,.epoch_rest)" "[64,1,0]"
run $epoch CHECKPOINT_DIR=batch EPOCHS=3 GLOBAL_BATCH=10
ok "two more epochs, in steps that end with neither" is "$rc $(grep -c '^the last 8 of 192 samples (EPOCHS=3) are fewer than one step of GLOBAL_BATCH=10, and are left out' out)" "0 1"
verify batch
ok "… what is left is no gap" is "$rc $(grep '^epochs' out)" \
    "0 epochs      2 of 64 samples: every sample of each epoch; then 56 of the 64 samples of epoch 3, 8 are left, fewer than one step"
run $epoch CHECKPOINT_DIR=batch EPOCHS=3 GLOBAL_BATCH=10
ok "nothing to do: with the reason" is "$rc $(grep -c '^the last 8 of 192 samples' out) $(grep -c 'nothing to do: batch/step-00000036 has done 36 of 36 steps' out)" "0 1 1"
run $epoch CHECKPOINT_DIR=small_batch GLOBAL_BATCH=8 STOP_AFTER=4 METRICS_FILE=small.jsonl
run $epoch CHECKPOINT_DIR=small_batch GLOBAL_BATCH=2 METRICS_FILE=small.jsonl
verify small_batch
ok "the other way: 4 steps of 8 samples, 16 of 2" is "$rc $(steps_of small.jsonl) $(grep -c 'every sample of the epoch$' out)" "0 20 1"
run $epoch CHECKPOINT_DIR=seed STOP_AFTER=16
run $epoch CHECKPOINT_DIR=seed SEED=5
verify seed
ok "another order of samples: no epoch is said to be whole" is "$rc $(grep -c '^epochs      unknown: after step 16' out) $(grep -c 'every sample' out)" "0 1 0"
# The same steps from another checkpoint have other samples, so other weights are no fault of a machine.
run $epoch CHECKPOINT_DIR=shift LR_SCHEDULE=constant CHECKPOINT_EVERY=4 STOP_AFTER=16
run $epoch CHECKPOINT_DIR=shift LR_SCHEDULE=constant GLOBAL_BATCH=4 STOP_AFTER=20
rm -r shift/step-00000016 shift/step-00000020
run $epoch CHECKPOINT_DIR=shift LR_SCHEDULE=constant GLOBAL_BATCH=4 STOP_AFTER=20
verify shift
ok "steps done again with other samples" is "$rc $(number shift .steps_done_again,.last_sample)" "0 [8,55]"
done_testing
