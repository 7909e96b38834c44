#!/bin/bash
# test_nodes — several nodes over loopback: they join in any order, agree or report what differs, train as one, and take a
# lost node back.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
endless="$tiny STEPS=100000000"

# 1. One job, however it is dealt out.
batch="BATCH_SIZE=1 GLOBAL_BATCH=12 STEPS=20"
run $tiny $batch METRICS_FILE=one.jsonl
train_nodes 2 $tiny $batch METRICS_FILE=two.jsonl CHECKPOINT_DIR=two
ok "2 nodes: done" is "$codes $(steps_of two.jsonl)" "0 0 20"
ok "the log names the backend and the reason" node_says 0 'BACKEND=auto uses (tcp|ucx)[^:]*: .*(InfiniBand|network)'
ok "2 nodes: losses within 2e-6 of one worker's" near one.jsonl two.jsonl 2e-6
train_nodes 2 $tiny $batch N_GPU_EACH_NODE=2 SHARD=full METRICS_FILE=four.jsonl CHECKPOINT_DIR=four
ok "2 nodes of 2 workers, sharded: done" is "$codes $(steps_of four.jsonl)" "0 0 20"
ok "2 nodes of 2 workers: losses within 2e-6" near one.jsonl four.jsonl 2e-6
train_nodes 2 $tiny $batch N_GPU_EACH_NODE=2 SHARD=hybrid METRICS_FILE=hybrid.jsonl CHECKPOINT_DIR=hybrid
ok "2 nodes of 2 workers, SHARD=hybrid: done, and said" is "$codes $(grep -c 'SHARD=hybrid: full over the 2 workers of a node' err.0)" "0 0 1"
ok "SHARD=hybrid: losses within 2e-6" near one.jsonl hybrid.jsonl 2e-6
UCX_TLS=tcp,self UCX_NET_DEVICES=lo train_nodes 2 $tiny $batch N_GPU_EACH_NODE=2 SHARD=hybrid BACKEND=ucx METRICS_FILE=hybrid_ucx.jsonl CHECKPOINT_DIR=hybrid_ucx
ok "SHARD=hybrid over UCX: done, and UCX is said" is "$codes $(grep -c 'BACKEND=ucx uses .*ucx' err.0)" "0 0 1"
ok "SHARD=hybrid over UCX: losses within 2e-6" near one.jsonl hybrid_ucx.jsonl 2e-6
train_nodes 4 $tiny $batch METRICS_FILE=far.jsonl CHECKPOINT_DIR=far
ok "4 nodes, started in any order: done" is "$codes $(steps_of far.jsonl)" "0 0 0 0 20"
ok "4 nodes: losses within 2e-6" near one.jsonl far.jsonl 2e-6
begin_node 0 N_NODES=2 $tiny STEPS=5 MASTER_ADDR=localhost
sleep 1
begin_node 1 N_NODES=2 $tiny STEPS=5 MASTER_ADDR=localhost
finish_nodes 2
ok "a name for an address, and a node that comes late" is "$codes" "0 0"

# 2. A node that does not come, one that may not join, one with other settings.
begin_node 0 N_NODES=3 $tiny STEPS=5 JOIN_TIMEOUT=$(secs 2)
begin_node 2 N_NODES=3 $tiny STEPS=5 JOIN_TIMEOUT=$(secs 2)
finish_node 0
finish_node 2
ok "a missing node: 75 on those that are there" is "${rcs[0]} ${rcs[2]}" "75 75"
ok "and it is named" node_says 0 "error.*node 1"
begin_node 1 N_NODES=2 $tiny STEPS=5 JOIN_TIMEOUT=1s
finish_node 1
ok "no node 0: 75, where it was looked for and why in vain" is \
    "${rcs[1]} $(grep -c 'waiting for node 0 at 127.0.0.1:' err.1) $(grep -cE 'error.*node 0 at 127.0.0.1:[0-9]+ could not be reached' err.1)" "75 1 1"
