#!/bin/bash
# test_balance — BALANCE=auto with two nodes, of which the second gets the processor for a third of the time (SIGSTOP, SIGCONT): it gets
# fewer micro-batches, and the losses are those of equal nodes within rounding. How much faster steps become: `make bench-balance`.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
job="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=64 VOCAB=256 CONTEXT=64 DATA=synthetic SEQ_LEN=64 BATCH_SIZE=1 GLOBAL_BATCH=16 LR_SCHEDULE=constant
    DEVICE=cpu SEED=5 LOG_LEVEL=info"

# slow_down — slows the worker of node 1 until it ends.
slow_down() {
    wait_for 60 has_worker_of_node_1 || return 1
    perl -e '$p = shift; while (kill "STOP", $p) { select undef, undef, undef, 0.06; kill "CONT", $p; select undef, undef, undef, 0.03 }' \
        "$(workers_of_node 1)" &
    slower=$!
}
has_worker_of_node_1() { [ -n "$(workers_of_node 1)" ]; }
# deals_less — the newest deal of node 0's log gives the second node fewer.
deals_less() {
    deal=$(grep -oE 'BALANCE=auto: micro-batches of each worker from now on.*' err.0 | tail -n 1)
    [[ $deal =~ ([0-9]+)\ of\ [^,]*,\ ([0-9]+)\ of ]] && [ "${BASH_REMATCH[2]}" -lt "${BASH_REMATCH[1]}" ]
}

# shows_deal — node 0's /status has fewer micro-batches for the second rank; all together are the step's.
shows_deal() { port=$served status_has '[.ranks[].micro_batches] | length == 2 and add == 16 and .[1] < .[0]'; }

served=$(free_port)
begin_node 1 N_NODES=2 $job STEPS=1000000 BALANCE=auto METRICS_FILE=metrics.jsonl
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$served" begin_node 0 N_NODES=2 $job STEPS=1000000 BALANCE=auto METRICS_FILE=metrics.jsonl
slow_down
wait_for 60 deals_less
ok "the slow node gets fewer: $deal" deals_less
ok "/status has the micro-batches of each rank" wait_for 60 shows_deal
wait_for 60 is_past $(($(last_step) + 20))
kill "$slower" 2>/dev/null
wait "$slower" 2>/dev/null
stop_nodes 2
ok "SIGTERM ends both" is "$codes" "143 143"
train_nodes 2 $job STEPS="$(jq -s length metrics.jsonl)" METRICS_FILE=equal.jsonl
# Training multiplies a difference by ten in eight steps, so the 20 steps from the first one on are compared.
first=$(paste <(jq .loss equal.jsonl) <(jq .loss metrics.jsonl) | awk '$1 != $2 { print NR; exit }')
for file in equal metrics; do head -n $((${first:-0} + 19)) $file.jsonl >$file.20; done
ok "losses differ by rounding only, from step ${first:-none} on" near equal.20 metrics.20 1e-5
done_testing
