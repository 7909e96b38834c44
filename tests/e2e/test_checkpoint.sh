#!/bin/bash
# test_checkpoint — checkpoints written while training goes on. The stall is shown everywhere. kill -9 at any instant loses no
# committed checkpoint and leaves nothing behind. The losses after a resume are those of an unbroken run. Full disks: fault/test_crash_full.pl.
. "$(dirname "$0")/lib.sh"
newest_valid() { "$convoy" train $quiet "$@" STEPS=1 RESUME=required >out 2>err; }
temps() { ls -A "$1" 2>/dev/null | grep -c '^\.tmp'; }

# A state of some 5 MB, so that a writing takes longer than a step.
mid="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=64 VOCAB=6000 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 LR=1e-3"
async="CHECKPOINT_ASYNC=on CHECKPOINT_EVERY=5"

# 1. The stall: log, METRICS_FILE, /status, /metrics.
run $mid STEPS=40 METRICS_FILE=whole.jsonl
try "a run with checkpoints in the background: 0" 0 -- train $mid STEPS=40 METRICS_FILE=m.jsonl CHECKPOINT_DIR=one $async
ok "the log plans the copy's memory" said "for the copy that is written while training continues"
ok "the log tells the stall" grep -Eq 'checkpoint one/step-00000005 in [0-9.]+ s, training waited [0-9]+ ms' err
ok "the last state is committed" is "$(newest_step one)" 40
ok "METRICS_FILE tells it in the line of the step that waited" holds m.jsonl 'any(.[]; .step == 6 and .checkpoint_stall_ms > 0) and (.[0] | has("checkpoint_stall_ms") | not)'
ok "the losses are those of a run without" cmp -s <(losses whole.jsonl) <(losses m.jsonl)
port=$(free_port)
begin_served $mid STEPS=100000000 CHECKPOINT_DIR=served $async
checkpoint_is() { status_has ".checkpoint | $1"; }
wait_for 20 checkpoint_is '.step > 0'
ok "/status tells stall and duration" checkpoint_is '.stall_seconds > 0 and .save_seconds > 0 and .failures == 0 and .skipped >= 0 and .error == null'
ok "/metrics too" is "$(get /metrics | grep -cE '^convoy_checkpoint_(stall|save)_seconds [0-9]|^convoy_checkpoint_skipped_total')" 3
mkdir -p served/.tmp-999999-3
stop
ok "SIGTERM while writing: 143, the last finished step is committed" is "$rc $(newest_step served)" "143 $(grep -oE 'after step [0-9]+' err | tail -n 1 | grep -oE '[0-9]+')"
ok "nothing half-made is left" is "$(temps served)" 0

# 2. kill -9 of the supervisor at random instants, the worker dies with it.
bad=0 half=0
for i in $(seq 1 ${KILLS:-12}); do
    begin $mid STEPS=100000000 CHECKPOINT_DIR=killed CHECKPOINT_KEEP=2 CHECKPOINT_ASYNC=on CHECKPOINT_EVERY=1
    wait_for 20 is_training >/dev/null
    sleep 0.$((RANDOM % 90 + 10))
    worker=$(worker_of "$pid")
    stop KILL
    wait_for 5 is_gone "$worker" >/dev/null
    before=$(newest_step killed)
    [ "$(temps killed)" = 0 ] || half=$((half + 1))
    newest_valid $mid CHECKPOINT_DIR=killed || bad=$((bad + 1))
    [ "$(temps killed)" = 0 ] && [ "$(newest_step killed)" = "${before:-1}" ] || bad=$((bad + 1))
done
echo "# ${KILLS:-12} kills, $half of them in the middle of a writing"
ok "kill -9 while writing: the newest committed one is valid, and nothing half-made outlives the next start" is $bad 0

# 3. After a worker's death the losses are those of an unbroken run.
run $mid STEPS=40 METRICS_FILE=r.jsonl CHECKPOINT_DIR=resumed $async FAULT=kill@step=33
ok "a worker killed: restarted from a checkpoint, losses bit for bit" is "$rc $(cmp <(losses whole.jsonl) <(losses r.jsonl) && echo same)" "0 same"

