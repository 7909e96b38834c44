#!/bin/bash
# remedies_net — what `convoy check` prints for links and clocks, tried on four nodes in network namespaces: a fault is made, the
# printed commands are run as they stand on the nodes that they name, what they show is taken away, and the check passes. Needs root.
set -u
export LC_ALL=C NO_COLOR=1 JOB_TOKEN=a-secret-for-these-tests-only STATUS_PORT=0
top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/${BUILD:-build}
n=4 tag=cr$$ pids=()
[ "$(id -u)" = 0 ] || { echo "remedies_net: network namespaces need root" >&2; exit 1; }
[ -x "$build/convoy" ] && [ -x "$build/tests/check/cable" ] || { echo "remedies_net: build first" >&2; exit 1; }
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-remedies-XXXXXX")
ns() { echo "$tag-$1"; }
in_ns() { local i=$1; shift; nsenter --net="/run/netns/$(ns "$i")" "$@"; }
leave() {
    for p in "${pids[@]}"; do kill "$p" 2>/dev/null; wait "$p" 2>/dev/null; done
    for i in hub $(seq 0 $((n - 1))); do ip netns del "$(ns "$i")" 2>/dev/null; done
    rm -rf "$dir"
}
trap leave EXIT
trap 'exit 130' INT TERM
mkdir "$dir/bin"
for tool in ethtool chronyc tracepath; do type -P $tool >/dev/null && [ $tool != chronyc ] || ln -s "$top/tests/check/remedy_tool.sh" "$dir/bin/$tool"; done
export CLOCK_SHIFT_FILE=$dir/shift TREE=$dir/root
ip netns add "$(ns hub)" && ip -n "$(ns hub)" link add sw type bridge && ip -n "$(ns hub)" link set sw up || exit 1
for i in $(seq 0 $((n - 1))); do
    ip netns add "$(ns "$i")"
    ip link add eth0 netns "$(ns "$i")" type veth peer name "p$i" netns "$(ns hub)"
    ip -n "$(ns hub)" link set "p$i" master sw up
    ip -n "$(ns "$i")" addr add "10.78.0.$((i + 1))/24" dev eth0
    ip -n "$(ns "$i")" link set eth0 up
    ip -n "$(ns "$i")" link set lo up
done
for _ in $(seq 100); do in_ns 0 bash -c '</dev/tcp/10.78.0.4/1' 2>&1 | grep -q refused && break; sleep 0.1; done

# check [NODE COMMAND… --] — the command starts that node's check.
check() {
    local port=$((20000 + RANDOM % 20000)) special=-1 wrap=() nodes=()
    if [ $# != 0 ]; then special=$1; shift; wrap=("$@"); fi
    for i in $(seq 0 $((n - 1))); do
        local first=()
        [ "$i" != "$special" ] || first=("${wrap[@]}")
        in_ns "$i" "${first[@]}" "$build/convoy" check CHECK=quick BUDGET=20s DEVICE=cpu N_GPU_EACH_NODE=1 N_NODES=$n NODE_ID="$i" \
            MASTER_ADDR=10.78.0.1 MASTER_PORT=$port REPORT="$dir/report$i.json" >/dev/null 2>"$dir/err.$i" &
        nodes[i]=$!
    done
    for i in $(seq 0 $((n - 1))); do wait "${nodes[$i]}"; done
}
row() { jq -r --arg r "$1" --arg f "$2" '[.rows[] | select(.name == $r and (.verdict == "fail" or .verdict == "warn"))] | first | .[$f] // ""' "$dir/report0.json"; }
failed=0
# tried NAME ROW — after the remedy no such row fails or warns.
tried() {
    check "${@:3}"
    if [ -n "$printed" ] && [ -s "$dir/report0.json" ] && [ -z "$(row "$2" name)" ]; then
        echo "ok $1: $printed"
    else
        echo "WRONG $1: $(row "$2" why): $printed"; sed 's/^/# /' "$dir/said"; failed=$((failed + 1))
    fi
}
# run_on NODE… — the printed command on each.
run_on() { : >"$dir/said"; for i in "$@"; do PATH="$dir/bin:$PATH" in_ns "$i" sh -c "$printed" >>"$dir/said" 2>&1; done; }

ip -n "$(ns 2)" link set eth0 mtu 1000
check
printed=$(row "interface mtu" remedy)
run_on "$(row "interface mtu" node)"
tried "a smaller MTU" "interface mtu"

tc -n "$(ns 3)" qdisc add dev eth0 root tbf rate 100mbit burst 64kb latency 200ms
check
printed=$(row "link bandwidth" remedy)
run_on 0 1 2 3
if grep -q "qdisc tbf" "$dir/said" && [[ $printed == *'tc qdisc del dev $d root'* ]]; then in_ns 3 sh -c 'd=eth0; tc qdisc del dev $d root'; fi
tried "a limit of an interface (tc)" "link bandwidth"

# A way of its own between two nodes, which delays or loses.
lay() {
    : >"$dir/cable"
    "$build/tests/check/cable" "$(ns 1)" 2 "$(ns 2)" 3 "$1" 0 "$2" 7 >"$dir/cable" &
    pids+=("$!")
    for _ in $(seq 200); do grep -q ready "$dir/cable" && break; sleep 0.05; done
    for i in 1 2; do
        ip -n "$(ns $i)" link set own up
        ip -n "$(ns $i)" route add "10.78.0.$((4 - i))/32" dev own src "10.78.0.$((i + 1))"
    done
}
undo_route() { # what `ip route` has shown
    if grep -q 'dev own' "$dir/said"; then for i in 1 2; do ip -n "$(ns $i)" route del "10.78.0.$((4 - i))/32" dev own; done; fi
    for p in "${pids[@]}"; do kill "$p"; wait "$p"; done 2>/dev/null
    pids=()
}
lay 5000 0
check
printed=$(row "link latency" remedy)
run_on 1 2
undo_route
tried "a longer way" "link latency"

"$top/tests/check/trees/unpack.pl" "$TREE" laptop >/dev/null
mkdir -p "$TREE/usr/bin" && : >"$TREE/usr/bin/chronyc"
shifted=(env LD_PRELOAD="$build/tests/check/clock_shift.so" CHECK_ROOT="$TREE")
echo 7 >"$CLOCK_SHIFT_FILE"
check 2 "${shifted[@]}"
printed=$(row "clock skew" remedy)
run_on "$(row "clock skew" node)"
tried "a wrong clock" "clock skew" 2 "${shifted[@]}"

echo "remedies_net: $failed were wrong"
[ $failed = 0 ]
