#!/bin/bash
# train_many — `convoy rehearse` with NODES=64 nodes as processes of this machine: for DURATION=60s without faults, then with each of
# FAULTS=kill,node,hang once or more: kill -9 of a worker, kill -9 of a whole node that is started again, a node that stands still. The
# weights are, bit for bit, those of a run of as many workers on one node. Part of no suite; `make train-64`.
nodes=${NODES:-64} duration=${DURATION:-60}
. "$(dirname "$0")/lib.sh"
job="$tiny LR_SCHEDULE=constant BATCH_SIZE=1 CHECKPOINT_EVERY=${EVERY:-5} STEP_TIMEOUT=$(secs 60)"
"$convoy" rehearse $job N_NODES="$nodes" CHECKPOINT_DIR="$tmp/run" DURATION="${duration}s" FAULT_EVERY=$((duration / 3))s FAULT_MIX="${FAULTS:-kill,node,hang}" JSON=1 >out 2>err
jq -r '"# \(.nodes) nodes: a step \(.calm.step_ms | round) ms", (.faults[] | select(.made > 0) | "# \(.kind): detected after \(.detect_ms.worst), next step after \(.recover_ms.worst) ms")' out
ok "$nodes nodes: each fault heals by one restart, with the weights of a run without" holds out \
    '.[0] | .problem == null and .faulty.unexpected == 0 and .weights.equal and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed and .named_wrong == 0)'
want=$(jq -r '"\(.weights.step) \(.weights.calm)"' out)
run $job N_GPU_EACH_NODE="$nodes" STEPS="${want% *}" CHECKPOINT_DIR=one
ok "the weights are those of $nodes workers on one node, bit for bit" is \
    "$(jq -r --argjson step "${want% *}" 'select(.checkpoint == $step) | .weights' one/ledger.jsonl)" "${want#* }"
done_testing
