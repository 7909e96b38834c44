#!/bin/bash
# test_pipeline — stages of a pipeline (PP): the losses of one worker, on one node and on two; checkpoints that any mesh reads; a
# lost stage is replaced; wrong settings are refused before anything is read.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
. "$root/tests/e2e/mesh_lib.sh"
batch="BATCH_SIZE=1 GLOBAL_BATCH=8 STEPS=20"
gpt="$tiny $batch LAYERS=4 DROPOUT=0.1"
llama="$gpt MODEL=llama-2-7b TOKENIZER=gpt2 HEADS=4 KV_HEADS=2 HEAD_DIM=8 FFN=40"
share="N_GPU_EACH_NODE=2 PP=2" name=PP=2

# 1. One node.
equals_one
ok "the time that stages wait stands beside the formula" is \
    "$(grep -cE 'pipeline: the first stage waited .*1f1b with 2 stages and 8 micro-batches: 11.1%' out)" 1
run $llama METRICS_FILE=llama.jsonl CHECKPOINT_DIR=llama
run $llama $share PP_CHUNKS=2 METRICS_FILE=llama2.jsonl CHECKPOINT_DIR=llama2
ok "a Llama, interleaved: losses and weights bit for bit" is "$rc $(losses llama2.jsonl | cksum) $(weights llama2/step-00000020)" \
    "0 $(losses llama.jsonl | cksum) $(weights llama/step-00000020)"
losses_near llama.jsonl 2e-6 "PP=2 x TP=2: losses within 2e-6" $llama N_GPU_EACH_NODE=4 PP=2 TP=2

# 2. Checkpoints do not know the mesh.
goes_on N_GPU_EACH_NODE=1 PP=1 SHARD=none
goes_on N_GPU_EACH_NODE=2 PP=2 SHARD=none
goes_on N_GPU_EACH_NODE=4 PP=2 SHARD=full

# 3. Two nodes, a stage each; a stage is lost.
run $gpt $share METRICS_FILE=plain.jsonl
train_nodes 2 $gpt PP=2 METRICS_FILE=nodes.jsonl
ok "2 nodes, PP=2: losses bit for bit those of one node" is "$codes $(losses nodes.jsonl | cksum)" "0 0 $(losses plain.jsonl | cksum)"
heals "$gpt $share" kill:rank=1 nan:rank=1 stall:rank=0

# 4. Refused.
refused "PP=3 (argument) does not divide the job's 4 workers" N_GPU_EACH_NODE=4 PP=3
refused 'set PP, or PP_CHUNKS=1' PP_CHUNKS=2
refused 'PP=2 x PP_CHUNKS=3 are 6 parts of a model of 4 layers' $share PP_CHUNKS=3
refused 'a step has 3 micro-batches on each rank, which PP=2 does not divide' $share PP_CHUNKS=2 GLOBAL_BATCH=3
refused 'COMPRESS=int8 (argument) does not go with PP=2 (argument)' $share COMPRESS=int8
refused 'SHARD=hybrid (argument) does not go with PP=2 (argument)' $share SHARD=hybrid
done_testing
