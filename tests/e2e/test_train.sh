#!/bin/bash
# test_train — a run from start to end; and a run that is cut resumes with the same losses, bit for bit (fault/test_crash_kill.pl: at any instant).
. "$(dirname "$0")/lib.sh"

# 1. Synthetic language model and question answering.
try "language model, synthetic: exit 0" 0 -- train $tiny STEPS=30 METRICS_FILE=lm.jsonl CHECKPOINT_DIR=lm
ok "the log names the backend and the reason" says 'BACKEND=auto uses self: there is one worker'
ok "a line a step on the console" is "$(grep -c '^step [0-9]*/30  loss [0-9.]*  lr [0-9.e+-]*  norm [0-9.]*  [0-9.]* ms ' out)" 30
ok "no carriage return off a terminal" is "$(tr -cd '\r' <out | wc -c)" 0
ok "the end says how the loss fell" shows '^loss fell from [0-9.]+ at step 1 to [0-9.]+ at step 30 \(mean of the last 10: [0-9.]+\)'
ok "the end proposes no text: VOCAB=64 has no tokenizer" is "$(grep -c '^to ' out)" 0
ok "the checkpoint is of the last step" is "$(ls lm | grep '^step-')" step-00000030
ok "metrics: 30 lines of JSON with the contract's keys in order" is \
    "$(jq -c 'keys_unsorted' lm.jsonl | sort | uniq -c | sed 's/^ *//')" \
    '30 ["step","epoch","loss","grad_norm","lr","tokens","step_ms"]'
ok "metrics: steps from 1, tokens counted" is "$(jq -s -c '[.[0].step,.[0].tokens,.[29].step,.[29].tokens]' lm.jsonl)" '[1,32,30,960]'
ok "metrics: the loss falls" holds lm.jsonl '.[29].loss < .[0].loss'
cp lm.jsonl lm.first
try "a finished run has nothing to do: exit 0" 0 -- train $tiny STEPS=30 METRICS_FILE=lm.jsonl CHECKPOINT_DIR=lm
ok "and says so" shows 'nothing to do: .*step-00000030 has done 30 of 30 steps'
ok "and leaves the metrics alone" cmp -s lm.jsonl lm.first
run $tiny STEPS=30 METRICS_FILE=again.jsonl
ok "the same run again gives the same losses" is "$(losses again.jsonl | cksum)" "$(losses lm.jsonl | cksum)"
try "question answering, synthetic: exit 0" 0 -- train $tiny TASK=qa STEPS=30 METRICS_FILE=qa.jsonl
ok "its loss falls" holds qa.jsonl '.[29].loss < .[0].loss'

TERM=xterm script -qec "$convoy train $quiet $tiny STEPS=3000 LOG_EVERY=0" typescript >out 2>err </dev/null
ok "on a terminal a bar is rewritten" is "$(tr '\r' '\n' <typescript | grep -qE '^\[#*-+\] +[0-9]+%  step [0-9]+/3000  loss ' && echo yes)" yes
ok "and about ten lines stay" is "$(tr -d '\r' <typescript | grep -oE 'step [0-9]+/3000  loss [0-9.]+  lr ' | wc -l)" 11

# 2. Epochs, accumulation, one epoch of synthetic data is one step.
run $tiny METRICS_FILE=one.jsonl
ok "EPOCHS=1 on synthetic data is one step" is "$rc $(steps_of one.jsonl)" "0 1"
run $tiny EPOCHS=5 GLOBAL_BATCH=8 METRICS_FILE=five.jsonl
ok "EPOCHS=5 with GLOBAL_BATCH=8 is five steps of 8 samples" is "$rc $(jq -c .tokens five.jsonl | tail -n 1) $(jq .epoch five.jsonl | tr '\n' ' ')" "0 640 0 1 2 3 4 "

