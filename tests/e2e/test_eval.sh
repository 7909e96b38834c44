#!/bin/bash
# test_eval — `convoy eval` gives the same loss as training on the same data, to the last bit, and refuses what cannot be
# measured.
. "$(dirname "$0")/lib.sh"

# measure SETTING… — to the end; $rc, files out and err.
measure() {
    rc=0
    "$convoy" eval "$@" >out 2>err || rc=$?
}

head -c 60000 /usr/share/common-licenses/GPL-3 >train.txt
tail -c 3000 /usr/share/common-licenses/Apache-2.0 >val.txt
text="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 CONTEXT=64 BATCH_SIZE=4 SEQ_LEN=32 LR=1e-2 DATA=train.txt"
run $text VAL_DATA=val.txt STEPS=20 CHECKPOINT_DIR=ck CHECKPOINT_EVERY=10 METRICS_FILE=m.jsonl EVAL_EVERY=10
ok "a run to measure" is $rc 0

measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4
ok "a line for people: exit 0" is $rc 0
ok "one line" is "$(wc -l <out)" 1
ok "with loss and perplexity" shows '^loss [0-9.]+  perplexity [0-9.]+  tokens 800 in 25 samples of 32  model gpt2-nano step 20  data val.txt'
cp out first
measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4
ok "the same again" cmp -s out first
measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4 OMP_NUM_THREADS=1
ok "OMP_NUM_THREADS is no setting: 64" is $rc 64
OMP_NUM_THREADS=1 measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4
ok "the same with one thread" cmp -s out first
measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4 JSON=1
ok "JSON: exit 0" is $rc 0
ok "keys" is "$(jq -c keys_unsorted out)" '["task","model","step","data","seq_len","samples","tokens","loss","perplexity"]'
ok "the last val_loss of the run, bit for bit" is "$(jq .loss out)" "$(jq -s '.[-1].val_loss' m.jsonl)"
ok "perplexity is its exponential" holds out '.[0] | (.perplexity / (.loss | exp) - 1 | fabs) < 1e-12'
measure CHECKPOINT_DIR=ck/step-00000010 VAL_DATA=val.txt BATCH_SIZE=4 JSON=1
ok "an older checkpoint by its own folder" is "$(jq -c '[.step, .loss]' out)" \
    "$(jq -s -c '[.[] | select(.val_loss and .step == 10)][0] | [.step, .val_loss]' m.jsonl)"
measure MODEL=ck VAL_DATA=val.txt BATCH_SIZE=4 SEQ_LEN=64 JSON=1
ok "SEQ_LEN as asked for" is "$(jq -c '[.seq_len, .samples]' out)" '[64,12]'
mkdir more && cp val.txt more/a.txt && cp val.txt more/b.txt
measure CHECKPOINT_DIR=ck VAL_DATA=more JSON=1
ok "a folder" is "$rc $(jq .samples out)" "0 50"
measure MODEL="$root/tests/golden/lm" VAL_DATA="$root/tests/golden/lm/tokens.bin" SEQ_LEN=24 JSON=1
ok "a Hugging Face folder: exit 0" is $rc 0
ok "its step is not known" is "$(jq -c '[.step, .model, .task]' out)" '[null,"lm","lm"]'

# The first three windows of the golden data: PyTorch's loss (tests/golden/lm/expected.json, step 1).
golden=$root/tests/golden/lm
{ head -c 8 "$golden/tokens.bin"; printf '\171\0\0\0'; head -c 1266 "$golden/tokens.bin" | tail -c +13; } >first.bin
measure MODEL="$golden" VAL_DATA=first.bin SEQ_LEN=40 JSON=1
ok "the loss that PyTorch computes, to 1e-6" holds out \
    ".[0] | (.loss - $(jq '.steps[0].loss' "$golden/expected.json") | fabs) < 1e-6 and .tokens == 120"

# Questions: four with an answer, two without, learnt by heart.
jq -n '[["The old cat sat on the red mat in Paris.", "Who sat?", "old cat"], ["The old cat sat on the red mat in Paris.", "Where?", "Paris"],
        ["Rain fell on the green hills all of Monday.", "When?", "Monday"], ["Rain fell on the green hills all of Monday.", "What fell?", "Rain"],
        ["Rain fell on the green hills all of Monday.", "Why?", null], ["The old cat sat on the red mat in Paris.", "How long?", null]]
    | {version: "v2.0", data: [{title: "t", paragraphs: [to_entries[] | .key as $i | .value as [$c, $q, $a] |
        {context: $c, qas: [{id: "q\($i)", question: $q, is_impossible: ($a == null),
                            answers: (if $a == null then [] else [{text: $a, answer_start: ($c | index($a))}] end)}]}]}]}' >qa.json
run MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 CONTEXT=32 TASK=qa DATA=qa.json BATCH_SIZE=6 STEPS=120 LR=5e-3 WEIGHT_DECAY=0 CHECKPOINT_DIR=qack
ok "a run on questions" is $rc 0
measure CHECKPOINT_DIR=qack VAL_DATA=qa.json OUT=answers.json
ok "a line for people" shows '^exact match 100\.00%  f1 100\.00%  answerable 100\.00% 100\.00%  unanswerable 100\.00%  questions 6 in 6 samples of 32  model gpt2-nano step 120  data qa.json$'
ok "OUT: the answers, as SQuAD's scripts read them" is "$(jq -c . answers.json)" \
    '{"q0":"old cat","q1":"Paris","q2":"Monday","q3":"Rain","q4":"","q5":""}'
measure CHECKPOINT_DIR=qack VAL_DATA=qa.json JSON=1 BATCH_SIZE=1
ok "JSON" is "$(jq -c '[.task, .rules, .questions, .exact_match, .f1, .has_answer.questions, .no_answer.exact_match]' out)" \
    '["qa","v2.0",6,100,100,4,100]'
jq '.data[0].paragraphs |= map(select(.qas[0].is_impossible | not)) | .data[0].paragraphs[0].qas[0].answers[0].text = "The red cat"' qa.json |
    jq '.data[0].paragraphs[0].qas[0].answers[0].answer_start = 0 | .data[0].paragraphs[0].context |= sub("The old"; "The red")' >v1.json
measure CHECKPOINT_DIR=qack VAL_DATA=v1.json JSON=1
ok "without unanswerable questions the rules of v1.1, and no other scores" is "$rc $(jq -c '[.rules, .questions, has("has_answer")]' out)" \
    '0 ["v1.1",4,false]'
measure CHECKPOINT_DIR=qack VAL_DATA=qa.json SEQ_LEN=8
ok "questions and contexts cut into windows" is "$rc $(grep -c 'questions 6 in [1-9][0-9] samples of 8' out)" "0 1"
measure CHECKPOINT_DIR=qack VAL_DATA=val.txt
ok "questions asked of a text: 78" is $rc 78
measure CHECKPOINT_DIR=qack VAL_DATA=nowhere.json
ok "questions that are not there: 66, by the name of the setting" is "$rc $(grep -c 'VAL_DATA: ' err)" "66 1"
measure CHECKPOINT_DIR=qack VAL_DATA=qa.json OUT=no/such/folder/x.json
ok "answers that cannot be kept: 74, and no scores" is "$rc $(wc -c <out)" "74 0"

# What cannot be measured.
measure CHECKPOINT_DIR=ck
ok "without VAL_DATA: 78" is "$rc $(grep -c 'VAL_DATA is not set' err)" "78 1"
measure VAL_DATA=val.txt
ok "no weights named: 66" is "$rc $(grep -c 'CHECKPOINT_DIR is empty' err)" "66 1"
measure CHECKPOINT_DIR=more VAL_DATA=val.txt
ok "no checkpoint there: 66" is "$rc $(grep -c 'no valid checkpoint' err)" "66 1"
measure CHECKPOINT_DIR=ck VAL_DATA=nowhere.txt
ok "no such data: 66" is $rc 66
ok "and the setting that named it" is "$(grep -c 'VAL_DATA: .*nowhere.txt' err) $(grep -c 'check DATA' err)" "1 0"
measure MODEL="$golden" VAL_DATA=val.txt SEQ_LEN=40
ok "ids beyond the vocabulary: 65, and no setting that eval does not heed" \
    is "$rc $(grep -c 'give data made for it, or a model with VOCAB=50257' err) $(grep -c 'set VOCAB' err)" "65 1 0"
measure CHECKPOINT_DIR=ck VAL_DATA=val.txt SEQ_LEN=65
ok "SEQ_LEN over CONTEXT: 78" is $rc 78
head -c 40 val.txt >short.txt
measure CHECKPOINT_DIR=ck VAL_DATA=short.txt
ok "less than one window: 65" is $rc 65
measure CHECKPOINT_DIR=ck VAL_DATA=val.txt TASK=qa
ok "another task than the model's: 78" is "$rc $(grep -c 'was trained for TASK=lm' err)" "78 1"
cp -r ck bad && rm -r bad/step-00000010 && f=$(ls bad/step-00000020/*.safetensors | head -n 1) && printf x | dd of="$f" bs=1 seek=3000 conv=notrunc 2>/dev/null
measure MODEL=bad/step-00000020 VAL_DATA=val.txt
ok "a damaged checkpoint: 65" is $rc 65
"$convoy" eval CHECKPOINT_DIR=ck VAL_DATA=val.txt >/dev/full 2>err
ok "a full disk behind stdout: 74" is $? 74
done_testing
