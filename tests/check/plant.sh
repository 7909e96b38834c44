#!/bin/bash
# plant — `convoy check` on eight nodes in network namespaces, one of which, or one link of which, is bad: it must be named, and
# nothing else. And on eight good ones beside busy processes: nothing may be named. Needs root.
#   tests/check/plant.sh [PLANTS [CLEAN [SEED]]]     so many random plantings (default 9) and clean runs (default 4)
# KIND=delay (rate, loss, cpu, disk, clock, gpus, flip, memlock) plants that alone; LOAD=4 busy processes in clean runs; KEEP=1 keeps
# the reports; DEPTH="BUDGET=60s" another depth than CHECK=quick BUDGET=20s. Prints a line for each run; ends with 1 when one was wrong.
set -u
export LC_ALL=C NO_COLOR=1 JOB_TOKEN=a-secret-for-these-tests-only STATUS_PORT=0
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/${BUILD:-build}
convoy=$build/convoy
cable=$build/tests/check/cable
plants=${1:-9} clean=${2:-4} seed=${3:-1} load=${LOAD:-4}
kinds=(delay rate loss cpu disk clock gpus flip memlock)
n=8 rate_mbit=${RATE:-200} depth=${DEPTH:-CHECK=quick BUDGET=20s}
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-plant-XXXXXX")
tag=cp$$
group=/sys/fs/cgroup/cpu/convoy-$tag
pids=() busy=()
RANDOM=$seed

