#!/bin/bash
# test_copies — workers and nodes that are killed at random instants: the job goes on from the copies in the others' memory, also where nodes
# hold different parts of the model (TP, PP) or of each sample (CP). No checkpoint is read, at most one finished step is done again, and the
# weights are those of a run without faults. Where a rank's part and its copy are lost, the job goes on from the checkpoint, and the log
# says so. KILLS sets how often.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
job="$tiny BATCH_SIZE=1 LR_SCHEDULE=constant JOIN_TIMEOUT=60s"
steps="$job MAX_RESTARTS=1000 STEPS=100000000"
# survives NAME SETTING… — a rehearsal in which workers and nodes are killed; $traced: what to run it in.
survives() {
    rc=0
    limit 200 ${traced:-} "$convoy" rehearse $job CHECKPOINT_EVERY=20 CHECKPOINT_DIR="$tmp/run" FAULT_MIX=kill,node FAULT_EVERY=1s DURATION="${KILLS:-3}s" \
        SEED=$RANDOM JSON=1 "${@:2}" >out 2>err || rc=$?
    ok "$1: healed, with the weights of a calm run and every step in the ledger" holds out '.[0] | .problem == null and .weights.equal and .samples_lost == 0
        and .faulty.unexpected == 0 and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed and .made == .kept and .named_wrong == 0)'
    ok "$1: from memory: at most one finished step is done again" holds out '.[0] | [.faults[].steps_redone.worst // 0] | max <= 1'
}
while read -r name settings; do
    survives "$name" $settings
done <<'TABLE'
two N_NODES=2
three N_NODES=3 SHARD=optimizer
four N_NODES=4 SHARD=full GLOBAL_BATCH=8
shared N_NODES=2 N_GPU_EACH_NODE=2
sharded N_NODES=2 N_GPU_EACH_NODE=2 SHARD=gradients
exact N_NODES=3 EXACT=layout SHARD=full GLOBAL_BATCH=12
tensor N_NODES=2 TP=2 TP_ACROSS_NODES=1
stages N_NODES=2 PP=2 GLOBAL_BATCH=8
both N_NODES=2 N_GPU_EACH_NODE=2 TP=2 PP=2 GLOBAL_BATCH=8 SHARD=full
context N_NODES=2 CP=2
pairs N_NODES=4 PP=2 GLOBAL_BATCH=8
TABLE

# No checkpoint is read: a returning node is served by the others. The control: a run that goes on from one.
trace="strace -ff -ttt -qq --seccomp-bpf -e trace=open,openat,openat2 -o"
if there strace; then
    for settings in SHARD=none "TP=2 TP_ACROSS_NODES=1" "PP=2 GLOBAL_BATCH=8"; do
        rm -f trace.*
        traced="$trace $tmp/trace" survives "strace, $settings" N_NODES=2 $settings
        ok "strace, $settings: no file of a checkpoint is opened for reading" is "$(checkpoint_reads <(echo "0 $(seconds_now)") trace.*)" 0
    done
    run $job STEPS=2 CHECKPOINT_DIR=control
    $trace control.trace "$convoy" train $quiet $job STEPS=4 CHECKPOINT_DIR=control >out 2>err
    ok "the traces show a checkpoint that is read" [ "$(checkpoint_reads <(echo "0 $(seconds_now)") control.trace.*)" -gt 0 ]
else
    skip "no file of a checkpoint is opened for reading" "strace is not installed"
fi

# What /metrics and /status say of them.
status=$(free_port)
begin_node 1 N_NODES=2 $steps CHECKPOINT_DIR=said
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$status" begin_node 0 N_NODES=2 $steps CHECKPOINT_DIR=said
wait_for 30 is_past 20
curl -s --max-time 5 "127.0.0.1:$status/metrics" >metrics
ok "/metrics: step, bytes, stall and speed of the last copy" is "$(awk '/^convoy_peer_copy_/ && $2 > 0 { print $1 }' metrics | sort | xargs)" \
    "convoy_peer_copy_bytes convoy_peer_copy_bytes_per_second convoy_peer_copy_every_steps convoy_peer_copy_memory_bytes convoy_peer_copy_stall_seconds convoy_peer_copy_step"
ok "/status: the same step, or a later one" [ "$(curl -s --max-time 5 "127.0.0.1:$status/status" | jq .peer_copies.step)" -ge "$(awk '$1 == "convoy_peer_copy_step" { print $2 }' metrics)" ]
# lost_node JQ — of /status.
lost_node() { curl -s --max-time 5 "127.0.0.1:$status/status" | jq -e ".lost_node | $1" >out; }
ok "/status: the cost of a lost node" lost_node '.steps == 1 and .recovery_seconds == null and (.text | test("^a lost node costs at most 1 step .*; copies use [0-9.]+ [KM]iB of host memory on each node$"))'
kill -KILL "$(ps -o pid= --ppid "${node[0]}" | head -n 1 | tr -d ' ')"
ok "after a loss: the time of the recovery" wait_for 30 lost_node '.recovery_seconds > 0 and (.text | test("; the last recovery took [0-9.]+ m?s; "))'
stop_nodes 2

