#!/bin/bash
# test_samples — what a run writes beside its numbers: samples of text, which change nothing, and TensorBoard's files.
. "$(dirname "$0")/lib.sh"

head -c 60000 /usr/share/common-licenses/GPL-3 >train.txt
text="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 CONTEXT=96 BATCH_SIZE=4 SEQ_LEN=96 LR=1e-2 DROPOUT=0.1 DATA=train.txt STEPS=12"
words=(PROMPT='The license' TEMPERATURE=0.7 TOP_K=30 TOP_P=0.9 SEED=5)

# 1. Samples.
try "a run without samples" 0 -- train $text SEED=5 METRICS_FILE=calm.jsonl
ok "shows none" is "$(grep -c sample out)" 0
try "a run with samples: exit 0" 0 -- train $text "${words[@]}" SAMPLE_EVERY=4 METRICS_FILE=told.jsonl CHECKPOINT_DIR=ck CHECKPOINT_EVERY=4
ok "one every four steps, one line each" is "$(grep -c '^step [0-9]*/12  sample "The license.*"$' out)" 3
ok "after the line of their step" is "$(grep -A1 '^step 4/12  loss' out | tail -n 1 | cut -c 1-17)" 'step 4/12  sample'
ok "the losses are the same bit for bit" is "$(losses told.jsonl | cksum)" "$(losses calm.jsonl | cksum)"
for step in 4 12; do
    "$convoy" generate MODEL=ck/step-$(printf %08d $step) "${words[@]}" TOKENS=60 >text 2>err
    sed -n "s|^step $step/12  sample ||p" out | jq -r . >sample
    ok "step $step: the text that generate writes from that checkpoint" cmp -s sample text
done
run $text SAMPLE_EVERY=12 TEMPERATURE=0 LOG_FORMAT=json
ok "an object in the log with LOG_FORMAT=json" is "$(jq -r 'select(.message | startswith("step 12/12  sample \"")) | .module' err)" console
try "a vocabulary without <|endoftext|>: 78, with what to do" 78 'set PROMPT' -- train $tiny STEPS=4 SAMPLE_EVERY=2
try "question answering writes no text: 78" 78 'only a language model writes text' -- train $tiny STEPS=4 SAMPLE_EVERY=2 TASK=qa
run $tiny STEPS=4 SAMPLE_EVERY=2 PROMPT='!'
ok "a prompt of tokens that the model knows" is "$rc $(grep -c 'sample "!' out)" "0 2"

# 2. TensorBoard. What is in the files is read in tests/unit/format/tfevents.c and test_trainer.c.
try "a run that is killed and restarts" 0 -- train $tiny STEPS=30 CHECKPOINT_DIR=watched CHECKPOINT_EVERY=10 TENSORBOARD_DIR=tb/run1 FAULT=kill@step=15
ok "writes a file for each of its lives" is "$(ls tb/run1 | grep -c '^events\.out\.tfevents\.[0-9]\{10\}\..*\.[0-9]*\.convoy$')" 2
ok "which say what they are" is "$(cat tb/run1/* | grep -ac 'brain.Event:2')" 2
run $tiny STEPS=30 CHECKPOINT_DIR=watched TENSORBOARD_DIR=tb/run1
ok "nothing to do makes no file" is "$(ls tb/run1 | wc -l)" 2
try "a folder that cannot be: refused, named" 74 '/dev/null' -- train $tiny STEPS=5 TENSORBOARD_DIR=/dev/null/x
if [ "$(id -u)" = 0 ] && mkdir mnt && mount -t tmpfs -o size=64k tmpfs mnt 2>/dev/null; then
    run $tiny STEPS=2000 TENSORBOARD_DIR=mnt METRICS_FILE=full.jsonl
    ok "a disk that fills up costs scalars, not the run" is "$rc $(steps_of full.jsonl)" "0 2000"
    ok "said once when it happens and once at the end" is "$(grep -c TENSORBOARD_DIR err)" 2
    head -c 65536 /dev/zero >mnt/filler 2>/dev/null
    try "a disk that is full already too" 0 -- train $tiny STEPS=20 TENSORBOARD_DIR=mnt/below
    umount mnt
else
    skip "a disk that fills up" "needs root, to mount a small file system"
fi
done_testing
