#!/bin/bash
# test_context — workers that share samples (CP): the losses of one worker, on one node and on two; checkpoints that any mesh
# reads; a lost worker of a group is replaced; wrong settings are refused before anything is read.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
. "$root/tests/e2e/mesh_lib.sh"
batch="BATCH_SIZE=2 GLOBAL_BATCH=4 STEPS=20"
gpt="$tiny $batch DROPOUT=0.1"
llama="$gpt MODEL=llama-3.2-1b TOKENIZER=gpt2 HEADS=4 KV_HEADS=2 HEAD_DIM=8"
share="N_GPU_EACH_NODE=2 CP=2" name=CP=2

# 1. One node.
equals_one
ok "the log has the mesh and its links" says 'mesh: data 1 x context 2; context groups inside a node over shm'
tells="$(grep -cE 'context parallelism: communication took [0-9.]+% of the steps. time, and no computation ran during it' out)"
ok "the end of the run tells the share of communication" is "$tells" 1
losses_near gpt.jsonl 2e-6 "data 2 x CP=2, SHARD=full: losses within 2e-6" $gpt N_GPU_EACH_NODE=4 CP=2 SHARD=full
losses_near gpt.jsonl 2e-6 "CP=2 with four micro-batches: losses within 2e-6" $gpt $share BATCH_SIZE=1
run $gpt VOCAB=50257 STEPS=2 SAMPLE_EVERY=2 TEMPERATURE=0
text=$(grep -o '^step 2/2  sample ".*' out)
run $gpt $share VOCAB=50257 STEPS=2 SAMPLE_EVERY=2 TEMPERATURE=0
ok "CP=2 writes the sample of text that one worker writes" is "${text:+$(grep -o '^step 2/2  sample ".*' out)}" "${text:-one}"
run $llama METRICS_FILE=llama.jsonl
losses_near llama.jsonl 2e-6 "a Llama, CP=2 x TP=2: losses within 2e-6" $llama N_GPU_EACH_NODE=4 CP=2 TP=2
losses_near llama.jsonl 2e-6 "a Llama, CP=2 x PP=2: losses within 2e-6" $llama N_GPU_EACH_NODE=4 CP=2 PP=2
run $gpt TASK=qa METRICS_FILE=qa.jsonl
losses_near qa.jsonl 2e-6 "TASK=qa, CP=2: losses within 2e-6" $gpt TASK=qa $share

# 2. Checkpoints do not know the mesh.
goes_on N_GPU_EACH_NODE=1 CP=1
goes_on N_GPU_EACH_NODE=4 CP=2 SHARD=full
goes_on N_GPU_EACH_NODE=2 CP=1 TP=2

# 3. Two nodes, a group over both, and what /status shows.
train_nodes 2 $gpt CP=2 METRICS_FILE=nodes.jsonl
ok "2 nodes, CP=2: losses within 2e-6 of one worker's" near gpt.jsonl nodes.jsonl 2e-6
ok "a context group crosses the network" node_says 0 'mesh: data 1 x context 2; context groups across nodes over (tcp|ucx)'
begin_served $gpt N_GPU_EACH_NODE=4 CP=2 STEPS=100000000
wait_for 30 status_has '.step > 0 and .mesh.links != null and ([.ranks[].mesh] | length == 4 and all(. != null))'
ok "/status has the mesh and its links" is "$(jq -c '.mesh | [.data, .context, .links.data, .links.context]' status.json)" '[2,2,"shm","shm"]'
ok "/status has each rank's place in the mesh" is "$(jq -c '[.ranks[].mesh | [.data, .context]]' status.json)" '[[0,0],[0,1],[1,0],[1,1]]'
stop INT

# 4. A lost worker of a group.
heals "$gpt $share" kill:rank=1 nan:rank=1

# An evaluation with a last batch for one of two data groups only: the groups have made different numbers of calls since.
tokens 20240520 1 97 $(for i in {1..97}; do echo $((i * 7 % 64)); done) >val.bin # six samples
run $gpt N_GPU_EACH_NODE=4 CP=2 STEPS=8 VAL_DATA=val.bin EVAL_EVERY=1 STEP_TIMEOUT=$(secs 4) FAULT=stall@step=5:rank=0
ok "a rank that stalls after such evaluations is named as the one in no call" says 'rank 0 (data 0, context 0) is in no call, while rank'
ok "calls are not compared by their numbers, and that rank is replaced" is \
    "$rc $(grep -cE 'ha(s|ve) not entered' err) $(grep -oE 'worker rank [0-9]+ \(.* hung' err | cut -d' ' -f3 | sort -u)" "0 0 0"

# 5. A long sample: a worker's memory.
long="MODEL=llama-3.2-1b TOKENIZER=gpt2 LAYERS=8 HEADS=4 KV_HEADS=2 HEAD_DIM=8 EMBED=32 FFN=64 VOCAB=64 CONTEXT=4096 SEQ_LEN=4096
    BATCH_SIZE=1 GLOBAL_BATCH=2 STEPS=1 RECOMPUTE=none N_GPU_EACH_NODE=2"
passes() { grep -oE 'planned and taken: .* passes [0-9.]+ [KMG]iB' err | grep -oE '[0-9.]+ [KMG]iB$'; }
run $long
whole=$(passes)
run $long CP=2
halved=$(passes)
echo "# passes of a worker with SEQ_LEN=4096: $whole, with CP=2 $halved"
half() { [ "${1#* }" = "${2#* }" ] && awk -v w="${1% *}" -v p="${2% *}" 'BEGIN { exit !(p > 0 && p < 0.6 * w) }'; }
ok "CP=2 halves the memory of passes" half "$whole" "$halved"

# 6. Refused, with both values and what to do.
refused "CP=3 (argument) does not divide the job's 4 workers" N_GPU_EACH_NODE=4 CP=3
refused 'SEQ_LEN=15 is not a multiple of 2 x CP=2' $share SEQ_LEN=15
refused 'CP=2 divides SEQ_LEN=12 into parts of 6 rows of 2 numbers' $share TASK=qa SEQ_LEN=12
refused 'COMPRESS=int8 (argument) does not go with CP=2 (argument)' $share COMPRESS=int8
refused 'SHARD=hybrid (argument) does not go with CP=2 (argument)' $share SHARD=hybrid
done_testing
