#!/bin/bash
# test_balance — BALANCE=auto with two nodes, of which the second gets the processor for a third of the time (SIGSTOP, SIGCONT): after
# ten steps it has fewer micro-batches, steps are faster, and losses are those of equal nodes within rounding.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
job="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=64 VOCAB=256 CONTEXT=64 DATA=synthetic SEQ_LEN=64 BATCH_SIZE=1 GLOBAL_BATCH=16 STEPS=32
    DEVICE=cpu SEED=5 LOG_LEVEL=info"

# slow_down — slows the worker of node 1 until it ends.
slow_down() {
    wait_for 60 has_worker_of_node_1 || return 1
    perl -e '$p = shift; while (kill "STOP", $p) { select undef, undef, undef, 0.06; kill "CONT", $p; select undef, undef, undef, 0.03 }' \
        "$(workers_of_node 1)" &
    slower=$!
}
has_worker_of_node_1() { [ -n "$(workers_of_node 1)" ]; }
# ms_of FROM TO — the median milliseconds of steps FROM to TO.
ms_of() { jq -r "select(.step >= $1 and .step <= $2) | .step_ms" metrics.jsonl | sort -n | awk '{ a[NR] = $1 } END { print a[int((NR + 1) / 2)] }'; }

train_nodes 2 $job N_NODES=2 METRICS_FILE=equal.jsonl
ok "two equal nodes train" is "$codes" "0 0"
begin_nodes 2 $job BALANCE=auto METRICS_FILE=metrics.jsonl
slow_down
finish_nodes 2
kill "$slower" 2>/dev/null
wait "$slower" 2>/dev/null
ok "with a slow one, too" is "$codes" "0 0"
ok "node 0 logs the new deal" node_says 0 'BALANCE=auto: micro-batches of each worker from now on'
deal=$(grep -oE 'the time of one: [0-9]+ of .*' err.0 | tail -n 1)
first=$(sed -E 's/.*: ([0-9]+) of .*/\1/' <<<"$deal") second=$(sed -E 's/.*, ([0-9]+) of .*/\1/' <<<"$deal")
ok "the slow node has fewer: $deal" [ "${second:-16}" -lt "${first:-0}" ]
before=$(ms_of 4 10) after=$(ms_of 14 32)
ok "steps are faster: $before, then $after ms" awk -v b="$before" -v a="$after" 'BEGIN { exit !(a < 0.9 * b) }'
ok "losses differ by rounding only" near equal.jsonl metrics.jsonl 1e-5
done_testing
