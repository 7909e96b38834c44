#!/bin/bash
# test_peer_copies — nodes and workers that are killed at random instants: the job goes on from the copies in the others' memory. No
# checkpoint is read, at most one finished step is done again, and the last weights are those of a run that nobody disturbed. Where a
# rank's part and its copy are lost, the job goes on from the checkpoint, and the log says so. KILLS sets how often.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
kills=${KILLS:-3}
steps="BATCH_SIZE=1 LR_SCHEDULE=constant MAX_RESTARTS=1000 JOIN_TIMEOUT=60s CHECKPOINT_EVERY=100000000"
resumes() { cat out.log.0 err.0 2>/dev/null | grep -c 'resuming from memory'; }
# was_redone — the most finished steps that a resumption has gone back, by the steps that node 0's ranks printed: a step printed
# again after N later ones.
was_redone() {
    grep -hoE '^step [0-9]+' "$@" | cut -c6- | awk '$1 <= last { back = last - $1 + 1; if (back > most) most = back } { last = $1 } END { print most + 0 }'
}
# killed NODES SETTING… — KILLS kills of a worker or a whole node, then a stop; and a calm run of as many steps.
killed() {
    local nodes=$1 name=$2 k i p hit at before
    shift 2
    : >out.log.0 >redone
    begin_nodes "$nodes" $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$name" "$@"
    wait_for 30 is_past 5
    for k in $(seq "$kills"); do
        before=$(grep -c 'resuming from memory' err.0)
        sleep "0.$((RANDOM % 5 + 1))$((RANDOM % 10))"
        i=$((RANDOM % nodes))
        if [ $((k % 2)) = 0 ]; then
            p=${node[$i]}
            kill_node "$i"
            if [ "$i" = 0 ]; then cat err.0 >>out.log.0; cat out.0 >>redone; before=0; fi
            begin_node "$i" N_NODES="$nodes" $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$name" "$@"
            pid=${node[0]}
        else
            kill -KILL $(workers_of_node "$i" | cut -d' ' -f1)
        fi
        wait_for 30 node_says_times 0 'resuming from memory' $((before + 1)) >/dev/null
        at=$(last_step)
        wait_for 30 is_past $((${at:-0} + 3))
    done
    cat out.0 >>redone
    kill -TERM "${node[0]}"
    finish_nodes "$nodes"
    ok "$name: $kills times from memory, none from a checkpoint" is "$(resumes) $(cat out.log.0 err.0 | grep -c 'resuming from [^mc]')" "$kills 0"
    ok "$name: at most one finished step is done again" [ "$(was_redone redone)" -le 1 ]
    at=$(newest_step "$name")
    "$convoy" verify "$name" JSON=1 >out 2>err
    ok "$name: the ledger has every step" holds out ".[0] | .problem == null and .first_step == 1 and .last_step == $at"
    begin_nodes "$nodes" $tiny $steps STEPS="$at" CHECKPOINT_DIR="$name-calm" "$@"
    finish_nodes "$nodes"
    ok "$name: the weights after $at steps are those of a calm run" is "$(weights "$name/$(newest "$name")")" "$(weights "$name-calm/$(newest "$name-calm")")"
}
killed 2 two
killed 3 three SHARD=optimizer
killed 4 four SHARD=full GLOBAL_BATCH=8
killed 2 shared N_GPU_EACH_NODE=2
killed 2 sharded N_GPU_EACH_NODE=2 SHARD=gradients
killed 3 exact EXACT=layout SHARD=full GLOBAL_BATCH=12

# No checkpoint is read: the returning node is served by the others. When both were killed, one is.
traced_node() { in="$trace_opens trace.$1" begin_node "$1" N_NODES=2 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=traced CHECKPOINT_EVERY=100; }
if there strace; then
    traced_node 1
    traced_node 0
    wait_for 60 is_past 150
    begin=$(seconds_now)
    kill_node 1
    traced_node 1
    pid=${node[0]}
    wait_for 30 node_said 0 'resuming from memory'
    at=$(last_step)
    wait_for 30 is_past $((${at:-0} + 5))
    echo "$begin $(seconds_now)" >windows
    ok "strace: no file of a checkpoint is opened for reading" is "$(checkpoint_reads windows trace.*)" 0
    kill_node 1
    kill_node 0
    seconds_now >control
    traced_node 1
    traced_node 0
    wait_for 30 node_said 0 'resuming from traced'
    wait_for 30 is_past 100
    echo "$(cat control) $(seconds_now)" >control
    ok "strace: it is when all nodes were lost" [ "$(checkpoint_reads control trace.*)" -gt 0 ]
    kill -TERM "${node[0]}"
    finish_nodes 2
    ok "strace: done" is "$codes" "143 143"
