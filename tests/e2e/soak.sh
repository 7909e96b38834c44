#!/bin/bash
# soak — four nodes and the faults of machines: kill -9 of one process or of a whole node, a node that is stopped for a while,
# a cable that is pulled; node 0 included. KILLS, STOPS and CUTS set how often. SIZE=nano or mini uses the whole gpt2-nano or
# gpt2-mini instead of a model of a few thousand parameters. The gates are those of the project:
#   every fault heals; the final weights are bit for bit those of a run without faults; a process that was not hit stays;
#   3 s at most from the replacement's start to the next finished step (kill); detected in 7 s, with the right name (stop,
#     cut).
# MESH='PP=2 TP=2 TP_ACROSS_NODES=1' (or such) makes the four nodes stages and tensor groups, without which their ranks are replicas.
# With MESH='EXACT=layout ON_LOSS=shrink GLOBAL_BATCH=12' the others train on while a node is away. TRACE=1 traces what the nodes
# open during the kills: no file of a checkpoint is read. MEDIAN_MS and P95_MS are gates of the kills. KEEP=folder keeps the logs there.
# Prints TAP and the figures.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
mesh=${MESH:-}
unset MESH # which is a setting of its own
kills=${KILLS:-100} stops=${STOPS:-30} cuts=${CUTS:-30} nodes=4
[ "${SIZE:-tiny}" = nano ] && tiny="MODEL=gpt2-nano SEQ_LEN=16 LR=1e-3"
[ "${SIZE:-tiny}" = mini ] && tiny="MODEL=gpt2-mini SEQ_LEN=32 LR=1e-3 DATA=/usr/share/common-licenses"
job="$tiny LR_SCHEDULE=constant BATCH_SIZE=1 CHECKPOINT_EVERY=${EVERY:-100} MAX_RESTARTS=1000 JOIN_TIMEOUT=60s $mesh"
# gate MS — a limit of time: as it is on a machine of one's own, longer beside other tests (SCALED=1) by what they take.
gate() { if [ -n "${SCALED:-}" ]; then echo $(($1 * $(slow))); else echo "$1"; fi; }
step_now() { local s; s=$(tail -n 1 "$run_dir.jsonl" 2>/dev/null | grep -oE '"step":[0-9]+' | cut -c8-); echo "${s:-0}"; }
settings() { echo $job STEPS=$steps CHECKPOINT_DIR="$tmp/$run_dir" METRICS_FILE="$tmp/$run_dir.jsonl"; }
start_node() { in="${ns[$1]:+nsenter --net=/run/netns/${ns[$1]}}$traced" begin_node "$1" N_NODES=$nodes $(settings); }
declare -A ns=()
traced=

# begin_run NAME STEPS — all nodes, until they train.
begin_run() {
    run_dir=$1 steps=$2 best=0
    for i in $(seq 0 $((nodes - 1)) | shuf); do start_node "$i"; done
    pid=${node[0]}
    wait_for 30 goes_beyond 0
}
goes_beyond() { [ "$(step_now)" -gt "$1" ]; }
# all_pids — "I:PID …" of supervisors and workers.
all_pids() { for i in $(seq 0 $((nodes - 1))); do for p in ${node[$i]} $(workers_of_node "$i"); do echo "$i:$p"; done; done; }
# generation — the last generation that node 0 has logged; 0: none yet.
generation() {
    local g
    g=$(grep -oE ' generation [0-9]+: ' err.0 2>/dev/null | tr -dc '0-9\n' | sort -n | tail -n 1)
    echo "${g:-0}"
}
# wait_generation ABOVE SECONDS — until a later generation stands, and a step is done in it.
wait_generation() {
    local begin size now
    begin=$(now_ms)
    is_late() { [ $(($(now_ms) - begin)) -gt "$(gate $(($1 * 1000)))" ]; }
    while [ "$(generation)" -le "$1" ]; do
        is_late "$2" && return 1
        sleep 0.02
    done
    # A step that is done again first takes lines off the file.
    now=$(stat -c %s "$run_dir.jsonl") size=$now
    while [ "$now" -le "$size" ]; do
        is_late "$2" && return 1
        sleep 0.02
        size=$now now=$(stat -c %s "$run_dir.jsonl")
    done
}
# go_on — until the job is further than before the last fault: three recoveries without a new step end it, and node 0
# hears once a second how far the others are.
best=0
go_on() {
    wait_for 30 is_whole
    wait_for 30 goes_beyond "$best"
    sleep "1.$((RANDOM % 5))"
    best=$(step_now)
}
# part FILE PERCENT — of its numbers, the one that so many are not above.
part() { sort -n "$1" | awk -v percent="$2" '{ a[NR] = $1 } END { i = int((NR * percent + 99) / 100); print a[(i > 0) ? i : 1] }'; }
# most NAME FILE — the median and the worst of numbers, as a comment.
most() { echo "# $1: $(wc -l <"$2") times, median $(part "$2" 50), 95 % $(part "$2" 95), worst $(part "$2" 100) ms"; }
worst() { part "$1" 100; }
# is_whole — the last generation has all nodes: with ON_LOSS=shrink a node that was killed is back.
is_whole() { grep -oE ' generation [0-9]+: .*' err.0 | tail -n 1 | grep -q ": $nodes nodes"; }

