#!/bin/bash
# plant — `convoy check` on eight nodes in network namespaces, one of which, or one link of which, is bad: it must be named, and
# nothing else. And on eight good ones beside busy processes: nothing may be named. Needs root.
#   tests/check/plant.sh [PLANTS [CLEAN [SEED]]]     so many random plantings (default 9) and clean runs (default 4)
# KIND=delay (rate, loss, cpu, disk, clock, gpus, flip, memlock) plants that alone; LOAD=4 busy processes in clean runs; KEEP=1 keeps
# the reports; DEPTH="BUDGET=60s" another depth than CHECK=quick BUDGET=20s. Prints a line for each run; ends with 1 when one was wrong.
plants=${1:-9} clean=${2:-4} seed=${3:-1} load=${LOAD:-4}
kinds=(delay rate loss cpu disk clock gpus flip memlock)
n=8 tag=cp$$ subnet=10.77.0
. "$(dirname "$0")/switch_lib.sh"
rate_mbit=${RATE:-200} depth=${DEPTH:-CHECK=quick BUDGET=20s}
group=/sys/fs/cgroup/cpu/convoy-$tag
busy=()
RANDOM=$seed
leave() {
    stop "${busy[@]}"
    mountpoint -q "$dir/full" && umount "$dir/full"
    [ ! -d "$group" ] || rmdir "$group"
    leave_switch
}
trap leave EXIT

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
# What a row that fails must be about: "NAME-REGEX NODE PEER"; node and peer of a link in either order.
plant() {
    bad=$((RANDOM % n)) peer=$(((bad + 1 + RANDOM % (n - 1)) % n))
    limit_all 0
    extra=() wrap=()
    case $1 in
        delay) lay $bad $peer 5000 0 0 $seed; want="link latency|link bandwidth" ;;
        loss) lay $bad $peer 0 0 20 $seed; want="link retransmissions|link bandwidth|link latency" ;;
        rate)
            limit_all "$rate_mbit"
            lay $bad $peer 0 $((rate_mbit / 2)) 0 $seed
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
# check — the settings of the planting on node $bad alone, but FAULT, on which all agree.
check() {
    special=$bad
    case "${extra[*]}" in FAULT*) check_all $depth "${extra[@]}" ;; *) check_all $depth ;; esac
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
