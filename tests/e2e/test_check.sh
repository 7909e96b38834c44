#!/bin/bash
# test_check — `convoy check`: alone, on several nodes, with a node that is missing, lost or wrong, stopped by a person; its reports
# and exit codes; CHECK=quick of train.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
does=check
mkdir -p host/sys/class/net/eth0 host/proc
printf 'MemTotal: %d kB\nMemAvailable: %d kB\n' 64000000 60000000 >host/proc/meminfo
echo up >host/sys/class/net/eth0/operstate
export DEVICE=cpu CHECK_ROOT=$PWD/host # what a machine is like is tested by unit/check/static.c: here it is not known
check() { # check SETTING… — one node, to the end
    rc=0
    "$convoy" check "$@" >out 2>err || rc=$?
}
points="GPU enumeration|worker enumeration|Slurm GRES|network interfaces|network topology|launch|communication between ranks|latency and \
bandwidth|collective function|collective performance|scheduling and priority|quality of service|checkpoint and restart|model \
distribution among ranks|training on one GPU|training on many GPUs of a node|training on many nodes|data partitioning among nodes"

# due N FILE — the codes of N nodes that the rows of FILE ask for: 1 for node 0 where any row fails, for another where one fails that
# is about it. What is measured while others use the cores is no fault of this test: it plants what must fail, and holds every code
# against the rows.
due() {
    jq -r --argjson n "$1" '[.rows[] | select(.verdict == "fail")] as $bad | [range($n) as $i | if ($i == 0 and ($bad | length) > 0) or
        any($bad[]; if .suspect != null then .suspect == $i else .node == $i or .peer == $i end) then 1 else 0 end] | join(" ")' "$2"
}
worst() { jq -r '[.rows[].verdict] | if any(. == "fail") then "fail" elif any(. == "warn") then "warn" else "pass" end' "$1"; }

# 1. Alone: no token, no network, no data.
check CHECK=quick CHECKPOINT_DIR=here REPORT=a.json,a.prom
ok "one node, quick: the code that the rows ask for" is $rc "$(due 1 a.json)"
ok "all eighteen points are rows" is "$(grep -cE "^  ($points)  +(pass|skipped|warn|fail|FAIL|WARN)" out)" 18
ok "the last line is the verdict" is "$(tail -n 1 out | grep -c "^verdict: $(worst a.json)")" 1
ok "nothing was left where checkpoints go" is "$(ls -A here 2>/dev/null)" ""
ok "JSON: a row for each, each with its verdict" holds a.json '.[0] | .schema == 1 and .nodes == 1 and (.rows | length) > 20 and all(.rows[]; .verdict | IN("pass", "warn", "fail", "skipped"))'
ok "Prometheus: names, labels and numbers only" is "$(grep -cvE '^(# (HELP|TYPE) convoy_check_|convoy_check_[a-z_]+(\{[^}]*\})? [-+0-9.e]+$)' a.prom)" 0
check CHECK=quick JSON=1
ok "JSON=1: on stdout" holds out '.[0].schema == 1'
check CHECK=off
ok "CHECK=off: 78" is "$rc $(grep -c 'CHECK=off (argument) is for `convoy train`' err)" "78 1"
check CHECK=quick REPORT=a.txt
ok "a report of no known kind: 78" is "$rc $(grep -c 'REPORT=a.txt' err)" "78 1"
echo "dear diary" >diary.json
check CHECK=quick REPORT=diary.json
ok "a report in the place of another file: 78, and it stays" \
    is "$rc $(grep -c 'REPORT=diary.json exists and is not a report' err) $(cat diary.json)" "78 1 dear diary"
check CHECK=quick OUT=diary.json
ok "... and a cluster file, too" is "$rc $(grep -c 'OUT=diary.json exists and is not a cluster' err) $(cat diary.json)" "78 1 dear diary"
check CHECK=quick REPORT=/proc/none/a.json
ok "a report that cannot be written: 74 or 66, with its name" is "$(grep -c '/proc/none' err)" 1

# 2. A baseline: written where there is none, read later, refused where it is none.
check CHECK=quick BASELINE=good.json REPORT=b.json
ok "BASELINE: written when there is none" is "$rc $(grep -c 'BASELINE=good.json did not exist and was written' err)" "$(due 1 b.json) 1"
check CHECK=quick BASELINE=good.json
ok "and compared with the next time" is "$(grep -c 'rows compared with BASELINE=good.json' err)" 1
echo '{' >bad.json
check CHECK=quick BASELINE=bad.json
ok "one that is not readable: 65" is "$rc $(grep -c 'bad.json' err)" "65 1"

