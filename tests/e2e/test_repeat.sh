#!/bin/bash
# test_repeat — the recipe of docs/reliability.md, word for word: steps of a run are computed again from a copy of its checkpoint, and come to the
# checksums in the run's ledger, on fewer workers; after a flipped bit they do not. And STOP_AFTER, by which the recipe ends; and what `verify` answers
# to STEPS=a..b, which repeated steps in earlier versions.
. "$(dirname "$0")/lib.sh"
listed() { find "$1" -type f -printf '%p %s %T@ ' -exec sha256sum {} \; | sort; }
sum_of() { cat "$1"/*.safetensors | sha256sum | cut -d ' ' -f 1; }
mkdir build && ln -s "$convoy" build/convoy
block repeat >commands
eval "$(grep '^settings=' commands)"
repeat() { rc=0; rm -rf again; STATUS_PORT=0 bash -e commands >out 2>err || rc=$?; }

run $settings CHECKPOINT_DIR=run1 N_GPU_EACH_NODE=3 SHARD=full
cp -r run1 whole
rm -r run1/step-00000010
before=$(listed run1)
repeat
ok "three workers made them, one repeats them: equal" is "$rc $(tail -n 1 out) $(wc -l <commands)" "0 equal 7"
ok "both checkpoints were compared, also the one that is no longer kept" is "$(cut -d , -f 1 again.sums | xargs)" "[10 [15"
ok "the recipe resumed the copy, and ended before the last step" is "$(grep -c 'resuming from again/step-00000005: step 5 of 20' err) $(newest_step again)" "1 15"
ok "the run's folder is as it was" is "$(listed run1)" "$before"
ok "the files are equal, too" is "$(sum_of again/step-00000015)" "$(sum_of run1/step-00000015)"

rm -r run1
run $settings CHECKPOINT_DIR=run1 FAULT=flip@step=13
repeat
ok "a bit that flipped in step 13: only the checkpoint after it differs" is "$rc $(grep -c '^[<>]' out) $(grep -c '^< \[15,' out)" "1 2 1"
rm -r run1
run $settings CHECKPOINT_DIR=run1 LR=2e-3
repeat
ok "other settings: the log names them, and the checksums differ" is "$rc $(grep -c 'settings differ from .*LR' err) $(grep -c '^< ' out)" "1 1 2"

run $settings CHECKPOINT_DIR=halves STOP_AFTER=7
ok "STOP_AFTER: ends with a checkpoint" is "$rc $(newest_step halves)" "0 7"
run $settings CHECKPOINT_DIR=halves STOP_AFTER=7
ok "… again: nothing to do" is "$rc $(cat out err | grep -c 'nothing to do.*raise STOP_AFTER')" "0 1"
run $settings CHECKPOINT_DIR=halves
ok "… a run in two halves has the weights of one" is "$rc $(sum_of halves/step-00000020)" "0 $(sum_of whole/step-00000020)"

rc=0
"$convoy" verify whole STEPS=5..15 DATA=synthetic >out 2>err || rc=$?
ok "verify STEPS=a..b: refused, with the recipe" is "$rc $(grep -c 'STEPS=5..15 (argument): this value was removed; .*STOP_AFTER.*docs/reliability.md' err)" "78 1"
done_testing
