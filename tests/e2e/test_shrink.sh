#!/bin/bash
# test_shrink — ON_LOSS=shrink: nodes are killed, stay away, leave and return, while the others train on from the copies in their
# memory. The weights are those of one worker that nobody disturbed, and the ledger has every step once. KILLS sets how often.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
kills=${KILLS:-3}
job="$tiny BATCH_SIZE=1 GLOBAL_BATCH=12 EXACT=layout LR_SCHEDULE=constant ON_LOSS=shrink MAX_RESTARTS=1000 JOIN_TIMEOUT=60s CHECKPOINT_EVERY=100000000"
goes_on() { # goes_on N — N more steps than now
    local at
    at=$(last_step)
    wait_for 30 is_past $((${at:-0} + $1))
}
# same_as_calm NAME SETTING… — the last checkpoint has the weights of a calm run of one worker.
same_as_calm() {
    local name=$1 at
    shift
    at=$(newest_step "$name")
    "$convoy" verify "$name" JSON=1 >out 2>err
    ok "$name: the ledger has every step" holds out ".[0] | .problem == null and .first_step == 1 and .last_step == $at"
    run $tiny BATCH_SIZE=1 GLOBAL_BATCH=12 EXACT=layout LR_SCHEDULE=constant STEPS="$at" CHECKPOINT_DIR="$name-calm" "$@"
    ok "$name: the weights after $at steps are those of a calm worker" is "$(weights "$name/$(newest "$name")")" "$(weights "$name-calm/$(newest "$name-calm")")"
}
# Nodes and workers are killed, and nodes return while the others train: from memory, with the weights of a calm run.
while read -r name settings; do
    limit 200 "$convoy" rehearse ${job/CHECKPOINT_EVERY=100000000/CHECKPOINT_EVERY=20} $settings CHECKPOINT_DIR="$tmp/$name" FAULT_MIX=node,kill FAULT_EVERY=1s \
        DURATION="${kills}s" SEED=$RANDOM JSON=1 >out 2>err
    ok "$name: healed, with the weights of a calm run and every step in the ledger" holds out '.[0] | .problem == null and .weights.equal and .samples_lost == 0
        and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed and .named_wrong == 0)'
    ok "$name: from memory: at most one finished step is done again" holds out '.[0] | [.faults[].steps_redone.worst // 0] | max <= 1'
done <<'TABLE'
four N_NODES=4
full N_NODES=3 SHARD=full
two N_NODES=2 SHARD=optimizer
workers N_NODES=2 N_GPU_EACH_NODE=2
TABLE

# Without EXACT=layout the micro-batches are dealt again: the losses equal a calm run's, within rounding. A low learning rate keeps
# rounding from growing.
while read -r name settings; do
    limit 200 "$convoy" rehearse ${job/EXACT=layout/LR=1e-5} CHECKPOINT_EVERY=20 $settings CHECKPOINT_DIR="$tmp/$name" FAULT_MIX=node,kill FAULT_EVERY=1s \
        DURATION="${kills}s" SEED=$RANDOM JSON=1 >out 2>err
    ok "$name: healed, with the losses of a calm run and every step in the ledger" holds out '.[0] | .problem == null and .weights.judged == false
        and .losses.compared >= 20 and .losses.worst < 1e-6 and .samples_lost == 0 and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed)'
done <<'TABLE'
inexact N_NODES=4
inexact-full N_NODES=3 SHARD=full
inexact-tensor N_NODES=3 N_GPU_EACH_NODE=2 TP=2
inexact-stages N_NODES=3 N_GPU_EACH_NODE=2 PP=2
TABLE

# A supervisor is killed, and its workers end with it: both kinds of its connections are closed, so it is lost at once. The log has the time
# of the next generation; the fastest of three counts, since a busy machine may stand still in any of them.
begin_nodes 3 $job STEPS=100000000 CHECKPOINT_DIR=fast
wait_for 30 is_past 5
fastest=1000000
for k in 1 2 3; do
    since=$(date +%s%3N)
    kill -KILL "${node[1]}"
    wait_for 30 node_says_times 0 'generation [0-9]+: 2 of 3 nodes' "$k" >/dev/null
    took=$(($(date -d "$(grep -E 'generation [0-9]+: 2 of 3 nodes' err.0 | tail -n 1 | cut -d' ' -f1)" +%s%3N) - since))
    [ "$took" -ge "$fastest" ] || fastest=$took
    goes_on 5
    begin_node 1 N_NODES=3 $job STEPS=100000000 CHECKPOINT_DIR=fast
    pid=${node[0]}
    wait_for 30 node_says_times 0 "is back and joins the job again" "$k" >/dev/null
    goes_on 5
done
ok "a node that is killed is lost at once, by two signs" node_says 0 'node 1 \([^)]*\) was lost: its connections to node 0 and to a rank of another node were closed'
ok "… from the kill to the next generation: $fastest ms" within "$fastest" 450
stop_nodes 3
same_as_calm fast