# The run without faults, of as many steps as the one with faults will reach: known afterwards, so first the faults.
# 1. Kills: a random process of a random node; a supervisor takes its worker along and is started again.
: >kill.ms
: >windows
: >kill-worker.ms
: >kill-node.ms
: >kill-node0.ms
healed=0 kept=0
[ -z "${TRACE:-}" ] || traced=" $trace_opens $tmp/trace"
[ "$kills" -gt 0 ] && begin_run kills 100000000
for k in $(seq "$kills"); do
    go_on
    before=$(all_pids) at=$(generation) from=$(seconds_now)
    hit=$(echo "$before" | shuf -n 1) i=${hit%%:*} p=${hit#*:}
    kind=worker
    if [ "$p" = "${node[$i]}" ]; then
        kind=node
        [ "$i" = 0 ] && kind=node0
        kill -KILL "$p" 2>/dev/null
        wait "$p" 2>/dev/null
        cp "err.$i" "err.$i.before"
        start_node "$i"
    else
        kill -KILL "$p" 2>/dev/null
    fi
    begin=$(now_ms)
    if wait_generation "$at" 20; then
        healed=$((healed + 1))
        echo $(($(now_ms) - begin)) | tee -a kill.ms >>kill-$kind.ms
        echo "$from $(seconds_now)" >>windows
    else
        echo "# kill $k of $hit: not healed in 20 s"
    fi
    [ "$(echo "$before" | grep -v "^$i:" | sort)" = "$(all_pids | grep -v "^$i:" | sort)" ] && kept=$((kept + 1)) ||
        echo "# kill $k of $hit: before $(echo $before), after $(all_pids | tr '\n' ' ')"
done
if [ "$kills" -gt 0 ]; then
    end=$((RANDOM % nodes))
    case $mesh in *shrink*) end=0 ;; esac # another node would leave, and the others go on
    kill -TERM "${node[$end]}"
    finish_nodes $nodes
    ended=$codes last=$(newest_step kills)
    name=step-$(printf %08d "$last")
    weights_of_kills=$(cat kills/"$name"/model.safetensors kills/"$name"/optim_*.safetensors | cksum)
    if [ -n "$traced" ]; then
        ok "kill -9: no file of a checkpoint was opened for reading" is "$(checkpoint_reads windows trace.*)" 0
        seconds_now >control
        begin_run kills $((last + 2))
        finish_nodes $nodes
        echo "$(cat control) $(seconds_now)" >control
        ok "the traces show a checkpoint that is read" [ "$(checkpoint_reads control trace.*)" -gt 0 ]
        traced=
    fi
    ok "kill -9: $healed of $kills healed" is "$healed" "$kills"
    ok "kill -9: processes of the other nodes kept, $kept of $kills times" is "$kept" "$kills"
    most "kill -9 to the next finished step" kill.ms
    for kind in worker node node0; do
        [ ! -s kill-$kind.ms ] || most "  of these, of a $kind" kill-$kind.ms
    done
    [ -z "${KEEP:-}" ] || cp err.* kill*.ms "$KEEP"
    ok "kill -9: ${BACK_MS:-3000} ms at most from the replacement's start to the next finished step" [ "$(worst kill.ms)" -le "$(gate "${BACK_MS:-3000}")" ]
    for want in "${MEDIAN_MS:+50 $MEDIAN_MS}" "${P95_MS:+95 $P95_MS}"; do
        [ -z "$want" ] || ok "kill -9: ${want% *} % of them within ${want#* } ms" [ "$(part kill.ms "${want% *}")" -le "${want#* }" ]
    done
    ok "SIGTERM: 143 on all" is "$ended" "143 143 143 143"
    patience=9000 # tenths of a second
    begin_run calm "$last"
    finish_nodes $nodes
    patience=600
    ok "kill -9: the weights after $last steps are bit for bit those of a run without faults" \
        is "$weights_of_kills" "$(cat calm/"$name"/model.safetensors calm/"$name"/optim_*.safetensors | cksum)"
