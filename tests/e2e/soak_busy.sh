#!/bin/bash
# soak_busy — twice the work that one machine can do: a job of NODES nodes, with default settings, trains beside LOAD
# processes that only compute. For MINUTES no node may be reported lost. Then one node is killed and must be found, and
# another one is stopped and must be found.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
minutes=${MINUTES:-30} load=${LOAD:-20} nodes=${NODES:-2}
nodes_n=$nodes
for ((k = 0; k < load; k++)); do
    (while :; do :; done) &
    started+=("$!")
done
job="MODEL=gpt2-nano SEQ_LEN=64 DATA=synthetic STEPS=100000000 CHECKPOINT_DIR=$tmp/ck CHECKPOINT_EVERY=200 MAX_RESTARTS=1000"
begin_nodes "$nodes_n" $job
trains() { is_past "$1"; }
wait_for 300 trains 2
losses_of() { cat err.* | grep -cE ' (was lost|hung)|its connections? .*closed|restart [0-9]+ of'; }
late() { cat err.* | grep -cE 'has been silent for'; }
before=$(grep -oE '^step [0-9]+' out.0 | tail -n 1 | cut -c6-)
sleep $((minutes * 60))
after=$(grep -oE '^step [0-9]+' out.0 | tail -n 1 | cut -c6-)
echo "# load $(cut -d' ' -f1-3 /proc/loadavg), $(grep some /proc/pressure/cpu 2>/dev/null)"
echo "# steps ${before:-0} to ${after:-0}; warnings of silence: $(late)"
ok "$minutes minutes beside $load busy processes: nobody was lost" is "$(losses_of)" 0
[ "$(losses_of)" = 0 ] || grep -hE ' (was lost|hung)|restart [0-9]+ of' err.* | sed 's/^/# /' | head
ok "and all trained" [ "${after:-0}" -gt "${before:-0}" ]

kill -KILL "${node[1]}"
begin_ms=$(now_ms)
is_found() { node_said 0 'node 1 .*was lost: its connections? '; }
wait_for 30 is_found
echo "# a killed node was found after $(($(now_ms) - begin_ms)) ms"
ok "a node that is killed is found" is_found
begin_node 1 N_NODES="$nodes_n" $job
generation_is() { grep -qE " generation $1: " err.0; }
wait_for 120 generation_is 2
kill -STOP "${node[1]}" $(workers_of_node 1)
begin_ms=$(now_ms)
is_silent() { node_said 0 'node 1 .*was lost: silent for'; }
wait_for 40 is_silent
echo "# a stopped node was found after $(($(now_ms) - begin_ms)) ms"
ok "a node that is stopped is found" is_silent
kill -CONT "${node[1]}"
done_testing
