#!/bin/bash
# test_stall — a rank stands still: it is the one that is replaced, not a rank that waits for it. One restart, and no other
# process is lost. TRIALS=50 tries longer, BUSY=n beside n processes that only compute, STALL_LIMIT is the STEP_TIMEOUT (one
# second on a quiet machine).
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
trials=${TRIALS:-2}
stall="$tiny STEPS=14 FAULT=stall@step=10:rank=1 STEP_TIMEOUT=${STALL_LIMIT:-$(secs 1)}"
for ((i = 0; i < ${BUSY:-0}; i++)); do
    (while :; do :; done) &
    started+=("$!")
done

# blamed FILE… — the ranks that were found hung, and how many restarts there were.
blamed() { echo $(cat "$@" | grep -oE 'worker rank [0-9]+ \(pid [0-9]+\) hung' | sort -u | cut -d' ' -f3) \
    restart $(cat "$@" | grep -oE 'restart [0-9]+ of' | sort -u | cut -d' ' -f2); }

one_node() { run $stall N_GPU_EACH_NODE=2 && is "$rc $(blamed err)" "0 1 restart 1"; }
two_nodes() {
    train_nodes 2 $stall
    cat err.0 err.1 >err
    is "$codes $(blamed err.0 err.1)" "0 0 1 restart 1"
}
for ((trial = 1; trial <= trials; trial++)); do
    ok "trial $trial, two workers of one node: only the rank that stood still is replaced" one_node
    ok "trial $trial, two nodes: only the rank that stood still is replaced" two_nodes
done
done_testing