# A node returns while the others make their first step without it, which takes longer than its start: the generation finishes that step.
begin_nodes 3 $job GLOBAL_BATCH=3000 BATCH_SIZE=2 VIRTUAL_SHARDS=1500 STEPS=100000000 CHECKPOINT_DIR=step
wait_for 60 is_past 2
kill_node 1
wait_for 30 node_said 0 'generation 2: 2 of 3 nodes' >/dev/null
begin_node 1 N_NODES=3 $job GLOBAL_BATCH=3000 BATCH_SIZE=2 VIRTUAL_SHARDS=1500 STEPS=100000000 CHECKPOINT_DIR=step
pid=${node[0]}
ok "a node that returns early is taken in" wait_for 60 node_said 0 'generation 3: 3 nodes'
wait_for 30 node_says_times 0 'resuming from memory: step' 2 >/dev/null
read -r -d '' first second < <(grep -oE 'resuming from memory: step [0-9]+' err.0 | grep -oE '[0-9]+$')
ok "… after a step of the others: from step $first, then from step $second" [ "${second:-0}" -gt "${first:-0}" ]
at_ms() { date -d "$(grep -E "$1" err.0 | head -n 1 | cut -d' ' -f1)" +%s%3N; }
took=$(($(at_ms 'is back and joins the job again') - $(at_ms 'generation 2: ')))
ok "… right after it: $took ms after that generation began, and not by the bound of 10 s" within "$took" 4000
stop_nodes 3
same_as_calm step GLOBAL_BATCH=3000 BATCH_SIZE=2 VIRTUAL_SHARDS=1500

# Node 0 goes on alone, and the steps that it has done alone are not lost when a node returns.
begin_nodes 3 $job MIN_NODES=1 STEPS=100000000 CHECKPOINT_DIR=alone
wait_for 30 is_past 5
kill_node 1
kill_node 2
wait_for 30 node_said 0 'generation [0-9]+: 1 of 3 nodes \(0\)' >/dev/null
ok "alone: node 0 trains on" goes_on 20
at=$(last_step)
begin_node 2 N_NODES=3 $job MIN_NODES=1 STEPS=100000000 CHECKPOINT_DIR=alone
pid=${node[0]}
ok "alone: one of two returns, with its state" wait_for 30 node_said 0 'generation [0-9]+: 2 of 3 nodes \(0, 2\)'
ok "alone: they train on" goes_on 5
kill -TERM "${node[0]}"
finish_node 0
finish_node 2
ok "alone: the stop is for both" is "${rcs[0]} ${rcs[2]}" "143 143"
# what is lost with both of a pair was lost with them; the rest was never done twice
ok "alone: after node 0 was alone no step was lost" [ "$(tail -n +"$(grep -n "^step $at/" out.0 | tail -n 1 | cut -d: -f1)" out.0 | grep -oE '^step [0-9]+' | sort | uniq -d | wc -l)" -le 1 ]
same_as_calm alone

# Four of six nodes are killed within a second: one incident.
begin_nodes 6 $job MIN_NODES=2 STEPS=100000000 CHECKPOINT_DIR=incident
wait_for 60 is_past 5
for i in 1 3 4 5; do
    kill_node $i
    sleep 0.2
done
ok "four of six nodes are lost within a second: two train on" wait_for 60 node_said 0 'generation [0-9]+: 2 of 6 nodes \(0, 2\)'
ok "incident: for some time" goes_on 20
kill -TERM "${node[0]}"
finish_node 0
finish_node 2
ok "incident: the stop is for both" is "${rcs[0]} ${rcs[2]}" "143 143"
same_as_calm incident

# A node that is asked to stop leaves, and the others go on; asked all at once, they stop as one.
begin_nodes 3 $job STEPS=100000000 CHECKPOINT_DIR=leave
wait_for 30 is_past 5
kill -TERM "${node[2]}"
finish_node 2
ok "a node that is asked to stop leaves with its code" is "${rcs[2]}" 143
ok "… and says that the others go on" node_says 2 'stopped by SIGTERM; the other nodes go on'
ok "… node 0 knows why" node_says 0 'node 2 \([^)]*\) leaves: stopped by SIGTERM'
ok "… the others train on" goes_on 5
begin_node 2 N_NODES=3 $job STEPS=100000000 CHECKPOINT_DIR=leave VAL_DATA="$tmp/none.txt"
finish_node 2
pid=${node[0]}
ok "a node that returns and cannot load ends with its error" is "${rcs[2]}" 66
ok "… node 0 reports the error" node_says 0 'node 2 \([^)]*\) ended: VAL_DATA.*; the others go on \(ON_LOSS=shrink\)'
ok "… the others train on" goes_on 5
begin_node 2 N_NODES=3 $job STEPS=100000000 CHECKPOINT_DIR=leave
pid=${node[0]}
ok "… it may return" wait_for 30 node_said 0 'node 2 \([^)]*\) is back and joins the job again'
ok "… all train on" goes_on 5
ok "… and no restart was counted" is "$(grep -c 'restart [0-9]* of' err.0)" 0
kill -TERM "${node[1]}" "${node[2]}" "${node[0]}"
finish_nodes 3
ok "all are asked to stop: one checkpoint, and all stop" is "$codes $(grep -c 'stopped by SIGTERM after step' err.0)" "143 143 143 1"
same_as_calm leave