# 4. Content is verified while it is read into place: a damaged newest one is left for the one before, at the same losses.
run $mid STEPS=40 METRICS_FILE=d.jsonl CHECKPOINT_DIR=made CHECKPOINT_EVERY=10 CHECKPOINT_ASYNC=off FAULT=kill@step=33 MAX_RESTARTS=0
flip() { printf 'X' | dd of="$1" bs=1 seek=$(($(stat -c %s "$1") * $2 / 100)) conv=notrunc 2>/dev/null; }
for f in model:30 optim_m:60 optim_v:99; do
    rm -rf damaged && cp -r made damaged && cp d.jsonl e.jsonl
    flip damaged/step-00000030/${f%:*}.safetensors ${f#*:}
    run $mid STEPS=40 METRICS_FILE=e.jsonl CHECKPOINT_DIR=damaged CHECKPOINT_EVERY=10
    ok "a byte of ${f%:*} is another: named, and the one before is taken, losses bit for bit" is "$rc $(grep -c "skipping .*: damaged/step-00000030/${f%:*}.*checksum" err
        ) $(grep -c 'resuming from damaged/step-00000020: step 20 of 40' err) $(cmp <(losses whole.jsonl) <(losses e.jsonl) && echo same)" "0 1 1 same"
done
rm -rf damaged && cp -r made damaged
for d in damaged/step-*; do flip "$d/optim_v.safetensors" 50; done
run $mid STEPS=40 CHECKPOINT_DIR=damaged
ok "all damaged: 65, not begun anew" is "$rc $(grep -c 'damaged checkpoint' err)" "65 3"
rm -rf damaged && cp -r resumed damaged
flip damaged/step-00000040/model.safetensors 50
run $mid STEPS=40 CHECKPOINT_DIR=damaged
ok "the last state of a finished run, damaged, is made again" is "$rc $(grep -c 'damaged checkpoint' err) $(grep -c 'resuming from' err) $(newest_step damaged)" "0 2 1 40"

# 5. Too little memory: reported, and the run waits for the save or refuses.
if ulimit -v 2>/dev/null >/dev/null && [ -z "${SAN:-}" ]; then
    big="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=64 VOCAB=400000 CONTEXT=32 BATCH_SIZE=1 SEQ_LEN=4 STEPS=2 CHECKPOINT_EVERY=1"
    rc=0
    (ulimit -v 560000 && exec "$convoy" train $quiet $big CHECKPOINT_DIR=tight CHECKPOINT_ASYNC=on) >out 2>err || rc=$?
    ok "CHECKPOINT_ASYNC=on without the memory: 78" is "$rc $(grep -c 'it would fit with: CHECKPOINT_ASYNC=auto' err)" "78 1"
    (ulimit -v 560000 && exec "$convoy" train $quiet $big CHECKPOINT_DIR=tight) >out 2>err
    ok "auto: training waits, which is said, and saves" is "$(grep -c 'training will wait while checkpoints are written' err) $(newest_step tight)" "1 2"
else
    skip "memory" "ulimit -v cannot be set here"
fi

# 6. OPTIMIZER=muon on two workers: only rank 0 copies the state, while the update is the work of both. Another SHARD writes the
# same bytes.
for async in on off; do
    of="muon, CHECKPOINT_ASYNC=$async" dir=muon.$async
    two="$mid OPTIMIZER=muon N_GPU_EACH_NODE=2 CHECKPOINT_ASYNC=$async CHECKPOINT_EVERY=2"
    run $two STEPS=6 METRICS_FILE=muon.jsonl CHECKPOINT_DIR=$dir
    whole="$rc $(losses muon.jsonl | tail -n 2 | xargs)"
    rm -rf $dir/step-0000000[46] muon.jsonl
    cp -r $dir two
    run $two STEPS=6 METRICS_FILE=muon.jsonl CHECKPOINT_DIR=$dir
    ok "$of: saves, and goes on from step 2 as if it had not stopped" is "$rc $(losses muon.jsonl | tail -n 2 | xargs)" "$whole"
    ok "from step 2" is "$(losses muon.jsonl | wc -l)" 4
    run $two STEPS=6 SHARD=full CHECKPOINT_DIR=two
    ok "$of: with SHARD=full the files of step 6 are the same" cmp two/step-00000006/optim_v.safetensors $dir/step-00000006/optim_v.safetensors
    rm -rf two muon.jsonl
done
done_testing
