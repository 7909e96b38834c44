#!/bin/bash
# test_examples — the commands of docs/recipes.md, word for word, on two nodes of this machine: they train, and report what the page describes. The
# commands under examples/ run, smaller, on CPUs: their settings are right and they train.
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

# The commands under examples/.
unset N_NODES MASTER_ADDR MASTER_PORT
export CONVOY=$convoy STATUS_PORT=0 LAYERS=1 HEADS=2 EMBED=16 VOCAB=64 CONTEXT=512
# example NAME SETTING… — $rc, out, err.
example() {
    rc=0
    env METRICS_FILE=$tmp/m.jsonl "${@:2}" sh "$root/examples/$1" >out 2>err || rc=$?
}
example greennode-8gpu.sh N_GPU_EACH_NODE=2 BATCH_SIZE=1 EPOCHS=3
ok "one machine, sharded: an epoch is a step" is "$rc $(steps_of m.jsonl)" "0 3"
ok "its loss begins near that of a guess" holds m.jsonl '.[0].loss > 5.7 and .[0].loss < 6.8'
for i in 0 1; do
    env NODE_ID=$i N_NODES=2 N_GPU_EACH_NODE=1 EPOCHS=3 BATCH_SIZE=1 $meeting METRICS_FILE=$tmp/two.jsonl sh "$root/examples/greennode-2nodes.sh" >out.$i 2>err.$i &
    node[$i]=$!
    started+=("$!")
done
finish_nodes 2
ok "two machines" is "$codes $(steps_of two.jsonl)" "0 0 3"
example mit-fsdp.sh BATCH_SIZE=1 STEPS=2 MODEL=gpt2-nano
ok "fully sharded" is "$rc $(steps_of m.jsonl)" "0 2"
ok "slurm.sbatch is at most 25 lines" test "$(wc -l <"$root/examples/slurm.sbatch")" -le 25
ok "which checks the machines before it trains" is "$(grep -c 'train CHECK=quick' "$root/examples/slurm.sbatch")" 2
ok "and bash reads it" bash -n "$root/examples/slurm.sbatch"
# A machine whose device failed is tainted, once for each; others are left alone. kubectl is played here.
mkdir bin
cat >bin/kubectl <<'EOF'
#!/bin/sh
case $1 in
get) echo "$*" >asked; printf 'm1 80\nm2 0\nm3 \nm1 80\nm4 75\nm5 69\nm6 1\nm7 143\n' ;;
taint) echo "$*" >>tainted ;;
*) exit 64 ;;
esac
EOF
chmod +x bin/kubectl
PATH=$tmp/bin:$PATH sh "$root/examples/kubernetes/quarantine.sh" jobs >out 2>err
ok "exit code 80, 69 or 1: the machine is tainted" is "$? $(cat tainted | xargs) $(grep -c -- '-n jobs' asked)" \
    "0 taint nodes m1 convoy/device-fault=80:NoSchedule --overwrite taint nodes m5 convoy/device-fault=69:NoSchedule --overwrite taint nodes m6 convoy/device-fault=1:NoSchedule --overwrite 1"
ok "no manifest tolerates that" is "$(grep -rlE 'device-fault|operator: Exists *$' "$root/k8s" | xargs grep -l device-fault | wc -l)" 0
done_testing
