#!/bin/bash
# remedies_net — what `convoy check` prints for links and clocks, tried on four nodes in network namespaces: a fault is made, the
# printed commands are run as they stand on the nodes that they name, what they show is taken away, and the check passes. Needs root.
n=4 tag=cr$$ subnet=10.78.0
. "$(dirname "$0")/switch_lib.sh"
trap leave_switch EXIT
mkdir "$dir/bin"
for tool in ethtool chronyc tracepath; do type -P $tool >/dev/null && [ $tool != chronyc ] || ln -s "$top/tests/check/remedy_tool.sh" "$dir/bin/$tool"; done
export CLOCK_SHIFT_FILE=$dir/shift TREE=$dir/root
make_net
# check [NODE COMMAND…] — the command starts that node's check.
check() {
    special=${1:--1} wrap=("${@:2}")
    check_all CHECK=quick BUDGET=20s
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

undo_route() { # what `ip route` has shown
    if grep -q 'dev own' "$dir/said"; then for i in 1 2; do ip -n "$(ns $i)" route del "10.78.0.$((4 - i))/32" dev own; done; fi
    stop "${pids[@]}"
    pids=()
}
lay 1 2 5000 0 0 7
check
printed=$(row "link latency" remedy)
run_on 1 2
undo_route
tried "a longer route" "link latency"

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
