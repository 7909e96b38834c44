#!/bin/bash
# test_link — what a run reports of its link. LINK=auto: after the first steps node 0 reports once what they wait for, what each form would need and
# which one it proposes; a run of one node reports that there is nothing to propose; a setting that it does not go with is refused. The bytes
# sent, over all steps, are two times half of the gradients for each of two nodes, whatever part of an update's communication runs during the next
# step; rows of tokens come on top, as the log reports.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"

train_nodes 2 $tiny GLOBAL_BATCH=4 STEPS=12 LINK=auto
ok "two nodes train with LINK=auto" is "$codes" "0 0"
said='LINK=auto: of a step of [0-9.]+ m?s, [0-9.]+ m?s wait for other ranks; this worker sent [0-9.]+ .*B in it, at [0-9.]+ Mb/s'
ok "node 0 says what was measured" node_said 0 "$said; expected: COMPRESS=none [0-9.]+ m?s, [0-9]+% of it waiting, COMPRESS=bf16 .*; proposed: "
ok "once" is "$(cat err.0 out.0 | grep -c LINK=auto:)" 1
ok "node 1 does not" is "$(cat err.1 out.1 | grep -c LINK=auto:)" 0
train_nodes 2 $tiny GLOBAL_BATCH=4 STEPS=3 LINK=auto
ok "three steps are too few: nothing is said" is "$codes $(cat err.0 out.0 | grep -c LINK=auto:)" "0 0 0"
run $tiny STEPS=1 LINK=auto
ok "one node: nothing is proposed, and why" says 'LINK=auto: nothing is proposed: there is one node'
try "with LOCAL_STEPS it is refused" 78 'LINK=auto (argument) does not go with LOCAL_STEPS=5' -- train $tiny STEPS=1 LINK=auto LOCAL_STEPS=5

# The bytes sent.
steps=200
job="$tiny LR_SCHEDULE=constant GLOBAL_BATCH=4 STEPS=$steps"
sent() { jq -s '[.[] | .sent_bytes // 0] | add' "$1"; }
between() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || { echo "# $1 is not from $2 to $3"; false; }; }

train_nodes 2 ${job/VOCAB=64/VOCAB=48} METRICS_FILE="$tmp/whole.jsonl" CHECKPOINT_DIR="$tmp/kept"
file=$(ls kept/step-*/model.safetensors)
bytes=$(($(stat -c %s $file) - 8 - $(od -An -t u8 -N 8 $file))) whole=$(sent whole.jsonl)
# The sums of the last step may travel after it. Headers of calls are less than 2 %.
ok "two nodes train: all gradients are counted" is "$codes" "0 0"
ok "in the steps, or in those after them" between "$whole" $((bytes * (2 * steps - 1) / 2)) $((bytes * steps * 102 / 100))
ok "no rows are sent of a vocabulary of 48" is "$(grep -c 'rows of tokens: this worker sent' err.0)" 0

# The same with a vocabulary that is large enough for rows.
train_nodes 2 $job METRICS_FILE="$tmp/rows.jsonl" CHECKPOINT_DIR="$tmp/kept_rows"
ok "VOCAB=64: two nodes train" is "$codes" "0 0"
file=$(ls kept_rows/step-*/model.safetensors)
bytes=$(($(stat -c %s $file) - 8 - $(od -An -t u8 -N 8 $file)))
rows=$(sed -n 's/.*rows of tokens: this worker sent \([0-9.]*\) KiB.*/\1/p' err.0)
rows=$(awk -v k="$rows" 'BEGIN { printf "%d", k * 1024 }') # of at most 32 tokens, of 32 numbers each, with their numbers
ok "the log says what rows took" between "$rows" $((steps * 16 * 32 * 4)) $((steps * (32 * 32 * 4 + 32 * 4)))
ok "they come on top of the gradients" between $(($(sent rows.jsonl) - rows)) $((bytes * (2 * steps - 1) / 2)) $((bytes * steps * 102 / 100 + rows / 10))
done_testing