# Worker 1 is killed before a copy of step 50 is complete, so the job goes on from step 49, and the checkpoint of step 50 is on the disk. All
# processes are killed in the evaluation that follows step 50, before the checkpoint that follows it, and the next start is from the checkpoint on the disk.
tokens 20240520 1 80000 $(yes 7 | head -n 80000) >val.bin
older="$job N_NODES=2 CHECKPOINT_EVERY=50 EVAL_EVERY=50 VAL_DATA=$tmp/val.bin CHECKPOINT_DIR=older"
evaluates_again() { [ "$(grep -c '^step 50/.* loss ' out.0)" = 2 ]; }
for i in 1 0; do begin_node $i $older STEPS=70 FAULT=kill@step=51:rank=1; done
pid=${node[0]}
ok "the copies are one step older than the checkpoint" wait_for 30 node_said 0 'resuming from memory: step 49,'
wait_for 30 evaluates_again
kill_node 0
kill_node 1
train_nodes 2 $older STEPS=70
ok "… the next start is from the checkpoint" node_says 0 'resuming from older/step-00000050: step 50 of 70'
"$convoy" verify older JSON=1 >out 2>err
ok "… the ledger has every step" holds out '.[0] | .problem == null and .first_step == 1 and .last_step == 70'

# pair_lost NAME SETTING… — of four nodes the last two are killed, which hold one another's copies.
pair_lost() {
    local name=$1 at i
    shift
    begin_nodes 4 $steps CHECKPOINT_DIR="$name" CHECKPOINT_EVERY=100 "$@"
    wait_for 30 is_past 250
    kill_node 2
    kill_node 3
    for i in 2 3; do begin_node $i N_NODES=4 $steps CHECKPOINT_DIR="$name" CHECKPOINT_EVERY=100 "$@"; done
    pid=${node[0]}
    ok "$name: the checkpoint is read" wait_for 30 node_said 0 "resuming from .*$name/step-[0-9]+: step [0-9]+ of"
    ok "$name: what is missing is said" node_says 0 "no state is whole in memory: of step [0-9]+, the parts of 2 ranks are lost .*rank 2's with node 2 and node 3; resuming from the checkpoint"
    at=$(last_step)
    wait_for 30 is_past $((at + 50))
    stop_nodes 4
    at=$(newest_step "$name")
    train_nodes 4 $steps STEPS="$at" CHECKPOINT_DIR="$name-calm" "$@"
    ok "$name: with the same bits" is "$(weights "$name/$(newest "$name")")" "$(weights "$name-calm/$(newest "$name-calm")")"
}
pair_lost shards SHARD=full
pair_lost stages PP=2 GLOBAL_BATCH=8

# With fewer nodes each worker has another share of its part.
shrink="$job N_GPU_EACH_NODE=2 TP=2 EXACT=layout GLOBAL_BATCH=12"
begin_nodes 3 $shrink MAX_RESTARTS=1000 STEPS=100000000 ON_LOSS=shrink CHECKPOINT_DIR=shrink
wait_for 30 is_past 20
kill_node 2
ok "TP=2, ON_LOSS=shrink: two nodes go on from memory" wait_for 30 node_said 0 'resuming from memory: step [0-9]+, the parts of 6 ranks go to 4 ranks; no checkpoint'
at=$(last_step)
wait_for 30 is_past $((at + 20))
stop_nodes 2
run $shrink STEPS="$(newest_step shrink)" CHECKPOINT_DIR=shrink-calm
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

# from_checkpoint DIR SETTING… — the checkpoint of step 180 is read, not the copies.
from_checkpoint() {
    train_nodes 2 $tiny STEPS=300 CHECKPOINT_DIR="$1" CHECKPOINT_EVERY=90 "${@:2}"
    ok "${*:2}: from the checkpoint" is "$codes $(grep -c 'resuming from memory' err.0) $(grep -c "resuming from .*$1/step-00000180" err.0)" "0 0 0 1"
}
from_checkpoint nan FAULT=nan@step=200:rank=1 # the state in memory may be the cause of a loss that is not finite
from_checkpoint off PEER_COPIES=0 FAULT=kill@step=200:rank=1
train_nodes 2 $tiny STEPS=5 OPTIMIZER=muon
ok "auto with Muon: none, said once" is "$codes $(grep -c 'no copies of the state in peers. memory (PEER_COPIES=auto): the moments of Muon' err.0)" "0 0 1"
try "PEER_COPIES=1 on one node: 78, and why" 78 'PEER_COPIES=1 (argument) is not possible: there is no other node' -- train $tiny STEPS=5 PEER_COPIES=1
done_testing
