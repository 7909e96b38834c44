#!/bin/bash
# test_verify — `convoy verify DIR STEPS=a..b`: steps of a run are repeated from its checkpoint and come to the same bits, on fewer workers and with
# checkpoints that are no longer kept; a flipped bit is named with step and tensor; what cannot be repeated is refused with the reason; nothing is
# written to the run's folder, and nothing is left behind. And STOP_AFTER, by which it ends at a checkpoint.
. "$(dirname "$0")/lib.sh"
verify() { rc=0; "$convoy" verify "$@" >out 2>err || rc=$?; }
listed() { find "$1" -type f -printf '%p %s %T@ ' -exec sha256sum {} \; | sort; }
mkdir scratch
export TMPDIR=$tmp/scratch
left() { ls scratch | wc -l; }
sum_of() { cat "$1"/*.safetensors | sha256sum | cut -d ' ' -f 1; }

model="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=32 SEQ_LEN=16 LR=1e-3 DROPOUT=0.1"
tokens 20240520 1 600 $(for i in $(seq 600); do echo $((i * 7 % 61)); done) >a.bin
tokens 20240520 1 600 $(for i in $(seq 600); do echo $((i * 5 % 61)); done) >b.bin
run_one() { run $model BATCH_SIZE=2 CHECKPOINT_EVERY=5 CHECKPOINT_KEEP=9 DATA=a.bin "$@"; }

# ---- equal ----

run_one CHECKPOINT_DIR=layout BATCH_SIZE=1 GLOBAL_BATCH=6 EXACT=layout N_GPU_EACH_NODE=3 SHARD=full STEPS=20
rm -r layout/step-00000010
before=$(listed layout)
verify layout STEPS=5..20 DATA=a.bin
ok "EXACT=layout, three workers: one worker repeats them" is "$rc $(grep -c '^here        1 worker: cpu' out)" "0 1"
ok "the steps are said" shows "^repeated    steps 6 to 20, from layout/step-00000005"
ok "a checkpoint that is kept: by tensors" shows "^step 15 +equal: [0-9]+ tensors, bit by bit"
ok "one that is not: by checksums" shows "^step 10 +equal: the checksums"
ok "the run's folder is as it was" is "$(listed layout)" "$before"
ok "nothing is left behind" is "$(left)" 0
if mkdir away && mount -t tmpfs tmpfs away 2>/dev/null; then
    OMP_NUM_THREADS=1 TMPDIR=$tmp/away verify layout STEPS=5..20 DATA=a.bin
    ok "another file system, other threads: a copy, and equal" is "$rc $(ls away | wc -l)" "0 0"
    umount away
else
    skip "another file system" "no right to mount"
fi
verify layout STEPS=5..19 DATA=a.bin JSON=1 N_GPU_EACH_NODE=2
ok "JSON, and two workers: up to the last checkpoint before step 19" \
    is "$rc $(jq -c '[.first_step,.last_step,.workers,.equal,.problem,[.checkpoints[].step]]' out)" "0 [6,15,2,true,null,[10,15]]"
run_one CHECKPOINT_DIR=one STEPS=20
LR=9 SPIKE=skip METRICS_FILE=m STOP_AFTER=1 FAULT=nan@step=7 verify one STEPS=5..20 DATA=a.bin
ok "one worker; settings of the environment are of other runs" is "$rc $(ls m 2>&1 | grep -c '^m$')" "0 0"
run_one CHECKPOINT_DIR=two STEPS=20 N_GPU_EACH_NODE=2 SHARD=gradients LR_SCHEDULE=wsd OPTIMIZER=muon
verify two STEPS=5..20 DATA=a.bin
ok "two workers without EXACT=layout: two repeat them" is "$rc $(grep -c '^here        2 workers' out)" "0 1"
verify two STEPS=5..20 DATA=a.bin N_GPU_EACH_NODE=1
ok "… and one is refused" is "$rc $(grep -c 'set N_GPU_EACH_NODE=2, not 1' err)" "78 1"

run_one CHECKPOINT_DIR=restarted BATCH_SIZE=1 GLOBAL_BATCH=12 EXACT=layout N_GPU_EACH_NODE=3 STEPS=20 STOP_AFTER=10 FAULT=kill@step=8:rank=1
run_one CHECKPOINT_DIR=restarted BATCH_SIZE=1 GLOBAL_BATCH=12 EXACT=layout N_GPU_EACH_NODE=4 STEPS=20
verify restarted STEPS=5..20 DATA=a.bin
ok "EXACT=layout: a worker was killed, and the run went on with four instead of three" is "$rc $(grep -c '"after"' restarted/ledger.jsonl)" "0 3"
OMP_NUM_THREADS=1 run_one CHECKPOINT_DIR=thread STEPS=10
OMP_NUM_THREADS=2 verify thread STEPS=5..10 DATA=a.bin
ok "other threads without EXACT=layout: refused with both" is "$rc $(grep -c 'workers of .cpu 1 thread .* here they are .cpu 2 threads .*OMP_NUM_THREADS' err)" "78 1"
OMP_NUM_THREADS=1 verify thread STEPS=5..10 DATA=a.bin
ok "… and with the same equal" is "$rc" 0

# ---- different ----

run_one CHECKPOINT_DIR=flipped STEPS=20 FAULT=flip@step=13
verify flipped STEPS=5..20 DATA=a.bin
ok "a flipped bit: step and tensor" is "$rc $(grep -cE 'step 15: tensor [a-z_.0-9]+ of model.safetensors differs: element [0-9]+ is .* of [0-9]+ elements differ' err)" "1 1"
ok "… the checkpoint before it is equal, those behind are not repeated" is "$(grep -c '^step ' out) $(grep -c '^step 10 .*equal' out)" "2 1"
verify flipped STEPS=15..20 DATA=a.bin
ok "… and from the flipped one on all is equal" is "$rc" 0
rm -r flipped/step-00000015
verify flipped STEPS=10..20 DATA=a.bin JSON=1
ok "where the checkpoint is gone its checksum differs" is "$rc $(jq -c '[.equal,(.problem | startswith("step 15: the weights differ"))]' out)" "1 [false,true]"
cp -r one damaged
printf x | dd of=damaged/step-00000010/model.safetensors bs=1 seek=5000 conv=notrunc status=none
verify damaged STEPS=5..20 DATA=a.bin
ok "a checkpoint to compare with that is damaged" is "$rc $(grep -c 'step-00000010' err)" "65 1"
verify damaged STEPS=10..20 DATA=a.bin
ok "a damaged checkpoint to begin with" is "$rc $(grep -c 'step-00000010' err)" "65 1"
ok "nothing is left behind" is "$(left)" 0

# ---- refused ----

verify one STEPS=5..20 DATA=b.bin
ok "other DATA: refused with both fingerprints" is "$rc $(grep -cE 'fingerprint is [0-9a-f]{16}, and the run.s is [0-9a-f]{16}' err)" "78 1"
DATA= verify one STEPS=5..20
ok "no DATA" is "$rc $(grep -c 'needs DATA' err)" "78 1"
verify one STEPS=7..20 DATA=a.bin
ok "no checkpoint to begin with: those that there are" is "$rc $(grep -c 'no checkpoint of step 7 to begin with; those that are kept: 5, 10, 15, 20' err)" "66 1"
verify one STEPS=5..9 DATA=a.bin
ok "nothing to compare with" is "$rc $(grep -c 'after step 5 up to step 9' err)" "66 1"
for steps in "" 5 .. 5.. ..9 9..5 5..5 -1..5 5..-9 a..b 5..9x 5...9 " 5..9" 99999999999999999999..5 1..99999999999999999999 "$(printf '%0500d' 1)..9"; do
    verify one STEPS="$steps" DATA=a.bin
    [ "$rc" = 78 ] && said "STEPS=" || break
done
ok "STEPS that are no two steps" is "$rc" 78
verify one STEPS=5..20 DATA=a.bin LR=1
ok "a setting of the run" is "$rc $(grep -c 'LR: steps are repeated with the settings of their run' err)" "78 1"
verify nowhere STEPS=5..20 DATA=a.bin
ok "no such folder" is "$rc" 66
verify STEPS=5..20 DATA=a.bin
ok "no folder" is "$rc" 64
run_one CHECKPOINT_DIR=changed STEPS=10
run_one CHECKPOINT_DIR=changed STEPS=20 LR=2e-3 LR_SCHEDULE=constant
verify changed STEPS=5..20 DATA=a.bin
ok "settings that changed between the steps are named" is "$rc $(grep -c 'the run changed after step 10: LR' err)" "78 1"
verify changed STEPS=10..20 DATA=a.bin
ok "… the steps behind by themselves are equal" is "$rc" 0
verify changed STEPS=5..10 DATA=a.bin
ok "… and those before" is "$rc" 0
run_one CHECKPOINT_DIR=feedback STEPS=20 N_GPU_EACH_NODE=2 COMPRESS=int8
verify feedback STEPS=5..20 DATA=a.bin
ok "a run without the same bits twice" is "$rc $(grep -c 'does not come to the same bits twice' err)" "78 1"

# ---- where temporary files are ----

TMPDIR=$tmp/nowhere verify one STEPS=5..20 DATA=a.bin
ok "TMPDIR that cannot be written: what to do" is "$rc $(grep -c 'set TMPDIR to a folder that can be written' err)" "74 1"
if mkdir small && mount -t tmpfs -o size=300k tmpfs small 2>/dev/null; then
    TMPDIR=$tmp/small verify one STEPS=5..20 DATA=a.bin
    ok "no space: how much is needed, and what to do" is "$rc $(grep -c 'of temporary files are needed, and .* set TMPDIR to a folder with more' err)" "74 1"
    ok "nothing is left there" is "$(ls small | wc -l)" 0
    mount -o remount,size=900k small
    TMPDIR=$tmp/small verify one STEPS=5..20 DATA=a.bin
    ok "a disk that is full when a checkpoint is written: what to do" is "$rc $(grep -c 'could not be repeated: .train. ended with 74.*set TMPDIR' err)" "74 1"
    ok "nothing is left there, either" is "$(ls small | wc -l)" 0
else
    skip "no space" "no right to mount"
fi

# ---- Ctrl-C ----

run_one CHECKPOINT_DIR=long STEPS=60 CHECKPOINT_EVERY=1 CHECKPOINT_KEEP=99
ended=""
for signal in INT TERM INT HUP INT; do
    : >out >err # here, for the process may be slow to
    "$convoy" verify long STEPS=1..60 DATA=a.bin >out 2>err &
    pid=$! started+=("$!")
    repeats() { said "repeating steps 3 to"; }
    wait_for 30 repeats
    sleep 0.0$((RANDOM % 90 + 10))
    kill -$signal "$pid"
    finish
    ended+="$rc:$(left):$(pgrep -cf "$tmp/scratch") "
done
ok "a signal: its code, nothing left, no process" is "$ended" "130:0:0 143:0:0 130:0:0 143:0:0 130:0:0 "

# ---- STOP_AFTER ----

run_one CHECKPOINT_DIR=parts STEPS=20 STOP_AFTER=7
ok "STOP_AFTER: ends with a checkpoint" is "$rc $(newest_step parts)" "0 7"
run_one CHECKPOINT_DIR=parts STEPS=20 STOP_AFTER=7
ok "… again: nothing to do" is "$rc $(cat out err | grep -c 'nothing to do.*raise STOP_AFTER')" "0 1"
run_one CHECKPOINT_DIR=parts STEPS=20
ok "… a run in two parts has the weights of one" is "$rc $(sum_of parts/step-00000020)" "0 $(sum_of one/step-00000020)"
done_testing
