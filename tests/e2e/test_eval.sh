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
try "a run to measure" 0 -- train $text VAL_DATA=val.txt STEPS=20 CHECKPOINT_DIR=ck CHECKPOINT_EVERY=10 METRICS_FILE=m.jsonl EVAL_EVERY=10

try "a line for people: exit 0" 0 -- eval CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4
ok "one line" is "$(wc -l <out)" 1
ok "with loss and perplexity" shows '^loss [0-9.]+  perplexity [0-9.]+  accuracy [0-9.]+%  tokens 800 in 25 samples of 32  model gpt2-nano step 20  data val.txt'
cp out first
measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4
ok "the same again" cmp -s out first
try "OMP_NUM_THREADS is no setting: 64" 64 -- eval CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4 OMP_NUM_THREADS=1
OMP_NUM_THREADS=1 measure CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4
ok "the same with one thread" cmp -s out first
try "JSON: exit 0" 0 -- eval CHECKPOINT_DIR=ck VAL_DATA=val.txt BATCH_SIZE=4 JSON=1
ok "keys" is "$(jq -c keys_unsorted out)" '["task","model","step","adapter","data","seq_len","samples","tokens","loss","perplexity","accuracy"]'
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
try "a Hugging Face folder: exit 0" 0 -- eval MODEL="$root/tests/golden/lm" VAL_DATA="$root/tests/golden/lm/tokens.bin" SEQ_LEN=24 JSON=1
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
try "a run on questions" 0 -- train MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 CONTEXT=32 TASK=qa DATA=qa.json BATCH_SIZE=6 STEPS=120 LR=5e-3 WEIGHT_DECAY=0 CHECKPOINT_DIR=qack
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
try "questions asked of a text: 78" 78 -- eval CHECKPOINT_DIR=qack VAL_DATA=val.txt
try "questions that are not there: 66, by the name of the setting" 66 'VAL_DATA: ' -- eval CHECKPOINT_DIR=qack VAL_DATA=nowhere.json
measure CHECKPOINT_DIR=qack VAL_DATA=qa.json OUT=no/such/folder/x.json
ok "answers that cannot be kept: 74, and no scores" is "$rc $(wc -c <out)" "74 0"

# Multiple choice: what was learnt by heart is found again. The right ending comes at a different place in each question.
for i in $(seq 200); do printf 'one two three four.\nred blue green grey.\nsun moon star sky.\n'; done >lines.txt
run MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 CONTEXT=64 BATCH_SIZE=4 SEQ_LEN=32 LR=1e-2 DATA=lines.txt STEPS=60 CHECKPOINT_DIR=linesck
cat >choice.jsonl <<'END'
{"ctx": "one two", "label": 0, "endings": ["three four.", "green grey.", "star sky."]}
{"ctx": "red blue", "label": "1", "endings": ["three four.", "green grey.", "star sky."]}
{"question": "sun moon", "answer": "C", "choices": ["three four.", "green grey.", "star sky."]}
{"ctx": "one two", "label": 2, "endings": ["three four.", "green grey.", "star sky."]}
END
measure CHECKPOINT_DIR=linesck VAL_DATA=choice.jsonl
ok "multiple choice: three of four labels are what the text says" shows '^acc 0\.7500  acc_norm 0\.7500  questions 4  model gpt2-nano step 60  data choice.jsonl$'
measure CHECKPOINT_DIR=linesck VAL_DATA=choice.jsonl JSON=1 BATCH_SIZE=1
ok "as JSON, and for every BATCH_SIZE the same" is "$rc $(jq -c '[.task, .questions, .acc, .acc_norm, .cut]' out)" '0 ["lm",4,0.75,0.75,0]'
try "contexts that do not fit lose their beginning, and that is said" 0 'first tokens of these contexts are left out' -- eval CHECKPOINT_DIR=linesck VAL_DATA=choice.jsonl SEQ_LEN=3
try "an ending that does not fit: 65" 65 'set a larger SEQ_LEN' -- eval CHECKPOINT_DIR=linesck VAL_DATA=choice.jsonl SEQ_LEN=2