# The machine as it was measured, for plans.
check CHECK=quick OUT=machine.json REPORT=c.json
ok "OUT: a cluster file" is "$rc $(jq -r 'type' machine.json)" "$(due 1 c.json) object"
try "which plan reads" 0 -- plan MODEL=gpt2 CLUSTER=machine.json

# 3. Three nodes in any order: one verdict, the table on node 0.
train_nodes 3 CHECK=quick REPORT=n.json
ok "three nodes: each ends as the rows say of it" is "$codes" "$(due 3 n.json)"
ok "all ranks computed the same sums" holds n.json '.[0] | all(.rows[]; .verdict != "fail" or .stage != "groups" or .unit != "")'
ok "node 0 has the table, the others a line" is "$(grep -c '^verdict: ' out.0) $(cat out.1 out.2 | wc -l)" "1 0"
ok "every node and every link was looked at" holds n.json '.[0] | ([.rows[] | select(.name == "host") | .node] | sort) == [0, 1, 2] and ([.rows[] | select(.name == "link latency")] | length) == 3'

# 4. A setting that differs, and a bit that differs: the node is named and drained, the third goes on.
for i in 0 1 2; do begin_node $i N_NODES=3 CHECK=quick REPORT=n.json $([ $i != 1 ] || echo LR=1e-5); done
finish_nodes 3
ok "another LR on node 1: it and node 0 end with 1" is "$codes ${rcs[1]}" "$(due 3 n.json) 1"
ok "and the row has both values" node_says 0 'node 1: settings: LR is 1e-05 here and 0.0003 on node 0'
train_nodes 3 CHECK=quick REPORT=n.json FAULT=flip@check:rank=2
ok "wrong sums of rank 2: it and node 0 end with 1" is "$codes ${rcs[2]}" "$(due 3 n.json) 1"
ok "and it alone is named for them" holds n.json '[.[0].rows[] | select(.verdict == "fail" and .stage == "groups") | .node] | unique == [2]'

# 5. A node that never comes: what was found here is shown all the same.
begin_node 0 N_NODES=2 CHECK=quick JOIN_TIMEOUT="$(secs 2)"
finish_node 0
ok "a missing node: 75" is "${rcs[0]}" 75
ok "named, beside what this node found" is "$(grep -c 'node 1 did not join' out.0) $(grep -cE '^  memory ' out.0)" "1 1"

# 6. A worker is killed while the others wait for it: 75 everywhere, with its rank. 7. Ctrl-C ends all, with what was found.
is_soaking() { node_said 0 'check: soak'; }
begin_nodes 2 BUDGET=500ms SOAK=1h
wait_for 60 is_soaking
kill -KILL $(workers_of_node 1)
finish_nodes 2
ok "a killed rank: 75 on all nodes" is "$codes" "75 75"
ok "and the sentence names it" node_says 0 'rank 1.*SIGKILL|node 1'
begin_nodes 2 BUDGET=500ms SOAK=1h
wait_for 60 is_soaking
stop_nodes 2 INT
ok "Ctrl-C: 130 on all nodes" is "$codes" "130 130"
ok "with what was found so far" is "$(grep -c 'link latency' out.0 | sed 's/[1-9].*/some/') $(grep -c '^verdict' out.0)" "some 1"

# 8. CHECK=quick of train: a good node trains, a bad one ends the job before its first step.
run $tiny STEPS=3 CHECK=quick
ok "train with CHECK=quick: trains" is "$rc $(grep -c 'check: .* passed, .* 0 failed' err) $(grep -c '^step ' out)" "0 1 3"
does=train
# Where others use the cores, rows that are measured may fail besides, so that node 0 is bad, too: the codes and the sentences are held
# against the rows. before N FILE — the codes of N nodes of train: 1 where a row about it fails, 75 elsewhere.
before() {
    jq -r --argjson n "$1" '[.rows[] | select(.verdict == "fail")] as $bad | [range($n) as $i | if any($bad[]; if .suspect != null then
        .suspect == $i else .node == $i or .peer == $i end) then 1 elif $bad == [] then 0 else 75 end] | join(" ")' "$2"
}
train_nodes 2 $tiny STEPS=3 CHECK=quick N_GPU_EACH_NODE=2 FAULT=flip@check:rank=3 REPORT=t.json
ok "a bad node: 1 there, 75 elsewhere" is "$codes ${rcs[1]}" "$(before 2 t.json) 1"
ok "it alone is named for wrong sums" holds t.json '[.[0].rows[] | select(.verdict == "fail" and .stage == "groups") | .node] | unique == [1]'
ok "no step was made" is "$(cat out.0 out.1 | grep -c '^step ')" 0
ok "both say what failed, and where" is "$(grep -lE 'the check failed: (nodes? [01]|the job)' err.0 err.1 | wc -l)" 2
done_testing