else
    skip "strace: no file of a checkpoint is opened for reading" "strace is not installed"
    skip "strace: it is when all nodes were lost" "strace is not installed"
    skip "strace: done" "strace is not installed"
fi

# What /metrics and /status say of them.
status=$(free_port)
begin_node 1 N_NODES=2 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=said
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$status" begin_node 0 N_NODES=2 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=said
wait_for 30 is_past 20
curl -s --max-time 5 "127.0.0.1:$status/metrics" >metrics
ok "/metrics: step, bytes, stall and speed of the last copy" is "$(awk '/^convoy_peer_copy_/ && $2 > 0 { print $1 }' metrics | sort | xargs)" \
    "convoy_peer_copy_bytes convoy_peer_copy_bytes_per_second convoy_peer_copy_stall_seconds convoy_peer_copy_step"
ok "/status: the same step, or a later one" [ "$(curl -s --max-time 5 "127.0.0.1:$status/status" | jq .peer_copies.step)" -ge "$(awk '$1 == "convoy_peer_copy_step" { print $2 }' metrics)" ]
kill -TERM "${node[0]}"
finish_nodes 2

# A rank and its copy are gone: back to the checkpoint, which is said; the same bits.
begin_nodes 4 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=pair CHECKPOINT_EVERY=100 SHARD=full
wait_for 30 is_past 250
kill_node 2
kill_node 3
for i in 2 3; do begin_node $i N_NODES=4 $tiny $steps STEPS=100000000 CHECKPOINT_DIR=pair CHECKPOINT_EVERY=100 SHARD=full; done
pid=${node[0]}
from_checkpoint() { node_said 0 'resuming from .*pair/step-[0-9]+: step [0-9]+ of'; }
wait_for 30 from_checkpoint
ok "a rank and its keeper lost: what is missing is said" node_says 0 "no state is whole in memory: of step [0-9]+ the parts of 2 ranks are lost .*rank 2's with node 2 and node 3; going on from the checkpoint"
ok "… and the checkpoint is read" from_checkpoint
at=$(last_step)
wait_for 30 is_past $((at + 50))
kill -TERM "${node[0]}"
finish_nodes 4
at=$(newest_step pair)
begin_nodes 4 $tiny $steps STEPS="$at" CHECKPOINT_DIR=pair-calm SHARD=full
finish_nodes 4
ok "… with the same bits" is "$(weights "pair/$(newest pair)")" "$(weights "pair-calm/$(newest pair-calm)")"

# A loss that is not finite: the state in memory may be its cause.
begin_nodes 2 $tiny STEPS=300 FAULT=nan@step=200:rank=1 CHECKPOINT_DIR=nan CHECKPOINT_EVERY=90
finish_nodes 2
ok "a loss that is not finite: from the checkpoint" is "$codes $(grep -c 'resuming from memory' err.0) $(grep -c 'resuming from .*nan/step-00000180' err.0)" "0 0 0 1"

# Off, by asking and where it cannot be.
begin_nodes 2 $tiny STEPS=300 PEER_COPIES=0 FAULT=kill@step=200:rank=1 CHECKPOINT_DIR=off CHECKPOINT_EVERY=90
finish_nodes 2
ok "PEER_COPIES=0: from the checkpoint" is "$codes $(grep -c 'resuming from memory' err.0) $(grep -c 'resuming from .*off/step-00000180' err.0)" "0 0 0 1"
begin_nodes 2 $tiny STEPS=5 PP=2 GLOBAL_BATCH=8
finish_nodes 2
ok "auto with PP: none, said once" is "$codes $(grep -c 'no copies of the state in peers. memory (PEER_COPIES=auto): with TP, PP or CP' err.0)" "0 0 1"
run $tiny STEPS=5 PEER_COPIES=1
ok "PEER_COPIES=1 on one node: 78, and why" is "$rc $(grep -c 'PEER_COPIES=1 (argument) cannot be had: there is no other node' err)" "78 1"
done_testing
