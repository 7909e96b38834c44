#!/bin/bash
# test_sent_bytes — what a run says of the bytes it has sent: over all steps it is two times half of the gradients for each of two
# nodes, whatever part of an update's communication runs beside the next step; rows of tokens come on top, as the log says.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
steps=200
job="$tiny LR_SCHEDULE=constant GLOBAL_BATCH=4 STEPS=$steps"
sent() { jq -s '[.[] | .sent_bytes // 0] | add' "$1"; }
between() { [ "$1" -ge "$2" ] && [ "$1" -le "$3" ] || { echo "# $1 is not from $2 to $3"; false; }; }

begin_nodes 2 ${job/VOCAB=64/VOCAB=48} METRICS_FILE="$tmp/whole.jsonl" CHECKPOINT_DIR="$tmp/kept"
finish_nodes 2
file=$(ls kept/step-*/model.safetensors)
bytes=$(($(stat -c %s $file) - 8 - $(od -An -t u8 -N 8 $file))) whole=$(sent whole.jsonl)
# The sums of the last step may travel after it. Headers of calls are less than 2 %.
ok "two nodes train: all gradients are counted" is "$codes" "0 0"
ok "in the steps, or in those after them" between "$whole" $((bytes * (2 * steps - 1) / 2)) $((bytes * steps * 102 / 100))
ok "no rows are sent of a vocabulary of 48" is "$(grep -c 'rows of tokens: this worker sent' err.0)" 0

# The same with a vocabulary that is large enough for rows.
begin_nodes 2 $job METRICS_FILE="$tmp/rows.jsonl" CHECKPOINT_DIR="$tmp/kept_rows"
finish_nodes 2
ok "VOCAB=64: two nodes train" is "$codes" "0 0"
file=$(ls kept_rows/step-*/model.safetensors)
bytes=$(($(stat -c %s $file) - 8 - $(od -An -t u8 -N 8 $file)))
rows=$(sed -n 's/.*rows of tokens: this worker sent \([0-9.]*\) KiB.*/\1/p' err.0)
rows=$(awk -v k="$rows" 'BEGIN { printf "%d", k * 1024 }') # of at most 32 tokens, of 32 numbers each, with their numbers
ok "the log says what rows took" between "$rows" $((steps * 16 * 32 * 4)) $((steps * (32 * 32 * 4 + 32 * 4)))
ok "they come on top of the gradients" between $(($(sent rows.jsonl) - rows)) $((bytes * (2 * steps - 1) / 2)) $((bytes * steps * 102 / 100 + rows / 10))
done_testing
