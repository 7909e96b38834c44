#!/bin/bash
# test_workers — several workers on one node are one job: the losses of one worker, the same bits for every way of sharding,
# and a lost worker is replaced while the others keep their processes.
. "$(dirname "$0")/lib.sh"
endless="$tiny STEPS=100000000"
pair="N_GPU_EACH_NODE=2"
has_workers() { [ "$(workers_of "$pid" | wc -w)" = "$1" ]; }
warned() { grep -cE " warn .*$1" err; }

# 1. The same global batch, dealt to 1, 2, 3, 4 workers; sharded in every way; whoever wrote a checkpoint, others go on.
batch="BATCH_SIZE=1 GLOBAL_BATCH=12 STEPS=20"
for w in 1 2 3 4; do
    run $tiny $batch N_GPU_EACH_NODE=$w METRICS_FILE=w$w.jsonl CHECKPOINT_DIR=w$w
    ok "$w workers: done" is "$rc $(steps_of w$w.jsonl)" "0 20"
    [ $w = 1 ] || ok "$w workers: losses within 2e-6 of one worker's" near w1.jsonl w$w.jsonl 2e-6
done
for s in optimizer gradients full; do
    run $tiny $batch N_GPU_EACH_NODE=3 SHARD=$s METRICS_FILE=$s.jsonl CHECKPOINT_DIR=$s CHECKPOINT_EVERY=7
    ok "SHARD=$s: losses and weights bit for bit those of SHARD=none" \
        is "$rc $(losses $s.jsonl | cksum) $(weights $s/step-00000020)" "0 $(losses w3.jsonl | cksum) $(weights w3/step-00000020)"
done
for to in "1 none" "2 full" "4 none" "3 gradients"; do
    set -- $to
    rm -rf go && mkdir go && cp -r full/step-00000014 go/
    tail -n 6 w1.jsonl >rest.jsonl
    losses_near rest.jsonl 2e-6 "a checkpoint of 3 workers, SHARD=full, goes on with $1, SHARD=$2" $tiny $batch N_GPU_EACH_NODE=$1 SHARD=$2 CHECKPOINT_DIR=go RESUME=required
done
run $tiny $batch $pair STEPS=1
ok "the log names the backend and the reason" says 'BACKEND=auto uses shm: all workers run on one node and share memory'
run $tiny $batch $pair VAL_DATA= DATA=synthetic STEPS=4 EVAL_EVERY=0 SHUFFLE=1 LOG_LEVEL=error
ok "quiet: nothing on stderr but what was asked for" is "$(wc -c <err)" 0

# 2. Rehearsed failures of either rank heal: the same bits as without.
heals "$tiny $pair" kill:rank=0 kill:rank=1 nan:rank=1 stall:rank=1
run $tiny $pair STEPS=30 CHECKPOINT_DIR=none CHECKPOINT_EVERY=8 FAULT=kill@step=21:rank=1 MAX_RESTARTS=0
ok "no restart left: 75, and who was lost" is "$rc $(grep -c ' error .*worker rank 1 (pid [0-9]*) was killed by SIGKILL' err)" "75 1"
try "not finite, no restart left: 79" 79 -- train $tiny $pair STEPS=30 FAULT=nan@step=21 MAX_RESTARTS=0

# 3. kill -9 from outside: the survivor keeps its process.
begin $endless $pair CHECKPOINT_DIR=kill CHECKPOINT_EVERY=50 MAX_RESTARTS=100
has_begun() { has_workers 2 && [ "$(grep -c 'resuming from kill/' err)" = "$1" ] && [ -n "$(newest kill)" ]; }
is_replaced() { has_begun $i && ! workers_of "$pid" | grep -qw "$victim" && workers_of "$pid" | grep -qw "$other"; }
for i in 1 2 3 4; do
    wait_for 20 has_begun $((i - 1))
    sleep "0.$((RANDOM % 4))"
    set -- $(workers_of "$pid")
    if [ $((RANDOM % 2)) = 0 ]; then victim=$1 other=$2; else victim=$2 other=$1; fi
    kill -KILL "$victim"
    ok "kill $i: replaced, and the other worker is still the one it was" wait_for 10 is_replaced
done
stop
ok "SIGTERM: 143 after a checkpoint of all" is "$rc $(newest_step kill | grep -c .)" "143 1"

# 4. A worker that is stopped, not dead.
begin_training $endless $pair CHECKPOINT_DIR=stop CHECKPOINT_EVERY=50 PEER_TIMEOUT=$(secs 2)
set -- $(workers_of "$pid")
kill -STOP "$2"
wait_for 10 said "the process was stopped"
ok "SIGSTOP: named within its time, with the rank" is "$(warned 'worker rank 1 .*hung: no sign of progress for [0-9.]* s.*the process was stopped')" 1
wait_for 10 has_workers 2
stop INT
ok "SIGINT: 130" is $rc 130

# 5. Many at once, and what /status shows of them.
port=$(free_port)
begin_served $endless BATCH_SIZE=1 N_GPU_EACH_NODE=4 SHARD=full
wait_for 20 status_has '.phase == "training" and .step > 10'
ok "/status: four ranks, one node, in parts" is \
    "$(jq -c '[.backend, .mesh.data, .mesh.shard, (.nodes|length), [.ranks[].rank]]' status.json)" '["shm",4,4,1,[0,1,2,3]]'
ok "/status: times of every rank" holds status.json '.[0].ranks | all(.compute_ms > 0 and .comm_ms >= 0 and .wait_ms >= 0)'
ok "convoy status shows them" is "$("$convoy" status "http://127.0.0.1:$port" | grep -c '^rank [0-3] ')" 4
kill -KILL "$(workers_of "$pid" | cut -d' ' -f3)"
ok "/status: one restart" wait_for 10 status_has '.restarts == 1 and .phase == "training" and .error == null'
stop USR1
ok "SIGUSR1: 75" is $rc 75
done_testing
