#!/bin/bash
# test_mesh_cut — two machines (network namespaces), a stage of a pipeline on each, its matrices shared by two workers. One
# machine stands still, and a cable is pulled: each is named with its stage, all processes stay, and the losses are, bit for bit,
# those of an undisturbed run.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
a=cvc$$ b=cvd$$
make_net 2>/dev/null || give_up "two network namespaces" "they cannot be made here (needs root)"
links_run $a $b
meeting="MASTER_ADDR=10.0.0.1 MASTER_PORT=$port"
model="MODEL=gpt2-nano LAYERS=4 HEADS=4 EMBED=32 VOCAB=64 CONTEXT=32 SEQ_LEN=16 LR=1e-4 LR_SCHEDULE=constant"
job="$model BATCH_SIZE=1 GLOBAL_BATCH=4 CHECKPOINT_EVERY=20 PP=2 TP=2"
endless="$job N_NODES=2 N_GPU_EACH_NODE=2 STEPS=100000000 CHECKPOINT_DIR=$tmp/hit METRICS_FILE=$tmp/hit.jsonl PEER_TIMEOUT=2s"
in="nsenter --net=/run/netns/$a" begin_node 0 $endless
in="nsenter --net=/run/netns/$b" begin_node 1 $endless
pid=${node[0]}
wait_for 30 is_past 20
before="$(workers_of_node 0) $(workers_of_node 1)"
all_of_1() { echo "${node[1]} $(workers_of_node 1)"; }
is_named() { node_says_times 0 'node 1 \(.*, pid [0-9]+, ranks 2 to 3: stage 1\) was lost: silent' "$1"; }
goes_on() { wait_for 20 is_past $(($1 + 20)); } # a later step than the last one before the fault

kill -STOP $(all_of_1)
ok "a machine stands still: named with its stage" wait_for 15 is_named 1
at=$(last_step)
kill -CONT $(all_of_1)
ok "it goes on, and so do all" goes_on "$at"

ip -n $b link set eth0 down
ok "a cable out: named with its stage" wait_for 15 is_named 2
at=$(last_step)
ok "the stage behind it knows, too" wait_for 10 node_said 1 "node 0 was lost"
ip -n $b link set eth0 up
ip -n $b addr replace 10.0.0.2/24 dev eth0
ok "put back: all go on" goes_on "$at"
ok "no process was lost" is "$(workers_of_node 0) $(workers_of_node 1)" "$before"

stop_nodes 2
last=$(newest_step hit)
ok "SIGTERM: 143 on both" is "$codes" "143 143"
run $job CHECKPOINT_EVERY=0 N_GPU_EACH_NODE=4 STEPS="$last" METRICS_FILE=calm.jsonl
ok "losses of all $last steps: bit for bit those of an undisturbed run" is "$(last_of_each hit.jsonl | cksum)" "$(last_of_each calm.jsonl | cksum)"
done_testing
