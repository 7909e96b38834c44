#!/bin/bash
# test_pipeline — stages of a pipeline (PP): the losses of one worker, on one node and on two; checkpoints that any mesh reads; a
# lost stage is replaced; wrong settings are refused before anything is read.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
batch="BATCH_SIZE=1 GLOBAL_BATCH=8 STEPS=20"
gpt="$tiny $batch LAYERS=4 DROPOUT=0.1"
llama="$gpt MODEL=llama-2-7b TOKENIZER=gpt2 HEADS=4 KV_HEADS=2 HEAD_DIM=8 FFN=40"
stages="N_GPU_EACH_NODE=2 PP=2"

# 1. One node.
run $gpt METRICS_FILE=gpt.jsonl CHECKPOINT_DIR=one VAL_DATA=synthetic EVAL_EVERY=20
loss=$(grep -o 'held-out loss [0-9.]*' out)
run $gpt $stages METRICS_FILE=two.jsonl CHECKPOINT_DIR=two CHECKPOINT_EVERY=8 VAL_DATA=synthetic EVAL_EVERY=20
ok "PP=2: done" is "$rc $(steps_of two.jsonl)" "0 20"
ok "PP=2: losses within 2e-6 of one worker's" near gpt.jsonl two.jsonl 2e-6
ok "PP=2: the held-out loss is the same" is "${loss:+$(grep -o 'held-out loss [0-9.]*' out)}" "${loss:-one}"
ok "the time that stages wait stands beside the formula" is \
    "$(grep -cE 'pipeline: the first stage waited .*1f1b with 2 stages and 8 micro-batches: 11.1%' out)" 1
run $llama METRICS_FILE=llama.jsonl CHECKPOINT_DIR=llama
run $llama $stages PP_SCHEDULE=interleaved PP_CHUNKS=2 METRICS_FILE=llama2.jsonl CHECKPOINT_DIR=llama2
ok "a Llama, interleaved: losses and weights bit for bit" is "$rc $(losses llama2.jsonl | cksum) $(weights llama2/step-00000020)" \
    "0 $(losses llama.jsonl | cksum) $(weights llama/step-00000020)"
run $llama N_GPU_EACH_NODE=4 PP=2 TP=2 METRICS_FILE=four.jsonl
ok "PP=2 x TP=2: losses within 2e-6" near llama.jsonl four.jsonl 2e-6

# 2. Checkpoints do not know the mesh.
for to in "1 1 none" "2 2 none" "4 2 full"; do
    set -- $to
    rm -rf go && mkdir go && cp -r two/step-00000008 go/
    run $gpt N_GPU_EACH_NODE=$1 PP=$2 SHARD=$3 METRICS_FILE=go.jsonl CHECKPOINT_DIR=go RESUME=required
    tail -n 13 gpt.jsonl | head -n 12 >rest.jsonl # the last line is the evaluation
    ok "a checkpoint of PP=2 goes on with $1 workers, PP=$2, SHARD=$3" near rest.jsonl go.jsonl 2e-6
done

# 3. Two nodes, a stage each; a stage is lost.
run $gpt $stages METRICS_FILE=plain.jsonl
begin_nodes 2 $gpt PP=2 METRICS_FILE=nodes.jsonl
finish_nodes 2
ok "2 nodes, PP=2: losses bit for bit those of one node" is "$codes $(losses nodes.jsonl | cksum)" "0 0 $(losses plain.jsonl | cksum)"
run $gpt $stages STEPS=30 METRICS_FILE=calm.jsonl CHECKPOINT_DIR=calm
for f in kill:rank=1 nan:rank=1 stall:rank=0; do
    kind=${f%%:*}
    run $gpt $stages STEPS=30 METRICS_FILE=$f.jsonl CHECKPOINT_DIR=$f CHECKPOINT_EVERY=8 FAULT=$kind@step=21:${f#*:} STEP_TIMEOUT=$(secs 1)
    ok "FAULT=$f: heals, losses and weights bit for bit" is "$rc $(losses $f.jsonl | cksum) $(weights $f/step-00000030)" \
        "0 $(losses calm.jsonl | cksum) $(weights calm/step-00000030)"
done

# 4. Refused.
refused() { # refused TEXT SETTING…
    local text=$1
    shift
    run $gpt "$@"
    ok "refused: $*" is "$rc $(grep -cF -- "$text" err)" "78 1"
}
refused "PP=3 (argument) x TP=1 do not divide the job's 4 workers" N_GPU_EACH_NODE=4 PP=3
refused 'set PP_SCHEDULE=interleaved, or PP_CHUNKS=1' $stages PP_CHUNKS=2
refused 'PP=2 x PP_CHUNKS=3 are 6 parts of a model of 4 layers' $stages PP_SCHEDULE=interleaved PP_CHUNKS=3
refused 'a step has 3 micro-batches on each rank, which PP=2 does not divide' $stages PP_SCHEDULE=interleaved PP_CHUNKS=2 GLOBAL_BATCH=3
refused 'PP=2 (argument) does not go with COMPRESS=int8 (argument)' $stages COMPRESS=int8
refused 'PP=2 (argument) does not go with SHARD=hybrid (argument)' $stages SHARD=hybrid
done_testing