# A node whose results are wrong leaves with 80, and the others go on without it; too few without it, it starts its worker again.
wrong="${job/CHECKPOINT_EVERY=100000000/CHECKPOINT_EVERY=10} STEPS=100000000 SENTINEL_EVERY=4 FAULT=flip@step=22:rank=2"
begin_nodes 4 $wrong CHECKPOINT_DIR=wrong
finish_node 2
ok "a node with wrong results leaves with 80" is "${rcs[2]}" 80
ok "… and says so" node_says 2 'gradients of rank 2 differ from most of 6 computations.*; the other nodes go on without this one'
ok "… node 0 knows why" node_says 0 'node 2 \([^)]*\) leaves: .*gradients of rank 2 differ'
ok "… the others train on" wait_for 30 node_said 0 'generation 2: 3 of 4 nodes \(0-1, 3\)'
ok "… past that step" wait_for 30 is_past 30
begin_node 2 N_NODES=4 $wrong CHECKPOINT_DIR=wrong
pid=${node[0]}
ok "… its replacement is taken in" wait_for 30 node_said 0 'node 2 \([^)]*\) is back and joins the job again'
ok "… all train on" goes_on 5
stop_nodes 4
same_as_calm wrong
begin_nodes 3 $wrong CHECKPOINT_DIR=needed MIN_NODES=3
ok "a node with wrong results that is needed starts its worker again" wait_for 30 node_said 0 'generation 2: 3 nodes'
ok "… all train on" wait_for 30 is_past 30
stop_nodes 3
same_as_calm needed

# Too few nodes: the others wait, then end.
begin_nodes 3 $job STEPS=100000000 CHECKPOINT_DIR=few MIN_NODES=3
wait_for 30 is_past 5
kill_node 1
ok "MIN_NODES: too few are left, so they wait" wait_for 30 node_said 0 'waiting for node 1 \(1 of 3 missing\)'
begin_node 1 N_NODES=3 $job STEPS=100000000 CHECKPOINT_DIR=few MIN_NODES=3
pid=${node[0]}
ok "… and go on with it" goes_on 5
stop_nodes 3

# At the start enough nodes begin after JOIN_TIMEOUT; the run ends, and a node that comes too late with it.
begin_node 0 N_NODES=3 $job STEPS=400 CHECKPOINT_DIR=start JOIN_TIMEOUT=2s
begin_node 1 N_NODES=3 $job STEPS=400 CHECKPOINT_DIR=start JOIN_TIMEOUT=2s
pid=${node[0]}
ok "two of three begin after JOIN_TIMEOUT" wait_for 30 node_said 0 'generation 1: 2 of 3 nodes \(0-1\)'
finish_node 0
finish_node 1
ok "… and come to the end" is "${rcs[0]} ${rcs[1]}" "0 0"
same_as_calm start

# What is refused.
refuses() { # refuses TEXT SETTING…
    local text=$1
    shift
    run $tiny GLOBAL_BATCH=12 EXACT=layout ON_LOSS=shrink "$@"
    ok "$*: 78, $text" is "$rc $(grep -cE "$text" err)" "78 1"
}
refuses 'set LOCAL_STEPS=0' EXACT=off N_NODES=2 LOCAL_STEPS=4
refuses 'at most N_NODES nodes' MIN_NODES=2
refuses 'set ON_LOSS=shrink, or leave MIN_NODES out' ON_LOSS=wait MIN_NODES=1
refuses 'a multiple of TP x CP x PP' N_NODES=2 CP=2 SEQ_LEN=32
refuses 'a multiple of TP x CP x PP' N_NODES=2 PP=2
refuses 'on 2 nodes 2 pipelines of PP=2 need equal numbers of virtual shards, and 9 is' BATCH_SIZE=1 NODE_ID=0 JOB_TOKEN=none MASTER_ADDR=127.0.0.1 N_NODES=3 N_GPU_EACH_NODE=2 PP=2 GLOBAL_BATCH=9 TIE_EMBEDDINGS=0
refuses 'on 2 nodes 2 pipelines of PP=2 need equal numbers of micro-batches, and 9 is' BATCH_SIZE=1 NODE_ID=0 JOB_TOKEN=none MASTER_ADDR=127.0.0.1 EXACT=off N_NODES=3 N_GPU_EACH_NODE=2 PP=2 GLOBAL_BATCH=9
refuses 'ON_LOSS' ON_LOSS=grow
done_testing
