#!/bin/bash
# soak — `convoy rehearse` with four nodes and the faults of machines by the dozen: kill -9 of one process or of a whole node, a node that
# stands still, a cable that is pulled; node 0 included. KILLS, STOPS and CUTS set how often. SIZE=nano or mini uses the whole gpt2-nano or
# gpt2-mini instead of a model of a few thousand parameters. The gates are those of the project:
#   every fault heals; the weights are bit for bit those of a run without faults; a process that was not hit stays; nobody else is named;
#   3 s at most to the next finished step (kill); detected in 7 s (stop, cut).
# MESH='PP=2 TP=2 TP_ACROSS_NODES=1' (or such) makes the four nodes stages and tensor groups, without which their ranks are replicas.
# With MESH='EXACT=layout ON_LOSS=shrink GLOBAL_BATCH=12' the others train on while a node is away. TRACE=1 traces what the nodes
# open during the kills: no file of a checkpoint is read. MEDIAN_MS and P95_MS are gates of the kills. KEEP=folder keeps the reports there.
# Prints TAP and the figures.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
mesh=${MESH:-}
unset MESH # which is a setting of its own
[ "${SIZE:-tiny}" = nano ] && tiny="MODEL=gpt2-nano SEQ_LEN=16 LR=1e-3"
[ "${SIZE:-tiny}" = mini ] && tiny="MODEL=gpt2-mini SEQ_LEN=32 LR=1e-3 DATA=/usr/share/common-licenses"
job="$tiny LR_SCHEDULE=constant BATCH_SIZE=1 CHECKPOINT_EVERY=${EVERY:-100} JOIN_TIMEOUT=60s N_NODES=4 $mesh"
# gate MS — a limit of time: as it is on a machine of one's own, longer beside other tests (SCALED=1) by what they take.
gate() { if [ -n "${SCALED:-}" ]; then echo $(($1 * $(slow))); else echo "$1"; fi; }
# faults NAME N FAULT_MIX — rehearsals until there were N faults; their reports are in NAME.json.
faults() {
    local name=$1 want=$2 made=0 tries seed=$RANDOM
    : >"$name.json"
    for ((tries = 0; tries < 20 && made < want; tries++)); do
        $traced "$convoy" rehearse $job CHECKPOINT_DIR="$tmp/run" FAULT_MIX="$3" FAULT_EVERY=2s DURATION=$(((want - made) * 2 + 4))s SEED=$((seed + tries)) JSON=1 \
            >>"$name.json" 2>err || tail -n 3 err | sed 's/^/# err: /'
        made=$(jq -s '[.[].faults[].made] | add // 0' "$name.json")
    done
    jq -r '.faults[] | select(.made > 0) | "# \(.kind): \(.made), detected after \(.detect_ms | tostring), recovered after \(.recover_ms | tostring) ms"' "$name.json"
    ok "$name: $made faults, all healed, with the weights of a run without" holds "$name.json" \
        'length > 0 and all(.[]; .problem == null and .weights.equal and .samples_lost == 0 and .faulty.unexpected == 0 and all(.faults[]; .made == .healed))'
    ok "$name: as many as were asked for" [ "$made" -ge "$want" ]
    ok "$name: processes of the others kept" holds "$name.json" 'all(.[].faults[]; .made == .kept)'
    ok "$name: nobody else was named" holds "$name.json" 'all(.[].faults[]; .named_wrong == 0) and (([.[].faults[].made] | add) < 8 or any(.[].faults[]; .named_right > 0))' # node 0 does not judge itself
    [ -z "${KEEP:-}" ] || cp "$name.json" "$KEEP"
}
worst_within() { holds "$1.json" "[.[].faults[].$2 // 0] | max <= $3"; } # worst_within NAME MEMBER MS
traced=
[ -z "${TRACE:-}" ] || traced="strace -ff -ttt -qq --seccomp-bpf -e trace=open,openat,openat2 -o $tmp/trace"
if [ "${KILLS:-100}" -gt 0 ]; then
    faults kills "${KILLS:-100}" kill,node
    ok "kills: ${BACK_MS:-3000} ms at most to the next finished step" worst_within kills recover_ms.worst "$(gate "${BACK_MS:-3000}")"
    [ -z "${MEDIAN_MS:-}" ] || ok "kills: median within $MEDIAN_MS ms" worst_within kills recover_ms.median "$MEDIAN_MS"
    [ -z "${P95_MS:-}" ] || ok "kills: 95 % within $P95_MS ms" worst_within kills recover_ms.p95 "$P95_MS"
    if [ -n "$traced" ]; then
        echo "0 $(seconds_now)" >windows
        ok "kills: no file of a checkpoint was opened for reading" is "$(checkpoint_reads windows trace.*)" 0
        run $job N_NODES=1 STEPS=2 CHECKPOINT_DIR=control
        ${traced/trace$/control.trace} "$convoy" train $quiet $job N_NODES=1 STEPS=4 CHECKPOINT_DIR=control >out 2>err
        ok "the traces show a checkpoint that is read" [ "$(checkpoint_reads <(echo "0 $(seconds_now)") control.trace.*)" -gt 0 ]
        traced=
    fi
fi
if [ "${STOPS:-30}" -gt 0 ]; then
    faults stops "${STOPS:-30}" hang
    ok "stops: known in 7 s" worst_within stops detect_ms.worst "$(gate 7000)"
fi
if [ "${CUTS:-30}" -gt 0 ] && unshare -n true 2>err; then
    faults cuts "${CUTS:-30}" cut
    ok "cuts: known in 7 s" worst_within cuts detect_ms.worst "$(gate 7000)"
elif [ "${CUTS:-30}" -gt 0 ]; then
    skip "cuts" "network namespaces cannot be made here (needs root)"
fi
done_testing
