# nodes_lib — several nodes on one machine, for tests: each is a process tree of its own, with files out.I and err.I. Source
# it after lib.sh.
port=$(free_port)
export JOB_TOKEN=a-secret-for-these-tests-only
declare -A node
declare -A rcs
meeting="MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"

# begin_node I SETTING… — node I; $does: the command, `train` if it is not set; $in: what to run it in ("" or "nsenter --net=/run/netns/NAME", which unlike ip netns
# exec mounts nothing, so that it works in a chroot).
begin_node() {
    local i=$1
    shift
    : >"out.$i" >"err.$i"
    ${in:-} "$convoy" ${does:-train} $quiet $meeting NODE_ID=$i "$@" >out.$i 2>err.$i &
    track
    node[$i]=$pid
}
# begin_nodes N SETTING… — all of them, in any order.
begin_nodes() {
    local n=$1
    shift
    for i in $(seq 0 $((n - 1)) | shuf); do begin_node "$i" N_NODES=$n "$@"; done
    pid=${node[0]}
}
# finish_node I — its exit code in rcs[I].
finish_node() {
    local left=$((${patience:-600} * $(slow)))
    while ! is_gone "${node[$1]}" && [ $((left -= 1)) -gt 0 ]; do sleep 0.1; done
    [ $left -gt 0 ] || { echo "# node $1 does not end"; kill -KILL "${node[$1]}"; }
    rcs[$1]=0
    wait "${node[$1]}" 2>/dev/null || rcs[$1]=$?
}
# finish_nodes N — "0 0 …" in $codes.
finish_nodes() {
    codes=
    for i in $(seq 0 $(($1 - 1))); do
        finish_node "$i"
        codes="$codes${codes:+ }${rcs[$i]}"
    done
}
# train_nodes N SETTING… — all of them, to their end. stop_nodes N [SIGNAL [I]] — TERM, or this one, to node 0, or node I; all end.
train_nodes() {
    begin_nodes "$@"
    finish_nodes "$1"
}
stop_nodes() {
    kill "-${2:-TERM}" "${node[${3:-0}]}"
    finish_nodes "$1"
}
node_says() { grep -qE -- "$2" "err.$1" || { echo "# node $1 does not say '$2'"; tail -n 4 "err.$1" | sed "s/^/# err.$1: /"; false; }; }
node_said() { grep -qE -- "$2" "err.$1"; }
node_says_times() { [ "$(grep -cE -- "$2" "err.$1")" -ge "$3" ]; } # node_says_times I REGEX N
workers_of_node() { workers_of "${node[$1]}"; }
last_step() { grep -oE '^step [0-9]+' out.0 2>/dev/null | tail -n 1 | cut -c6-; }
kill_node() { kill -KILL "${node[$1]}" $(workers_of "${node[$1]}") 2>/dev/null; wait "${node[$1]}" 2>/dev/null; } # with its workers, as if its power went
is_past() { local s; s=$(last_step); [ "${s:-0}" -ge "$1" ]; } # is_past STEP

# Jobs with ON_LOSS=shrink whose leader changes. Lines of steps are printed by the lowest node that trains.
steady="$tiny BATCH_SIZE=1 GLOBAL_BATCH=12 EXACT=layout LR_SCHEDULE=constant" # STEPS decides no result
step_of() { grep -oE '^step [0-9]+' "out.$1" 2>/dev/null | tail -n 1 | cut -c6-; }
is_past_on() { local s; s=$(step_of "$1"); [ "${s:-0}" -ge "$2" ]; } # is_past_on NODE STEP
goes_on_at() { # goes_on_at NODE N — N more steps than now, in the lines of this node
    local at
    at=$(step_of "$1")
    wait_for 30 is_past_on "$1" $((${at:-0} + $2))
}
same_as_calm() { # same_as_calm NAME [LOCAL] — (LOCAL: the ledger has only the steps of this node) the last checkpoint has the weights of a calm run of one worker
    local at
    at=$(newest_step "$1")
    if [ $# = 1 ]; then
        "$convoy" verify "$1" JSON=1 >out 2>err
        ok "$1: the ledger has every step" holds out ".[0] | .problem == null and .first_step == 1 and .last_step == $at"
    fi
    run $steady STEPS="$at" CHECKPOINT_DIR="$1-calm"
    ok "$1: the weights after $at steps are those of a calm worker" is "$(weights "$1/$(newest "$1")")" "$(weights "$1-calm/$(newest "$1-calm")")"
}

# What nodes open, where strace is there: begin_node with in="$trace_opens FILE", a file for each thread. As a child's child, so
# that a node keeps its process id.
trace_opens="strace -D -ff -ttt -qq --seccomp-bpf -e trace=open,openat,openat2 -o"
# checkpoint_reads WINDOWS TRACE… — how often files of checkpoints were opened for reading within the windows, lines of `FROM TO` in
# seconds. A thread that saves a checkpoint looks at those that are there, once its files are on the disk: not within 5 s after it wrote.
checkpoint_reads() {
    awk 'FILENAME == ARGV[1] { from[++n] = $1; to[n] = $2; next }
        FNR == 1 { wrote = 0 }
        /\/\.tmp-.*O_WRONLY/ { wrote = $1 }
        /"(manifest\.json|[a-z_0-9]+\.safetensors)", O_RDONLY/ && $1 - wrote > 5 { for (i = 1; i <= n; i++) reads += $1 >= from[i] && $1 <= to[i] }
        END { print reads + 0 }' "$@"
}
seconds_now() { date +%s.%N; }

# links_run NAMESPACE… — until the kernel calls eth0 of each running, which takes it a second.
link_runs() { nsenter --net="/run/netns/$1" ip -o link show eth0 | grep -q ' state UP '; }
links_run() {
    local pid=$$ ns
    for ns; do wait_for 10 link_runs "$ns"; done
}
# make_net — two network namespaces, $a with 10.0.0.1 and $b with 10.0.0.2 on a cable, eth0; they go when the test ends.
leave_net() {
    ip netns del $a 2>/dev/null
    ip netns del $b 2>/dev/null
    cleanup
}
make_net() {
    trap leave_net EXIT
    ip netns add $a && ip netns add $b && ip link add eth0 netns $a type veth peer name eth0 netns $b || return 1
    ip -n $a addr add 10.0.0.1/24 dev eth0 && ip -n $b addr add 10.0.0.2/24 dev eth0
    for ns in $a $b; do ip -n $ns link set eth0 up && ip -n $ns link set lo up || return 1; done
}
