#!/bin/bash
# test_schema — checkpoints of other versions. Every schema so far is read and resumes with the same losses. The schema before
# the first and the next one are refused with 65 by every command, and are neither replaced nor pruned.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden/ckpt_1
small="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=8 VOCAB=16 CONTEXT=8 SEQ_LEN=8 BATCH_SIZE=2 LR=1e-2 DATA=$golden/tokens.bin"
sum_of() { (cd "$1" && find . -type f ! -name .lock -exec cksum {} + | sort) | cksum; }
fresh() { rm -rf "$1" && mkdir "$1" && cp -r "$golden/step-00000002" "$1/"; }
schema() { sed -i "s/\"schema\": 1,/\"schema\": $2,/" "$1/manifest.json"; }

# 1. N: the committed one.
fresh now
try "schema 1: gone on from" 0 'resuming from now/step-00000002' -- train $small STEPS=4 RESUME=required METRICS_FILE=now.jsonl CHECKPOINT_DIR=now
tail -n 2 "$golden/metrics.jsonl" >then.jsonl
ok "its losses are those of the run that wrote it" near then.jsonl now.jsonl 2e-6

# 2. N-1 and N+1, and one far away: the newest of the folder, beside one that could be read.
for other in 0 2 4711; do
    fresh $other
    cp -r $other/step-00000002 $other/step-00000003
    schema $other/step-00000003 $other
    before=$(sum_of $other)
    try "schema $other: refused with 65" 65 -- train $small STEPS=4 CHECKPOINT_DIR=$other
    ok "schema $other: says which, and that this one reads 1" says "$other/step-00000003/manifest.json has schema $other, but this version reads schema 1"
    try "schema $other: RESUME=required, 65" 65 -- train $small STEPS=4 CHECKPOINT_DIR=$other RESUME=required
    for command in "generate PROMPT=x CHECKPOINT_DIR=$other" "eval VAL_DATA=$golden/tokens.bin CHECKPOINT_DIR=$other" "export FROM=$other TO=made"; do
        rc=0
        "$convoy" $command >out 2>err || rc=$?
        ok "schema $other: ${command%% *} refuses with 65" is "$rc $(grep -c 'reads schema 1' err)" "65 1"
    done
    ok "schema $other: nothing of the folder was changed" is "$(sum_of $other)" "$before"
done

# 3. An older one of another schema is no hindrance, and CHECKPOINT_KEEP never removes it.
fresh kept
cp -r kept/step-00000002 kept/step-00000001
schema kept/step-00000001 2
before=$(sum_of kept/step-00000001)
try "an older one of schema 2: the newest is gone on from" 0 'step-00000002: step 2' -- train $small STEPS=12 CHECKPOINT_DIR=kept CHECKPOINT_EVERY=2 CHECKPOINT_KEEP=1
ok "CHECKPOINT_KEEP=1 leaves it and the newest" is "$(ls kept | grep step- | tr '\n' ' ')" "step-00000001 step-00000012 "
ok "and leaves it as it was" is "$(sum_of kept/step-00000001)" "$before"

# 4. With RESUME=never it is moved aside whole.
fresh never
schema never/step-00000002 2
before=$(sum_of never/step-00000002)
try "RESUME=never: trained anew" 0 -- train $small STEPS=2 CHECKPOINT_DIR=never RESUME=never
ok "the one of schema 2 was moved aside, as it was" is "$(sum_of never/before-*/step-00000002)" "$before"

# 5. A folder that is deleted midway is made again; a file in its place is 78 at start, 74 at the end of training.
begin $small STEPS=100000000 CHECKPOINT_DIR=gone CHECKPOINT_EVERY=50
has_saved() { local s; s=$(newest_step gone); [ "${s:-0}" -ge 100 ]; } # that of step 100 itself is soon removed
wait_for 20 has_saved
mv gone away # at once: rm -r would race with what is written
ok "a folder deleted midway is made again" wait_for 20 eval 'ls gone | grep -q step-'
stop
ok "and the last checkpoint is in it: 143" is "$rc $(grep -c 'was deleted; it is created again' err)" "143 1"
try "which is whole" 0 -- train $small STEPS=100 CHECKPOINT_DIR=gone RESUME=required
rm -rf gone
echo >gone
try "a file in its place: 78" 78 'CHECKPOINT_DIR=gone is not a folder' -- train $small STEPS=2 CHECKPOINT_DIR=gone
try "a file above it: 78" 78 -- train $small STEPS=2 CHECKPOINT_DIR=gone/below
rm -f gone
begin_training $small STEPS=100000000 CHECKPOINT_DIR=gone
mv gone away2
echo >gone
stop
ok "a file in its place midway: 74" is "$rc $(grep -c 'gone' err)" "74 1"
done_testing
