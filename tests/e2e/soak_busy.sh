#!/bin/bash
# soak_busy — twice the work that one machine can do: a job of NODES nodes, with default settings, trains beside LOAD
# processes that only compute. For MINUTES no node may be reported lost; then for as long nodes are killed and stopped, and must be found.
. "$(dirname "$0")/lib.sh"
minutes=${MINUTES:-30} load=${LOAD:-20}
for ((k = 0; k < load; k++)); do
    (while :; do :; done) &
    started+=("$!")
done
"$convoy" rehearse MODEL=gpt2-nano SEQ_LEN=64 CHECKPOINT_DIR="$tmp/ck" CHECKPOINT_EVERY=20 N_NODES="${NODES:-2}" DURATION="${minutes}m" FAULT_EVERY=30s \
    FAULT_MIX=node,hang JSON=1 >out 2>err
echo "# load $(cut -d' ' -f1-3 /proc/loadavg), $(grep some /proc/pressure/cpu 2>/dev/null)"
jq -r '"# steps \(.calm.steps), with faults \(.faulty.steps)", (.faults[] | select(.made > 0) | "# \(.kind): found after \(.detect_ms | tostring) ms")' out
ok "$minutes minutes beside $load busy processes: nobody was lost, and all trained" holds out '.[0].calm | .unexpected == 0 and .steps > 0'
ok "a node that is killed or stopped is found, and no other is lost" holds out \
    '.[0] | .problem == null and .faulty.unexpected == 0 and all(.faults[] | select(.kind | IN("node", "hang")); .made > 0 and .made == .healed and .named_wrong == 0)'
done_testing
