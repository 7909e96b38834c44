#!/bin/bash
# test_mesh_copies — as test_peer_copies, of nodes that hold different parts of the model (TP, PP) or of each sample (CP): workers and nodes
# are killed at random instants, and the job goes on from copies in the others' memory, with the weights of a run without faults.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
. "$root/tests/e2e/copies_lib.sh"

killed 2 tensor TP=2 TP_ACROSS_NODES=1
killed 2 stages PP=2 GLOBAL_BATCH=8
killed 2 both N_GPU_EACH_NODE=2 TP=2 PP=2 GLOBAL_BATCH=8 SHARD=full
killed 2 context CP=2
killed 4 pairs PP=2 GLOBAL_BATCH=8
traced traced-tensor TP=2 TP_ACROSS_NODES=1
traced traced-stages PP=2 GLOBAL_BATCH=8
pair_lost pair PP=2 GLOBAL_BATCH=8

# With fewer nodes each worker has another share of its part.
begin_nodes 3 $tiny $steps STEPS=100000000 N_GPU_EACH_NODE=2 TP=2 EXACT=layout ON_LOSS=shrink GLOBAL_BATCH=12 CHECKPOINT_DIR=shrink
wait_for 30 is_past 20
kill_node 2
wait_for 30 node_says_times 0 'resuming from memory: step [0-9]+, the parts of 6 ranks go to 4; no checkpoint' 1
ok "TP=2, ON_LOSS=shrink: two nodes go on from memory" node_says 0 'resuming from memory: step [0-9]+, the parts of 6 ranks go to 4; no checkpoint'
at=$(last_step)
wait_for 30 is_past $((at + 20))
stop_nodes 2
at=$(newest_step shrink)
run $tiny $steps STEPS="$at" N_GPU_EACH_NODE=2 TP=2 EXACT=layout GLOBAL_BATCH=12 CHECKPOINT_DIR=shrink-calm
ok "… with the same bits" is "$(weights "shrink/$(newest shrink)")" "$(weights "shrink-calm/$(newest shrink-calm)")"

# A bit that changes in a worker's memory is in the copy that its keeper has got from it: the step before is taken.
found() { # found SETTING…
    rm -rf calm hurt
    run $tiny DROPOUT=0.1 STEPS=12 CHECKPOINT_DIR=calm "$@" N_GPU_EACH_NODE=4
    train_nodes 2 $tiny DROPOUT=0.1 STEPS=12 CHECKPOINT_DIR=hurt SENTINEL_EVERY=1000 FAULT=flip@step=7:rank=1 N_GPU_EACH_NODE=2 "$@"
    ok "$*: healed from copies of the step before" is "$codes $(grep -c 'resuming from memory: step 5, 0 of 4 parts' err.0)" "0 0 1"
    ok "$*: the weights of a run without faults" is "$(weights "hurt/$(newest hurt)")" "$(weights "calm/$(newest calm)")"
}
found TP=2 SHARD=full
found PP=2 SHARD=full GLOBAL_BATCH=8
done_testing
