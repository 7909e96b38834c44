#!/bin/bash
# test_peer_copies — nodes and workers that are killed at random instants: the job goes on from the copies in the others' memory. No
# checkpoint is read, at most one finished step is done again, and the last weights are those of a run that nobody disturbed. Where a
# rank's part and its copy are lost, the job goes on from the checkpoint, and the log says so. KILLS sets how often.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
. "$root/tests/e2e/copies_lib.sh"
killed 2 two
killed 3 three SHARD=optimizer
killed 4 four SHARD=full GLOBAL_BATCH=8
killed 2 shared N_GPU_EACH_NODE=2
killed 2 sharded N_GPU_EACH_NODE=2 SHARD=gradients
killed 3 exact EXACT=layout SHARD=full GLOBAL_BATCH=12

# No checkpoint is read: the returning node is served by the others. When both were killed, one is.
traced traced

# What /metrics and /status say of them.
status=$(free_port)
begin_node 1 N_NODES=2 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=said
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$status" begin_node 0 N_NODES=2 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=said
wait_for 30 is_past 20
curl -s --max-time 5 "127.0.0.1:$status/metrics" >metrics
ok "/metrics: step, bytes, stall and speed of the last copy" is "$(awk '/^convoy_peer_copy_/ && $2 > 0 { print $1 }' metrics | sort | xargs)" \
    "convoy_peer_copy_bytes convoy_peer_copy_bytes_per_second convoy_peer_copy_stall_seconds convoy_peer_copy_step"
ok "/status: the same step, or a later one" [ "$(curl -s --max-time 5 "127.0.0.1:$status/status" | jq .peer_copies.step)" -ge "$(awk '$1 == "convoy_peer_copy_step" { print $2 }' metrics)" ]
stop_nodes 2

# A rank and its copy are gone: back to the checkpoint, which is said; the same bits.
pair_lost pair SHARD=full

# A loss that is not finite: the state in memory may be its cause.
train_nodes 2 $tiny STEPS=300 FAULT=nan@step=200:rank=1 CHECKPOINT_DIR=nan CHECKPOINT_EVERY=90
ok "a loss that is not finite: from the checkpoint" is "$codes $(grep -c 'resuming from memory' err.0) $(grep -c 'resuming from .*nan/step-00000180' err.0)" "0 0 0 1"

# Off, by asking and where it cannot be.
train_nodes 2 $tiny STEPS=300 PEER_COPIES=0 FAULT=kill@step=200:rank=1 CHECKPOINT_DIR=off CHECKPOINT_EVERY=90
ok "PEER_COPIES=0: from the checkpoint" is "$codes $(grep -c 'resuming from memory' err.0) $(grep -c 'resuming from .*off/step-00000180' err.0)" "0 0 0 1"
train_nodes 2 $tiny STEPS=5 OPTIMIZER=muon
ok "auto with Muon: none, said once" is "$codes $(grep -c 'no copies of the state in peers. memory (PEER_COPIES=auto): the moments of Muon' err.0)" "0 0 1"
try "PEER_COPIES=1 on one node: 78, and why" 78 'PEER_COPIES=1 (argument) cannot be had: there is no other node' -- train $tiny STEPS=5 PEER_COPIES=1
done_testing
