#!/bin/bash
# test_recipes — the commands of docs/recipes.md, word for word, on two nodes of this machine: they train, and say what the page says.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
mkdir build && ln -s "$convoy" build/convoy
export N_NODES=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port STATUS_PORT=0
# both — the command of the file on both nodes; files out.I and err.I, $codes.
both() {
    for i in 1 0; do
        NODE_ID=$i METRICS_FILE=$tmp/$i.jsonl bash -e command >out.$i 2>err.$i &
        node[$i]=$!
        started+=("$!")
    done
    finish_nodes 2
    codes="$codes $(wc -l <command) $(steps_of 0.jsonl)"
}
block "recipe greennode" >command
both
ok "GreenNode's: both nodes train" is "$codes" "0 0 1 5"
ok "question answering begins near the loss of a guess" holds 0.jsonl '.[0].loss > 3.2 and .[0].loss < 4.8'

(unset N_NODES MASTER_ADDR && "$convoy" train MODEL=llama-toy LAYERS=2 HEADS=4 KV_HEADS=2 EMBED=64 FFN=96 VOCAB=128 CONTEXT=64 DATA=synthetic SEQ_LEN=32 BATCH_SIZE=2 STEPS=1 CHECKPOINT_DIR=made) >out 2>err &&
    "$convoy" export FROM=made TO=llama-folder >out 2>err
ok "a Hugging Face folder of a Llama" grep -q '"model_type": *"llama"' llama-folder/config.json
block "recipe orcd" >command
both
ok "ORCD's: sharding between nodes, tensor parallel inside" is "$codes" "0 0 1 5"
ok "the log says so" node_says 0 "mesh: data 2.*tensor 2"

block "recipe neox" >command
both
ok "Lambda's: pipeline between nodes, tensor parallel inside" is "$codes" "0 0 1 5"
ok "the log says so" node_says 0 "mesh: data 1 x pipeline 2.*tensor 2"

block "recipe lamini" >command
both
ok "Lamini's: compressed gradients" is "$codes" "0 0 1 5"
ok "an unknown recipe is no recipe" is "$(block 'recipe other')" ""
done_testing
