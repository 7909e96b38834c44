#!/bin/bash
# check_many — NODES=64 nodes as processes of this machine pass the quick check within LIMIT=60 seconds, ROUNDS=1 times: from the first
# start to the last end. Part of no suite; `make check-64`.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
nodes=${NODES:-64} most=${LIMIT:-60} does=check
for round in $(seq "${ROUNDS:-1}"); do
    begin_ms=$(now_ms)
    begin_nodes "$nodes" CHECK=quick DEVICE=cpu REPORT=all.json
    finish_nodes "$nodes"
    elapsed_ms=$(($(now_ms) - begin_ms))
    echo "# $nodes nodes on $(nproc) processors: $elapsed_ms ms; load $(cut -d' ' -f1-3 /proc/loadavg); $(tail -n 1 out.0)"
    ok "round $round: $nodes nodes end with 0" is "$(printf '%s\n' $codes | grep -cvx 0)" 0
    ok "every node was looked at" holds all.json '.[0] | [.rows[] | select(.name == "host")] | length == '"$nodes"
    ok "nothing is blamed" holds all.json '.[0] | all(.rows[]; .verdict | IN("pass", "skipped"))'
    ok "within $most s" test $elapsed_ms -le $((most * 1000))
done
done_testing
