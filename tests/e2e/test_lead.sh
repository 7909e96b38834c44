#!/bin/bash
# test_lead — ON_LOSS=shrink: node 0 is killed, stopped or returns, and another node leads the job meanwhile. The weights are those of one
# worker that nobody disturbed, and the ledger has every step once: no step was done by two worlds.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
job="$steady ON_LOSS=shrink MIN_NODES=1 MAX_RESTARTS=1000 JOIN_TIMEOUT=60s CHECKPOINT_EVERY=100000000 STEPS=100000000"

# Node 0 is killed, and returns; then the node that leads is killed.
begin_nodes 3 $job CHECKPOINT_DIR=lead
wait_for 30 is_past_on 0 5
kept="$(workers_of_node 1) $(workers_of_node 2)"
pid=${node[1]}
kill_node 0
ok "node 0 is killed: node 1 leads the job" wait_for 30 node_said 1 'node 0 is lost; node 1 leads the job now, at 127\.0\.0\.1:[0-9]+'
ok "… both train without it" wait_for 30 node_said 1 'generation 2: 2 of 3 nodes \(1-2\)'
ok "… from memory" wait_for 30 node_said 1 'resuming from memory: step'
ok "… past more steps" goes_on_at 1 10
ok "… their workers are the same processes" is "$(workers_of_node 1) $(workers_of_node 2)" "$kept"
begin_node 0 N_NODES=3 $job CHECKPOINT_DIR=lead
pid=${node[1]}
ok "node 0 returns: it joins node 1" wait_for 30 node_said 0 'node 1 leads the job, at 127\.0\.0\.1:[0-9]+; this node joins it'
ok "… and trains with the others" wait_for 30 node_said 1 'generation 3: 3 nodes'
ok "… past more steps" goes_on_at 0 10
pid=${node[0]}
kill_node 1
ok "node 1 is killed: node 0 leads again" wait_for 30 node_said 0 'generation 4: 2 of 3 nodes \(0, 2\)'
ok "… both train" goes_on_at 0 10
begin_node 1 N_NODES=3 $job CHECKPOINT_DIR=lead
pid=${node[0]}
ok "node 1 returns: it joins node 0" wait_for 30 node_said 0 'generation 5: 3 nodes'
ok "… and trains" goes_on_at 0 10
stop_nodes 3
ok "a stop of the leading node is for all" is "$codes" "143 143 143"
same_as_calm lead

# One of two is left, and another node leaves the job with the first one's signal.
begin_nodes 2 $job CHECKPOINT_DIR=two
wait_for 30 is_past_on 0 5
pid=${node[1]}
kill_node 0
ok "one of two: node 1 trains alone" wait_for 30 node_said 1 'generation 2: 1 of 2 nodes \(1\)'
ok "… past more steps" goes_on_at 1 10
stop_nodes 2 TERM 1
ok "… until it is asked to stop" is "${rcs[1]}" 143
same_as_calm two

# Without copies in memory and on a disk of its own, the new leader has no state, and reports it.
for i in 0 1; do begin_node $i N_NODES=2 $job CHECKPOINT_DIR=none-$i PEER_COPIES=0; done
wait_for 30 is_past_on 0 5
pid=${node[1]}
kill_node 0
ok "no state is left: the new leader begins again, and warns" \
    wait_for 30 node_said 1 ' warn .*no state is in memory, and there is no checkpoint in none-1: the job starts from the beginning'
kill_node 1

# Node 0 stands still for longer than its lease, and wakes up. The others go on without it; it must not train alone meanwhile, although
# MIN_NODES allows one node, and joins them. Each node has a folder of its own, because a process that stands still keeps its lock.
for i in 0 1 2; do begin_node $i N_NODES=3 $job CHECKPOINT_DIR=still-$i PEER_TIMEOUT=4s; done
wait_for 30 is_past_on 0 5
pid=${node[1]}
still="${node[0]} $(workers_of_node 0)"
kill -STOP $still
ok "node 0 stands still: node 1 leads" wait_for 30 node_said 1 'generation 2: 2 of 3 nodes \(1-2\)'
ok "… both train" goes_on_at 1 10
kill -CONT $still
ok "… node 0 wakes up and joins node 1" wait_for 30 node_said 0 'node 1 leads the job, at 127\.0\.0\.1:[0-9]+; this node joins it'
ok "… all train" wait_for 30 node_said 1 'generation 3: 3 nodes'
ok "… past more steps" goes_on_at 0 10
ok "… node 0 has never trained alone" is "$(grep -cE 'generation [0-9]+: 1 of 3' err.0)" 0
stop_nodes 3 TERM 1
ok "… a stop of node 1, which leads, is for all" is "$codes" "143 143 143"
same_as_calm still-0 LOCAL
done_testing
