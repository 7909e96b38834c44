#!/bin/bash
# test_mesh_heal — two nodes of two workers: a stage of a pipeline on each, its matrices shared by the workers. A node, a worker
# and a worker that stands still are replaced; each is named with its place in the mesh. SIGTERM ends all after one step. That weights are
# those of an undisturbed run is in test_copies and test_rehearse; that other meshes go on from them in test_any_mesh.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
model="MODEL=gpt2-nano LAYERS=4 HEADS=4 EMBED=32 VOCAB=64 CONTEXT=32 SEQ_LEN=16 LR=1e-4 LR_SCHEDULE=constant DROPOUT=0.1"
job="$model BATCH_SIZE=1 GLOBAL_BATCH=4 CHECKPOINT_EVERY=20"
mesh="N_GPU_EACH_NODE=2 PP=2 TP=2"
endless="$job $mesh STEPS=100000000 CHECKPOINT_DIR=$tmp/hit METRICS_FILE=$tmp/hit.jsonl STEP_TIMEOUT=$(secs 4) MAX_RESTARTS=10"
steps_saved() { local s; s=$(newest_step hit); echo "${s:-0}"; }
saves_more() { [ "$(steps_saved)" -gt "$saved" ]; }
# heals — a later checkpoint comes, which is further than the run was.
heals() {
    saved=$(($(tail -n 1 hit.jsonl | jq .step) + 20))
    wait_for 20 saves_more
}
worker_i() { set -- $(workers_of_node "$1") $2; eval "echo \${$(($# == 3 ? $3 + 1 : 1))}"; } # worker_i NODE I
# restarts — those of node 0 but for hung workers: a machine that stands still for STEP_TIMEOUT adds one of these.
restarts() { grep -E 'restart [0-9]+ of 10' err.0 | grep -vc hung; }
place='worker rank'

begin_nodes 2 $endless
saved=20
ok "two nodes, PP=2 x TP=2: they train" wait_for 30 saves_more

kill -KILL "${node[1]}"
wait "${node[1]}" 2>/dev/null
wait_for 10 node_said 0 'node 1 .*was lost'
ok "kill -9 of a node: named with its ranks and their stage" node_says 0 'node 1 \(.*, pid [0-9]+, ranks 2 to 3: stage 1\) was lost: its connections? '
ok "that is one restart" is "$(restarts)" 1
cp err.1 err.1.before
begin_node 1 N_NODES=2 $endless
ok "the same command there: all go on" heals

kill -KILL "$(worker_i 0 1)"
wait_for 10 node_said 0 'rank 1 .*killed'
ok "kill -9 of a worker: named with its place" node_says 0 "node 0 \(.*\): $place 1 \(stage 0, tensor 1; pid [0-9]+\) was killed by SIGKILL .*restart [0-9]+ of 10"
ok "that is one more" is "$(restarts)" 2
ok "it is replaced: all go on" heals

lines_0=$(wc -l <err.0) lines_1=$(wc -l <err.1)
since_stop() { tail -n "+$((lines_0 + 1))" err.0 && tail -n "+$((lines_1 + 1))" err.1; }
said_hung() { since_stop | grep -q 'rank 2 .*hung'; }
kill -STOP "$(worker_i 1 0)"
wait_for 20 said_hung
ok "SIGSTOP of a worker: named with its place, and no other" is "$(since_stop | grep -oE "$place [0-9]+ \(stage [0-9], tensor [0-9]; pid [0-9]+\) hung" | sort -u | cut -d';' -f1)" \
    "$place 2 (stage 1, tensor 0"
ok "it is replaced: all go on" heals

stop_nodes 2 TERM 1
last=$(newest_step hit)
ok "SIGTERM on one node: both end with 143" is "$codes" "143 143"
ok "after the same step, with a checkpoint" is "$(grep -ohE 'after step [0-9]+ of 100000000' err.0 err.1 | sort | uniq -c | xargs) $(tail -n 1 hit.jsonl | jq .step)" \
    "2 after step $last of 100000000 $last"


# All ranks end where a loss is not finite: that is one loss, which takes one restart.
run $job ${mesh/EACH_NODE=2/EACH_NODE=4} STEPS=30 CHECKPOINT_DIR=calm METRICS_FILE=calm.jsonl
run $job CHECKPOINT_EVERY=8 ${mesh/EACH_NODE=2/EACH_NODE=4} STEPS=30 CHECKPOINT_DIR=nan METRICS_FILE=nan.jsonl FAULT=nan@step=21:rank=3
ok "a loss that is not finite on four workers: one restart" is "$rc $(grep -oE 'restart [0-9] of 3' err | xargs)" "0 restart 1 of 3"
ok "losses bit for bit" is "$(losses nan.jsonl | cksum)" "$(losses calm.jsonl | cksum)"
done_testing
