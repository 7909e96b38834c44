#!/bin/bash
# train_many — NODES=64 nodes as processes of this machine train together for STEPS=100 steps and survive three faults: kill -9 of a
# worker, kill -9 of a whole node that is started again, and a node that stands still (SIGSTOP) until it is declared lost. All nodes
# end with 0. The weights are, bit for bit, those of an undisturbed run of as many workers on one node. Prints the times of the start,
# of a step and of each recovery. FAULTS="worker node hang" chooses the faults. Part of no suite; `make train-64`.
nodes=${NODES:-64} steps=${STEPS:-100} faults=${FAULTS:-worker node hang}
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
every=$((steps / 10 > 0 ? steps / 10 : 1))
declare -A what=([worker]="kill -9 of the worker of node" [node]="kill -9 of all of node" [hang]="SIGSTOP of node")
job="$tiny LR_SCHEDULE=constant BATCH_SIZE=1 STEPS=$steps CHECKPOINT_EVERY=$every MAX_RESTARTS=10 STEP_TIMEOUT=$(secs 60)"
step_now() { local s; s=$(tail -n 1 hit.jsonl 2>/dev/null | grep -oE '"step":[0-9]+' | cut -c8-); echo "${s:-0}"; }
goes_beyond() { [ "$(step_now)" -gt "$1" ]; }
has_saved() { local s; s=$(newest_step hit); [ "${s:-0}" -ge "$1" ]; } # has_saved STEP
hit_job() { echo $job CHECKPOINT_DIR="$tmp/hit" METRICS_FILE="$tmp/hit.jsonl"; }
restarts() { grep -cE 'restart [0-9]+ of 10' err.0; }
# generation — the last one that node 0 has logged.
generation() { local g; g=$(grep -oE ' generation [0-9]+: ' err.0 | tail -n 1 | tr -dc '0-9'); echo "${g:-0}"; }
is_later() { [ "$(generation)" -gt "$1" ]; }

# fault KIND NODE — makes it, and repairs what Convoy leaves to the scheduler: a dead node is started again, a stopped one continues.
fault() {
    local i=$2
    case $1 in
    worker) kill -KILL $(workers_of_node "$i") ;;
    node)
        kill -KILL "${node[$i]}"
        wait "${node[$i]}" 2>/dev/null
        cp "err.$i" "err.$i.before"
        begin_node "$i" N_NODES=$nodes $(hit_job)
        pid=${node[0]}
        ;;
    hang)
        local all="${node[$i]} $(workers_of_node "$i")"
        kill -STOP $all
        wait_for 30 node_said 0 "node $i .*was lost"
        kill -CONT $all
        ;;
    esac
}

begin_ms=$(now_ms)
begin_nodes "$nodes" $(hit_job)
wait_for 60 goes_beyond 0
echo "# $nodes nodes on $(nproc) processors: first step $(($(now_ms) - begin_ms)) ms after the first start; load $(cut -d' ' -f1-3 /proc/loadavg)"
k=0
for kind in $faults; do
    k=$((k + 1)) i=$((1 + (k * 29) % (nodes - 1)))
    wait_for 300 has_saved $((k * steps / 5))
    at=$(generation) fault_ms=$(now_ms) done_before=$(step_now)
    fault "$kind" "$i"
    ok "${what[$kind]} $i after step $done_before: it is named" wait_for 30 node_said 0 "node $i .*(was lost|killed by SIGKILL)"
    ok "the next generation begins" wait_for 60 is_later "$at"
    began_ms=$(now_ms) lines=$(wc -l <hit.jsonl)
    is_moving() { [ "$(wc -l <hit.jsonl)" -gt "$lines" ]; }
    ok "the nodes train on" wait_for 60 is_moving
    echo "# ${what[$kind]}: next generation after $((began_ms - fault_ms)) ms, next step after $(($(now_ms) - fault_ms)) ms"
done
patience=$((6000 + 60 * steps))
finish_nodes "$nodes"
echo "# $(($(now_ms) - begin_ms)) ms in all; a step: $(jq .step_ms hit.jsonl | sort -n | awk '{ a[NR] = $1 } END { printf "median %.0f ms, fastest %.0f ms", a[int((NR + 1) / 2)], a[1] }')"
ok "$nodes nodes end with 0" is "$(printf '%s\n' $codes | grep -cvx 0)" 0
ok "each fault took one restart, and nothing else did" is "$(restarts)" "$k"

run $job N_GPU_EACH_NODE="$nodes" CHECKPOINT_DIR="$tmp/calm" METRICS_FILE="$tmp/calm.jsonl"
ok "the undisturbed run of $nodes workers on one node ends with 0" is "$rc $(steps_of calm.jsonl)" "0 $steps"
name=step-$(printf %08d "$steps")
ok "the weights and the state of the optimizer are those of the undisturbed run, bit for bit" is "$(weights "hit/$name")" "$(weights "calm/$name")"
ok "losses of all steps, too" is "$(last_of_each hit.jsonl | cksum)" "$(last_of_each calm.jsonl | cksum)"
done_testing