echo '{"ctx": "one two", "label": 0}' >no-endings.jsonl
try "a question without endings: 65, with line and member" 65 'VAL_DATA: no-endings.jsonl: line 1 lacks .*"endings"' -- eval CHECKPOINT_DIR=linesck VAL_DATA=no-endings.jsonl
{ head -n 1 choice.jsonl; echo '{"ctx": "one two", "label": "x", "endings": ["a", "b"]}'; } >label.jsonl
try "a label that is none: 65, with line and label" 65 'VAL_DATA: label.jsonl: line 2 has the label "x", expected' -- eval CHECKPOINT_DIR=linesck VAL_DATA=label.jsonl

# llm.c's file on a model that knows nothing: the ending with the smallest loss, from the losses of texts with and without it.
words() { for w in "$@"; do printf "\\$(printf %03o $((w & 255)))\\$(printf %03o $((w >> 8)))"; done; }
integers() { for w in "$@"; do words $((w & 65535)) $((w >> 16)); done; }
# total ID… — the sum of the losses of all ids but the first.
total() {
    { integers 20240520 1 $#; head -c 1012 /dev/zero; words "$@"; } >ids.bin
    measure MODEL="$golden" VAL_DATA=ids.bin SEQ_LEN=$(($# - 1)) JSON=1
    jq ".loss * $(($# - 1))" out
}
context=$(total 5 17 40)
sums=$(for e in "9" "3 8" "60 61 62"; do total 5 17 40 $e; done | jq -s -c "map(. - $context)")
best=$(jq 'to_entries | min_by(.value).key' <<<"$sums")
best_norm=$(jq '[., [1, 2, 3]] | transpose | map(.[0] / .[1]) | to_entries | min_by(.value).key' <<<"$sums")
for label in 0 1 2; do
    { integers 20240522 1 1 36; head -c 1008 /dev/zero; words 65535 36 0 $label 3  3 5 17 40  1 9  2 3 8  3 60 61 62; } >choice.bin
    measure MODEL="$golden" VAL_DATA=choice.bin JSON=1
    ok "label $label of llm.c's file" is "$rc $(jq -c '[.acc, .acc_norm]' out)" "0 [$((label == best)),$((label == best_norm))]"
done
ok "the two counts differ for these endings" test "$best" != "$best_norm"
head -c 1040 choice.bin >cut.bin
try "a file that is cut off: 65" 65 'VAL_DATA: .*cut off' -- eval MODEL="$golden" VAL_DATA=cut.bin

# What cannot be measured.
try "without VAL_DATA: 78" 78 'VAL_DATA is not set' -- eval CHECKPOINT_DIR=ck
try "no weights named: 66" 66 'CHECKPOINT_DIR is empty' -- eval VAL_DATA=val.txt
try "no checkpoint there: 66" 66 'no valid checkpoint' -- eval CHECKPOINT_DIR=more VAL_DATA=val.txt
try "no such data: 66" 66 -- eval CHECKPOINT_DIR=ck VAL_DATA=nowhere.txt
ok "and the setting that named it" is "$(grep -c 'VAL_DATA: .*nowhere.txt' err) $(grep -c 'check DATA' err)" "1 0"
measure MODEL="$golden" VAL_DATA=val.txt SEQ_LEN=40
ok "ids beyond the vocabulary: 65, and no setting that eval does not heed" \
    is "$rc $(grep -c 'use data made for it, set TOKENIZER .*, or use a model with VOCAB=50257' err) $(grep -c 'set VOCAB' err)" "65 1 0"
try "SEQ_LEN over CONTEXT: 78" 78 -- eval CHECKPOINT_DIR=ck VAL_DATA=val.txt SEQ_LEN=65
head -c 40 val.txt >short.txt
try "less than one window: 65" 65 -- eval CHECKPOINT_DIR=ck VAL_DATA=short.txt
try "another task than the model's: 78" 78 'was trained for TASK=lm' -- eval CHECKPOINT_DIR=ck VAL_DATA=val.txt TASK=qa
cp -r ck bad && rm -r bad/step-00000010 && f=$(ls bad/step-00000020/*.safetensors | head -n 1) && printf x | dd of="$f" bs=1 seek=3000 conv=notrunc 2>/dev/null
try "a damaged checkpoint: 65" 65 -- eval MODEL=bad/step-00000020 VAL_DATA=val.txt
"$convoy" eval CHECKPOINT_DIR=ck VAL_DATA=val.txt >/dev/full 2>err
ok "a full disk behind stdout: 74" is $? 74
done_testing