both_name() { is "$(grep -lE "error.*$1" err.0 err.1 | wc -l)" 2 && within "$2" 3000; } # both_name KEY TOOK_MS
# disagree NAME KEY SETTING… — node 1 has these besides: 76 on both, with the key.
disagree() {
    local name=$1 key=$2 begin
    shift 2
    begin=$(now_ms)
    begin_node 0 N_NODES=2 $tiny STEPS=5
    begin_node 1 N_NODES=2 $tiny STEPS=5 "$@"
    finish_nodes 2
    ok "$name differs: 76 on both" is "$codes" "76 76"
    ok "$name differs: both name it, within 3 s" both_name "$key" $(($(now_ms) - begin))
}
disagree "a number" LR LR=0.5
disagree "the model" MODEL EMBED=64
disagree "the way of sharding" SHARD SHARD=full
disagree "the number of workers" N_GPU_EACH_NODE N_GPU_EACH_NODE=2
cp /usr/share/common-licenses/GPL-3 a.txt
cp /usr/share/common-licenses/Apache-2.0 b.txt
begin_node 0 N_NODES=2 $tiny STEPS=5 VOCAB=50257 DATA=a.txt
begin_node 1 N_NODES=2 $tiny STEPS=5 VOCAB=50257 DATA=b.txt
finish_nodes 2
ok "the data differ: 76 on both, and it is said" is "$codes $(grep -lE 'error.*DATA differs' err.0 err.1 | wc -l)" "76 76 2"
begin_node 0 N_NODES=2 $tiny STEPS=5 JOIN_TIMEOUT=$(secs 4)
JOB_TOKEN=another-secret-altogether begin_node 1 N_NODES=2 $tiny STEPS=5
finish_nodes 2
ok "another token: 77, and node 0 goes on waiting" is "$codes" "75 77"
ok "no token is shown anywhere" is "$(cat out.* err.* | grep -cE 'a-secret-for|another-secret')" 0
(unset JOB_TOKEN && run N_NODES=2 MASTER_ADDR=127.0.0.1 $tiny; echo $rc >rc)
ok "several nodes and no token: 78" is "$(cat rc)" 78
echo a-secret-in-a-file-of-mine >token && chmod 600 token
in="env -u JOB_TOKEN"
begin_nodes 2 $tiny STEPS=5 JOB_TOKEN_FILE=token
in=
finish_nodes 2
ok "JOB_TOKEN_FILE" is "$codes" "0 0"
in="env -u JOB_TOKEN"
begin_nodes 2 $tiny STEPS=5 JOB_TOKEN=none
in=
finish_nodes 2
ok "JOB_TOKEN=none: said aloud on all" is "$codes $(grep -l 'warn.*JOB_TOKEN=none' err.0 err.1 | wc -l)" "0 0 2"

# 3. A stop on any node stops all at the same step.
begin_nodes 2 $endless CHECKPOINT_DIR=stop CHECKPOINT_EVERY=100
wait_for 20 is_past 10
ok "the token is not in any process's environment or words" is \
    "$(for q in ${node[0]} ${node[1]} $(workers_of ${node[0]}); do cat /proc/$q/environ /proc/$q/cmdline; done | tr '\0' '\n' | grep -c a-secret-for)" 0
stop_nodes 2 TERM 1
ok "SIGTERM on node 1: 143 on all" is "$codes" "143 143"
ok "SIGTERM on node 1: node 0 keeps a checkpoint of its last step" \
    is "$(newest_step stop)" "$(last_step)"
# A scheduler stops every node: a stop that arrives from another node before its own signal does not count as a second signal.
begin_nodes 2 $endless CHECKPOINT_DIR=stop3
wait_for 20 is_past 10
kill -STOP $(workers_of "${node[0]}") # so that the first signal is not the end of it
kill -TERM "${node[0]}"
wait_for 5 node_said 1 "SIGTERM on another node"
kill -TERM "${node[1]}"
sleep 0.2
kill -CONT $(workers_of "${node[0]}")
finish_nodes 2
ok "SIGTERM on both, one after the other: 143 and a checkpoint" is "$codes $(grep -c 'ended at once' err.0 err.1 | xargs) $([ -n "$(newest stop3)" ] && echo kept)" \
    "143 143 err.0:0 err.1:0 kept"
begin_nodes 2 $endless CHECKPOINT_DIR=stop2
wait_for 20 is_past 10
stop_nodes 2 USR1
ok "SIGUSR1 on node 0: 75 on all" is "$codes" "75 75"

# 4. A worker of one node and a whole node are lost, and named (test_rehearse and test_copies have what follows: the same bits, processes kept).
begin_nodes 2 $endless CHECKPOINT_DIR=named CHECKPOINT_EVERY=200
wait_for 30 is_past 500
kill -KILL $(workers_of "${node[1]}")
ok "a worker of node 1 lost: node 0 says so" wait_for 10 node_said 0 "node 1 .*was killed by SIGKILL.*restart 1 of 3"
wait_for 30 node_said 0 'generation 2: '
kill_node 1
ok "node 1 lost: node 0 says so" wait_for 10 node_said 0 "node 1 .*was lost"
kill -TERM "${node[0]}"
finish_node 0
ok "SIGTERM while node 1 is away: 143" is "${rcs[0]}" 143
begin_nodes 2 $endless CHECKPOINT_DIR=zero CHECKPOINT_EVERY=200
wait_for 30 is_past 500
kill_node 0
pid=${node[1]}
ok "node 0 lost: node 1 waits for it" wait_for 10 node_said 1 "node 0 .*was lost"
begin_node 0 N_NODES=2 $endless CHECKPOINT_DIR=zero CHECKPOINT_EVERY=200
wait_for 30 is_past 600
stop_nodes 2
ok "node 0 lost and started again: one restart" is "$codes $(grep -c 'restart [0-9]* of' err.0) $(grep -c 'restart 1 of 3' err.0)" "143 143 1 1"