fi

# 2. Stops: a whole node is silent, though its connections stand. No process ends by it.
# seer I — the node whose log names node I: node 0, or another one for node 0 itself.
seer() { if [ "$1" = 0 ]; then echo 1; else echo 0; fi; }
# other_lost I LINES — lines in which the seer named another node, or another rank, than node I's (a node has one worker: rank I). Which ranks that one
# itself gave up, behind its cut, is its own view, and is not counted.
other_lost() { tail -n +$(($2 + 1)) "err.$(seer "$1")" | grep -E "was lost" | grep -vcE "node $1 |rank $1 was lost|rank $1 abandoned it, for "; }
# fault KIND K NODE BEGIN END — one stop or cut: that node alone is named, in what time; it heals, and all processes stay.
fault() {
    local kind=$1 k=$2 i=$3 at before lines begin others is_right=0
    at=$(generation) before=$(all_pids) lines=$(wc -l <"err.$(seer "$i")")
    begin=$(now_ms)
    $4
    is_named() { tail -n +$((lines + 1)) "err.$(seer "$i")" | grep -qE "node $i .*was lost|node $i was lost"; }
    wait_for 9 is_named && is_right=1
    echo $(($(now_ms) - begin)) >>"$kind.ms"
    $5
    wait_generation "$at" 20 && healed=$((healed + 1)) || echo "# $kind $k of node $i: not healed"
    others=$(other_lost "$i" "$lines")
    [ "$others" = 0 ] || { is_right=0; echo "# $kind $k of node $i: another was named"; }
    named=$((named + is_right))
    [ "$before" = "$(all_pids)" ] && kept=$((kept + 1)) || echo "# $kind $k of node $i: before $(echo $before), after $(all_pids | xargs)"
}
# faults KIND N BEGIN END — the run of them.
faults() {
    : >"$1.ms"
    named=0 healed=0 kept=0
    begin_run "$1s" 100000000
    for k in $(seq "$2"); do
        go_on
        i=$((RANDOM % nodes))
        fault "$1" "$k" "$i" "$3" "$4"
    done
    kill -TERM "${node[0]}"
    finish_nodes $nodes
    most "$1 to the verdict" "$1.ms"
    ok "$1: $named of $2 named right" is "$named" "$2"
    ok "$1: known in 7 s" [ "$(worst "$1.ms")" -le "$(gate 7000)" ]
    ok "$1: $healed of $2 healed" is "$healed" "$2"
    ok "$1: all processes kept, $kept of $2 times" is "$kept" "$2"
}
halt() { kill -STOP ${node[$i]} $(workers_of_node "$i"); }
go() { kill -CONT ${node[$i]} $(workers_of_node "$i"); }
[ "$stops" -gt 0 ] && faults stop "$stops" halt go

# 3. Cuts: each node in a network namespace of its own on one bridge; the cable of one is pulled, then put back.
leave_net() {
    for i in 0 1 2 3; do ip netns del "convoy$$-$i" 2>/dev/null; done
    ip link del "cvb$$" 2>/dev/null
    cleanup
}
inside() { nsenter --net="/run/netns/convoy$$-$i" $1; } # not ip -n, which a chroot refuses
make_net() {
    ip link add "cvb$$" type bridge 2>/dev/null && ip link set "cvb$$" up || return 1
    trap leave_net EXIT
    for i in 0 1 2 3; do
        ip netns add "convoy$$-$i" && ip link add "cv$$-$i" type veth peer name eth0 netns "convoy$$-$i" || return 1
        ip link set "cv$$-$i" master "cvb$$" up && inside "ip addr add 10.77.0.$((i + 1))/24 dev eth0" &&
            inside "ip link set eth0 up" && inside "ip link set lo up" || return 1
        ns[$i]="convoy$$-$i"
    done
}
if [ "$cuts" -gt 0 ] && ! make_net; then
    skip "cut links" "network namespaces cannot be made here (needs root)"
    cuts=0
fi
meeting="MASTER_ADDR=10.77.0.1 MASTER_PORT=$port"
pull() { ip link set "cv$$-$i" down; }
plug() { ip link set "cv$$-$i" up; }
[ "$cuts" -gt 0 ] && faults cut "$cuts" pull plug
done_testing