ns() { echo "$tag-$1"; }
in_ns() { local i=$1; shift; nsenter --net="/run/netns/$(ns "$i")" "$@"; }
stop() { for p in "$@"; do kill "$p" 2>/dev/null; done; for p in "$@"; do wait "$p" 2>/dev/null; done; }
leave() {
    stop "${pids[@]}" "${busy[@]}"
    for i in hub $(seq 0 $((n - 1))); do ip netns del "$(ns $i)" 2>/dev/null; done
    mountpoint -q "$dir/full" && umount "$dir/full"
    [ ! -d "$group" ] || rmdir "$group"
    [ -n "${KEEP:-}" ] || rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM
die() { echo "plant: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || die "network namespaces need root"
[ -x "$convoy" ] && [ -x "$cable" ] || die "build first: make $build/convoy $build/tests/check/cable"

# Eight nodes on one switch, 10.77.0.1 to .8.
make_net() {
    ip netns add "$(ns hub)" && ip -n "$(ns hub)" link add sw type bridge && ip -n "$(ns hub)" link set sw up || die "no namespaces here"
    for i in $(seq 0 $((n - 1))); do
        ip netns add "$(ns $i)"
        ip link add eth0 netns "$(ns $i)" type veth peer name "p$i" netns "$(ns hub)"
        ip -n "$(ns hub)" link set "p$i" master sw up
        ip -n "$(ns $i)" addr add "10.77.0.$((i + 1))/24" dev eth0
        ip -n "$(ns $i)" link set eth0 up
        ip -n "$(ns $i)" link set lo up
    done
    sleep 1.5 # until the kernel calls new links running
}
limit() { tc -n "$1" qdisc replace dev "$2" root tbf rate "$3mbit" burst 64kb latency 200ms; } # limit NAMESPACE DEVICE MBIT
# limit_all MBIT — each node's cable, both ways; 0: no limit.
limit_all() {
    for i in $(seq 0 $((n - 1))); do
        if [ "$1" = 0 ]; then
            tc -n "$(ns $i)" qdisc del dev eth0 root 2>/dev/null
            tc -n "$(ns hub)" qdisc del dev "p$i" root 2>/dev/null
        else
            limit "$(ns $i)" eth0 "$1" && limit "$(ns hub)" "p$i" "$1" || die "no tbf here"
        fi
    done
}
# lay A B DELAY_US MBIT LOSS — a cable of their own between two nodes, which the other nodes do not use.
lay() {
    : >"$dir/cable"
    "$cable" "$(ns "$1")" $(($1 + 1)) "$(ns "$2")" $(($2 + 1)) "$3" "$4" "$5" "$seed" >"$dir/cable" &
    pids+=("$!")
    for _ in $(seq 100); do grep -q ready "$dir/cable" && break; sleep 0.05; done
    for p in "$1 $2" "$2 $1"; do
        set -- $p
        ip -n "$(ns "$1")" link set own up
        ip -n "$(ns "$1")" route add "10.77.0.$(($2 + 1))/32" dev own src "10.77.0.$(($1 + 1))"
    done
}
# What a row that fails must be about: "NAME-REGEX NODE PEER"; node and peer of a link in either order.
plant() {
    bad=$((RANDOM % n)) peer=$(((bad + 1 + RANDOM % (n - 1)) % n))
    limit_all 0
    extra=() wrap=()
    case $1 in
        delay) lay $bad $peer 5000 0 0; want="link latency|link bandwidth" ;;
        loss) lay $bad $peer 0 0 20; want="link retransmissions|link bandwidth|link latency" ;;
        rate)
            limit_all "$rate_mbit"
            lay $bad $peer 0 $((rate_mbit / 2)) 0
            want="link bandwidth" ;;
        cpu)
            mkdir -p "$group" && echo 20000 >"$group/cpu.cfs_quota_us" || die "no cgroup v1 for the processor here"
            wrap=(bash -c "echo \$\$ >$group/cgroup.procs; exec \"\$@\"" plant); peer=-1; want="cpu quota|core .*|product .*" ;;
        disk)
            mkdir -p "$dir/full"
            mountpoint -q "$dir/full" || mount -t tmpfs -o size=64k none "$dir/full"
            head -c 70000 /dev/zero >"$dir/full/filled" 2>/dev/null
            extra=(CHECKPOINT_DIR="$dir/full"); peer=-1; want="disk.*" ;;
        clock) wrap=(env LD_PRELOAD="$build/tests/check/clock_shift.so" CLOCK_SHIFT_S=7); want="clock skew"; peer=-1 ;;
        gpus)
            "$top/tests/check/trees/unpack.pl" "$dir/root7" gpu-off-bus >/dev/null || die "no tree of a node with 7 of 8 GPUs"
            extra=(CHECK_ROOT="$dir/root7"); peer=-1; want="gpus" ;;
        flip) extra=("FAULT=flip@check:rank=$bad"); peer=-1; want="all_reduce|sums|collective.*" ;;
        memlock)
            "$top/tests/check/trees/unpack.pl" "$dir/memlock" memlock >/dev/null || die "no tree of a node with little memlock"
            extra=(CHECK_ROOT="$dir/memlock"); peer=-1; want="memlock" ;;
    esac
}
lift() {
    stop "${pids[@]}"
    pids=()
    for i in $(seq 0 $((n - 1))); do ip -n "$(ns $i)" link del own 2>/dev/null; done
}
# check — all nodes; the settings of the planting on node $bad alone, but FAULT, on which all agree.
check() {
    local port=$((20000 + RANDOM % 20000)) i all=()
    nodes=()
    case "${extra[*]}" in FAULT*) all=("${extra[@]}") ;; esac
    for i in $(seq 0 $((n - 1)) | shuf); do
        local mine=() first=()
        if [ "$i" = "$bad" ]; then mine=("${extra[@]}") first=("${wrap[@]}"); fi
        mkdir -p "$dir/ckpt$i"
        in_ns "$i" "${first[@]}" "$convoy" check $depth DEVICE=cpu N_GPU_EACH_NODE=1 N_NODES=$n NODE_ID=$i MASTER_ADDR=10.77.0.1 \
            MASTER_PORT=$port CHECKPOINT_DIR="$dir/ckpt$i" REPORT="$dir/report$i.json" \
            "${all[@]}" "${mine[@]}" >"$dir/out.$i" 2>"$dir/err.$i" &
        nodes[$i]=$!
    done
    codes=
    for i in $(seq 0 $((n - 1))); do wait "${nodes[$i]}"; codes="$codes${codes:+ }$?"; done
}
rows() { jq -r --arg v "$1" '.rows[] | select(.verdict == $v) | "\(.name)\t\(.node)\t\(.peer)\t\(.subject)"' "$dir/report0.json"; }
failed=0
# judge KIND — every failing row must be about what was planted, and there must be one.
judge() {
    local good=0 wrong=0 line
    while IFS=$'\t' read -r name node other subject; do
        local is_it=0
        [[ $name =~ ^($want)$ ]] && if [ "$peer" = -1 ]; then
            { [ "$node" = "$bad" ] || [ "$other" = "$bad" ]; } && is_it=1
        else
            { [ "$node $other" = "$bad $peer" ] || [ "$node $other" = "$peer $bad" ]; } && is_it=1
        fi
        if [ $is_it = 1 ]; then good=$((good + 1)); else wrong=$((wrong + 1)); line="$name, node $node, peer $other, $subject"; fi
    done < <(rows fail)
    local verdict=ok
    if [ $good = 0 ] || [ $wrong != 0 ]; then verdict=WRONG; failed=$((failed + 1)); fi
    echo "$verdict $1 node $bad peer $peer: $good rows right, $wrong wrong${line:+ ($line)}; codes $codes; ${took} s"
}

make_net
for k in $(seq 1 "$plants"); do
    kind=${KIND:-${kinds[RANDOM % ${#kinds[@]}]}}
    plant "$kind"
    begin=$SECONDS
    check
    took=$((SECONDS - begin))
    judge "$kind"
    [ -z "${KEEP:-}" ] || cp "$dir/report0.json" "$dir/plant-$k-$kind.json"
    lift
done
bad=-1 peer=-1 extra=() wrap=()
limit_all 0
for _ in $(seq "$load"); do [ "$clean" = 0 ] || { (while :; do :; done) & busy+=("$!"); }; done
for k in $(seq 1 "$clean"); do
    begin=$SECONDS
    check
    alarms=$(rows fail | wc -l)
    [ "$alarms" = 0 ] && [ "$codes" = "0 0 0 0 0 0 0 0" ] && verdict=ok || { verdict=WRONG; failed=$((failed + 1)); rows fail | sed 's/^/# /'; cp "$dir/report0.json" "$dir/clean-$k.json"; }
    echo "$verdict clean $k: $alarms rows fail, $(rows warn | wc -l) warn; codes $codes; $((SECONDS - begin)) s"
done
echo "plant: $failed of $((plants + clean)) runs were wrong (SEED=$seed)"
[ -z "${KEEP:-}" ] || echo "kept in $dir"
[ $failed = 0 ]