# The cause is named and gives the code, also where another node reports first that the connection ended.
train_nodes 2 $tiny OPTIMIZER=sgd WEIGHT_DECAY=0 GRAD_CLIP=0 LR=1000 STEPS=50 MAX_RESTARTS=9
ok "not finite at the same step: 79 on all, after one more try" is "$codes $(grep -c 'restart [0-9] of 9' err.0)" "79 79 1"
ok "… and why" node_says 0 'step [0-9]+: loss .*; the same failure came again at the same step after a restart; it follows from the weights, the data and the settings'
if [ -z "${SAN:-}" ]; then
    for victim in 1 0; do
        begin_nodes 2 $endless MAX_RESTARTS=0
        wait_for 30 is_past 10
        kill -SEGV $(workers_of_node $victim)
        finish_nodes 2
        ok "a crash on node $victim, no restart left: 70 on all" is "$codes" "70 70"
        ok "… and both name it" is "$(grep -cE "node $victim .*worker rank $victim .*was killed by SIGSEGV.*no restart left" err.0 err.1 | xargs)" "err.0:1 err.1:1"
    done
    begin_node 0 N_NODES=2 $endless MAX_RESTARTS=9 # its worker waits for node 1
    for i in 1 2; do
        has_next() { pid=${node[0]} && has_worker && [ "$worker" != "${last:-}" ]; }
        wait_for 20 has_next && last=$worker && kill -SEGV "$worker"
    done
    finish_node 0
    ok "a crash at the same step again: 70, after one more try" is "${rcs[0]} $(grep -c 'restart [0-9] of 9' err.0)" "70 1"
    ok "… and why" node_says 0 'was killed by SIGSEGV.*; the same failure came again at the same step'
else
    for i in 1 2 3 4 5 6; do skip "crashes $i" "sanitizers keep their own handlers"; done
fi

# 5. A node that returns with another setting or other data is refused; the others keep their workers and wait for a right one.
job="$endless N_NODES=2 VOCAB=50257 CHECKPOINT_DIR=back CHECKPOINT_EVERY=20 MAX_RESTARTS=20 JOIN_TIMEOUT=60s"
begin_node 0 $job DATA=a.txt
begin_node 1 $job DATA=a.txt
pid=${node[0]}
wait_for 20 is_past 30
# comes_back_wrong I WORD SETTING… — node I is lost and comes back so: 76, and the other is still there.
comes_back_wrong() {
    local i=$1 word=$2 other=$((1 - $1)) before begin
    shift 2
    pid=${node[$other]}
    before=$(workers_of_node $other)
    kill_node $i
    wait_for 10 node_said $other "node $i .*was lost"
    begin=$(now_ms)
    begin_node $i $job DATA=a.txt "$@"
    finish_node $i
    begin=$(($(now_ms) - begin))
    ok "node $i comes back with another $word: 76 for itself, with both values" is \
        "${rcs[$i]} $(grep -cE "error.*$word.* on node [01].* on node [01]" err.$i)" "76 1"
    ok "node $i comes back with another $word: within 5 s" within $begin 5000
    sleep 1
    ok "the other waits, with the worker it has" is "$(workers_of_node $other)" "$before"
}
comes_back_wrong 1 LR LR=0.5
comes_back_wrong 1 DATA DATA=b.txt
ok "node 0 says who was refused, and why" node_says 0 "warn.*refused.*DATA differs"
begin_node 1 $job DATA=a.txt
last=$(last_step)
wait_for 20 is_past $((last + 20))
comes_back_wrong 0 LR LR=0.5
pid=${node[1]}
wait_for 5 node_said 1 "waiting for node 0 with this job's settings"
ok "node 1 says what it waits for" node_says 1 "waiting for node 0 with this job's settings .*LR is 0.5 on node 0"
comes_back_wrong 0 DATA DATA=b.txt
begin_node 0 $job DATA=a.txt
is_back() { grep -qE '^step [0-9]+' out.0; }
ok "with the right ones the job goes on" wait_for 20 is_back
stop_nodes 2 TERM 1
ok "to its stop" is "$codes" "143 143"
done_testing
