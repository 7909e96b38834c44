#!/bin/bash
# test_local — LOCAL_STEPS: two nodes that meet every fifth step only. Bytes are those of the formula; a killed node is replaced
# and the run goes on bit for bit, from a checkpoint between two outer steps; other numbers of nodes read it; what does not go
# with it is refused.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
job="$tiny LR_SCHEDULE=constant GLOBAL_BATCH=4 LOCAL_STEPS=5"
small="$job CHECKPOINT_EVERY=4 CHECKPOINT_KEEP=100"
differ() { [ "$(cksum "$@" | cut -d' ' -f1 | sort -u | wc -l)" = $# ]; } # differ FILE…: no two have the same bytes
all_losses() { jq -c 'select(.loss) | [.step, .loss, .grad_norm]' "$1" | sort -u | sort -t'[' -k2n; }

train_nodes 2 $small STEPS=24 CHECKPOINT_DIR="$tmp/calm" METRICS_FILE="$tmp/calm.jsonl"
ok "two nodes train" is "$codes" "0 0"
# An all-reduce of n bytes over two ranks: each sends half of it, and then the sum of the other half. Each step has one of eight
# numbers of eight bytes, sent whole; an outer step also one of all parameters in fp32. A call has a header of 64 bytes.
file=calm/step-00000024/model.safetensors
bytes=$(($(stat -c %s $file) - 8 - $(od -An -t u8 -N 8 $file)))
outer=$(jq -s '[.[] | select(.sent_bytes and .step % 5 == 0) | .sent_bytes] | unique | .[]' calm.jsonl)
inner=$(jq -s '[.[] | select(.sent_bytes and .step % 5 != 0 and .step < 24) | .sent_bytes] | unique | .[]' calm.jsonl)
echo "# parameters $bytes bytes, sent in a step $inner, in an outer step $outer"
ok "every step between outer steps sends 136 bytes" is "$inner" 136
ok "every outer step sends the parameters in fp32 besides" is "$outer" $((inner + bytes + 64))
ok "a checkpoint between outer steps has the parameters of each node" test -f calm/step-00000004/inner_1.safetensors
ok "those of two nodes differ" differ calm/step-00000004/inner_{0,1}.safetensors
ok "one after an outer step has not" test ! -e calm/step-00000020/inner_1.safetensors -a -f calm/step-00000020/optim_m_1.safetensors
ok "each node has moments of its own" differ calm/step-00000020/optim_{m,m_1}.safetensors

# The same with 4 bits: a rank sends half of what it changed, in blocks of 256 elements and 132 bytes, and the sum of the other
# half so too, as two calls.
train_nodes 2 $job STEPS=10 COMPRESS=int4 METRICS_FILE="$tmp/int4.jsonl"
half=$(((bytes / 4 / 2 + 15) / 16 * 16)) message=$((((half + 255) / 256 * 132 + 15) / 16 * 16))
ok "with COMPRESS=int4 an outer step sends an eighth" is "$codes $(jq -s '[.[] | select(.sent_bytes and .step % 5 == 0) | .sent_bytes] | unique | .[]' int4.jsonl)" \
    "0 0 $((inner + 2 * message + 2 * 64))"
ok "the end of the run says what was sent" node_said 0 'compression: this worker sent .* bits an element'

# Begun again from step 12, between two outer steps.
mkdir resumed && cp -r calm/step-00000012 resumed
train_nodes 2 $small STEPS=24 CHECKPOINT_DIR="$tmp/resumed"
ok "a run that goes on from there ends with the same bits" is "$codes $(weights resumed/step-00000020) $(weights resumed/step-00000024)" \
    "0 0 $(weights calm/step-00000020) $(weights calm/step-00000024)"

# Nodes and workers are killed at random: the same bits, also in checkpoints between two outer steps, which come each 52 steps.
limit 200 "$convoy" rehearse $job N_NODES=2 CHECKPOINT_EVERY=52 CHECKPOINT_DIR="$tmp/hit" FAULT_MIX=node,kill FAULT_EVERY=1s DURATION=4s JSON=1 >out 2>err
ok "nodes and workers are killed: both go on, with the same bits" holds out '.[0] | .problem == null and .weights.equal and .weights.compared > 0 and all(.faults[]; .made == .healed)'

# With 4 bits a checkpoint has the residuals of error feedback. Begun again from step 12.
coded="$job COMPRESS=int4-zstd CHECKPOINT_EVERY=6 CHECKPOINT_KEEP=100 STEPS=24"
train_nodes 2 $coded CHECKPOINT_DIR="$tmp/coded"
ok "two nodes train with 4 bits" is "$codes" "0 0"
ok "a checkpoint has error feedback of each node and of sums" test -f coded/step-00000012/outer_e_1.safetensors -a -f coded/step-00000012/outer_e.safetensors
mkdir coded_resumed && cp -r coded/step-00000012 coded_resumed
train_nodes 2 $coded CHECKPOINT_DIR="$tmp/coded_resumed"
ok "a run that goes on from there ends with the same bits" is "$codes $(weights coded_resumed/step-00000018) $(weights coded_resumed/step-00000024)" \
    "0 0 $(weights coded/step-00000018) $(weights coded/step-00000024)"
# The worker of node 1 is killed between two outer steps: both go back to step 12. The settings of all nodes have the fault.
train_nodes 2 $coded CHECKPOINT_DIR="$tmp/coded_hit" FAULT=kill@step=13:rank=1
ok "a worker that is killed is replaced, with the same bits" is "$codes $(weights coded_hit/step-00000024)" "0 0 $(weights coded/step-00000024)"
ok "it was killed" node_said 1 'worker rank 1 .*was killed by SIGKILL'
mkdir coded_three && cp -r coded/step-00000012 coded_three
train_nodes 3 ${coded/GLOBAL_BATCH=4/GLOBAL_BATCH=6} CHECKPOINT_DIR="$tmp/coded_three"
ok "three nodes go on from there too" is "$codes" "0 0 0"
# Other numbers of nodes, from step 24, whose moments are of two nodes.
cp -r calm one && cp -r calm three && cp -r calm counted
train_nodes 1 $small STEPS=30 CHECKPOINT_DIR="$tmp/one"
ok "one node goes on from the checkpoint of two" is "$codes" 0
ok "it says what differs" node_says 0 'nodes was 2, is 1'
train_nodes 3 ${small/GLOBAL_BATCH=4/GLOBAL_BATCH=6} STEPS=30 CHECKPOINT_DIR="$tmp/three"
ok "three nodes do" is "$codes" "0 0 0"
ok "each with moments of its own" differ three/step-00000028/optim_{v,v_1,v_2}.safetensors
try "a run without LOCAL_STEPS does" 0 -- train ${small/LOCAL_STEPS=5/LOCAL_STEPS=0} STEPS=30 CHECKPOINT_DIR="$tmp/calm"

# One after 5, 10, 15, 20 and 24 steps.
port=$(free_port)
outer_steps() { get /metrics | awk '$1 == "convoy_outer_steps_total" { print $2 }'; }
begin_served $job STEPS=24 LINGER=10m
ok "one node alone takes outer steps too" wait_for 30 status_has '.phase == "done"'
ok "all of them are counted, with the one after the last step" is "$(outer_steps)" 5
stop
# The run of two nodes had the same five, the last of them after step 24. Then come those after 25 and 28.
begin_served $job STEPS=28 LINGER=10m CHECKPOINT_DIR="$tmp/counted"
ok "one that goes on from a checkpoint" wait_for 30 status_has '.phase == "done"'
ok "counts those before it too" is "$(outer_steps)" 7
stop

refused() { run $job STEPS=1 N_GPU_EACH_NODE=2 "$1"; ok "$1 is refused" is "$rc" 78; ok "with its reason" says "LOCAL_STEPS=5 (argument) does not go with ${1%%=*}"; }
for other in TP=2 PP=2 CP=2 SHARD=full; do refused $other; done
done_testing
