#!/bin/bash
# test_tensor — workers that share matrices (TP): the losses of one worker, on one node and on two; checkpoints that any mesh
# reads; a lost worker of a group is replaced; wrong settings are refused before anything is read.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
. "$root/tests/e2e/mesh_lib.sh"
batch="BATCH_SIZE=2 GLOBAL_BATCH=4 STEPS=20"
gpt="$tiny $batch DROPOUT=0.1"
llama="$gpt MODEL=llama-3.2-1b TOKENIZER=gpt2 HEADS=4 KV_HEADS=2 HEAD_DIM=8"
share="N_GPU_EACH_NODE=2 TP=2" name=TP=2

# 1. One node.
equals_one
ok "the log has the mesh and its links" says 'mesh: data 1 x tensor 2; tensor groups inside a node over shm'
ok "the end of the run tells the share of communication" is \
    "$(grep -cE 'tensor parallelism: communication took [0-9.]+% of the steps. time, and no computation ran during it' out)" 1
losses_near gpt.jsonl 2e-6 "data 2 x TP=2, SHARD=full: done, losses within 2e-6" $gpt N_GPU_EACH_NODE=4 TP=2 SHARD=full
losses_near gpt.jsonl 2e-6 "TP=2 with four micro-batches: losses within 2e-6" $gpt $share BATCH_SIZE=1
run $gpt VOCAB=50257 STEPS=2 SAMPLE_EVERY=2 TEMPERATURE=0
text=$(grep -o '^step 2/2  sample ".*' out)
for s in none full; do
    run $gpt N_GPU_EACH_NODE=4 TP=2 SHARD=$s VOCAB=50257 STEPS=2 SAMPLE_EVERY=2 TEMPERATURE=0
    ok "data 2 x TP=2, SHARD=$s writes the sample of text that one worker writes" is "${text:+$(grep -o '^step 2/2  sample ".*' out)}" "${text:-one}"
done
run $llama METRICS_FILE=llama.jsonl
losses_near llama.jsonl 2e-6 "a Llama with fewer key heads: losses within 2e-6" $llama $share

# 2. Checkpoints do not know the mesh.
goes_on N_GPU_EACH_NODE=1 TP=1 SHARD=none
goes_on N_GPU_EACH_NODE=2 TP=2 SHARD=none
goes_on N_GPU_EACH_NODE=4 TP=2 SHARD=full
goes_on N_GPU_EACH_NODE=2 TP=1 SHARD=full
run $gpt $share MODEL=one/step-00000020 STEPS=2 METRICS_FILE=from.jsonl
ok "TP=2 begins with the weights of one worker's checkpoint" is "$rc $(steps_of from.jsonl)" "0 2"

# 3. Two nodes of two workers, and what /status shows.
train_nodes 2 $gpt N_GPU_EACH_NODE=2 TP=2 SHARD=full METRICS_FILE=nodes.jsonl CHECKPOINT_DIR=nodes
ok "2 nodes x 2 workers, TP=2, SHARD=full: done" is "$codes $(steps_of nodes.jsonl)" "0 0 20"
ok "losses within 2e-6 of one worker's" near gpt.jsonl nodes.jsonl 2e-6
ok "a tensor group is inside a node, data cross the network" node_says 0 \
    'mesh: data 2 x tensor 2; tensor groups inside a node over shm; data groups across nodes over (tcp|ucx)'
train_nodes 2 $gpt TP=2 TP_ACROSS_NODES=1 METRICS_FILE=across.jsonl
ok "TP_ACROSS_NODES=1: a group over two nodes, losses within 2e-6" near gpt.jsonl across.jsonl 2e-6
begin_served $gpt N_GPU_EACH_NODE=4 TP=2 STEPS=100000000
wait_for 30 status_has '.step > 0 and .mesh.links != null and ([.ranks[].mesh] | length == 4 and all(. != null))'
ok "/status has the mesh and its links" is "$(jq -c '.mesh | [.data, .tensor, .pipeline, .links.data, .links.tensor]' status.json)" '[2,2,1,"shm","shm"]'
ok "/status has each rank's place in the mesh" is "$(jq -c '[.ranks[].mesh | [.data, .tensor]]' status.json)" '[[0,0],[0,1],[1,0],[1,1]]'
stop INT

# 4. A lost worker of a group; from outside: test_copies.
heals "$gpt $share" kill:rank=1 nan:rank=1 stall:rank=0

# 5. Refused, with both values and what to do.
refused "TP=3 (argument) does not divide the job's 4 workers" N_GPU_EACH_NODE=4 TP=3
refused 'TP=2 does not divide HEADS=3' $share HEADS=3 EMBED=33
refused 'TP=2 does not divide SEQ_LEN=15 rows of EMBED=32' $share SEQ_LEN=15
refused 'or TP_ACROSS_NODES=1 to allow this' N_NODES=2 TP=2 MASTER_ADDR=127.0.0.1
refused 'COMPRESS=int8 (argument) does not go with TP=2 (argument)' $share COMPRESS=int8
refused 'SHARD=hybrid (argument) does not go with TP=2 (argument)' $share SHARD=hybrid
done_testing