# 3. Real text, held-out text, evaluation.
head -c 60000 /usr/share/common-licenses/GPL-3 >train.txt
tail -c 3000 /usr/share/common-licenses/Apache-2.0 >val.txt
text="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 CONTEXT=32 BATCH_SIZE=4 SEQ_LEN=32 LR=1e-2 DATA=train.txt"
try "text with held-out text: exit 0" 0 -- train $text VAL_DATA=val.txt EVAL_EVERY=10 STEPS=25 METRICS_FILE=text.jsonl
ok "val_loss at 10, 20 and at the end" is "$(jq -c 'select(.val_loss)|.step' text.jsonl | tr '\n' ' ')" "10 20 25 "
ok "val_loss on the console" shows '^step 25/25  val_loss [0-9.]+  accuracy [0-9.]+%$'
ok "val_loss in the summary" shows 'held-out loss [0-9.]+$'
ok "shards of the text are cached" [ -n "$(find cache -type f 2>/dev/null)" ]
run $text EPOCHS=1 BATCH_SIZE=64 METRICS_FILE=epoch.jsonl
tokens=$(jq -s '.[-1].tokens' epoch.jsonl)
ok "an epoch is as many whole steps as the data has" is $rc 0
ok "about the tokens of the text" [ "${tokens:-0}" -gt 5000 ]

# 4. Resume: the sequence of losses of a run cut and continued is that of an unbroken one.
tokens 20240520 1 3000 $(awk 'BEGIN { srand(7); for (i = 0; i < 3000; i++) print int(64 * rand()) }') >small.bin
file="$tiny DATA=small.bin"
run $file STEPS=40 METRICS_FILE=whole.jsonl DROPOUT=0.1 WARMUP_STEPS=5
ok "unbroken run" is "$rc $(steps_of whole.jsonl)" "0 40"
resumed="$file STEPS=40 METRICS_FILE=resumed.jsonl DROPOUT=0.1 WARMUP_STEPS=5 CHECKPOINT_DIR=resumed CHECKPOINT_EVERY=7"
run $resumed FAULT=kill@step=26 MAX_RESTARTS=0
ok "cut in step 26" is "$rc $(steps_of resumed.jsonl)" "75 25"
ok "the newest checkpoint is of step 21" is "$(newest_step resumed)" 21
run $resumed
ok "goes on from step 21" says "step 21 of 40"
ok "the metrics file is cut back, not repeated" is "$(jq -c .step resumed.jsonl | sort -n | uniq -d | wc -l) $(steps_of resumed.jsonl)" "0 40"
ok "losses, norms, rates bit for bit" is "$(losses resumed.jsonl | cksum)" "$(losses whole.jsonl | cksum)"
ok "three checkpoints are kept" is "$(ls resumed | grep -c '^step-')" 3
rm -rf resumed resumed.jsonl
try "the same with an automatic restart: exit 0" 0 -- train $resumed FAULT=kill@step=26
ok "losses bit for bit" is "$(losses resumed.jsonl | cksum)" "$(losses whole.jsonl | cksum)"

# 5. Changes between two runs of one folder.
run $tiny STEPS=10 CHECKPOINT_DIR=change
try "a changed setting is told by name and values, and the run goes on" 0 -- train $tiny STEPS=20 CHECKPOINT_DIR=change SEED=7 WEIGHT_DECAY=0.2
ok "SEED by name" says 'SEED was 1, is 7'
ok "WEIGHT_DECAY by name" says 'WEIGHT_DECAY was 0.1, is 0.2'
try "another model is refused with both: 78" 78 -- train $tiny STEPS=30 CHECKPOINT_DIR=change EMBED=64
ok "named" says 'embed was 32, is 64'
try "another optimiser is refused: 78" 78 'OPTIMIZER was adamw, is sgd' -- train $tiny STEPS=30 CHECKPOINT_DIR=change OPTIMIZER=sgd
run $tiny STEPS=15 CHECKPOINT_DIR=change RESUME=never METRICS_FILE=never.jsonl
ok "RESUME=never begins anew" is "$rc $(jq .step never.jsonl | head -n 1)" "0 1"
ok "and sets the old checkpoints aside" is "$(ls change | grep -c '^step-') $(ls change/before-* | grep -c '^step-')" "1 2"
try "RESUME=required finds it" 0 -- train $tiny STEPS=15 CHECKPOINT_DIR=change RESUME=required
done_testing
