# switch_lib — nodes in network namespaces on one switch, for tests of `convoy check` that need root. Source it from a script of this
# folder after n, how many; tag, the beginning of their names; subnet, of node I's address $subnet.(I + 1). They go when the script ends.
set -u
export LC_ALL=C NO_COLOR=1 JOB_TOKEN=a-secret-for-these-tests-only STATUS_PORT=0
me=$(basename "$0" .sh) top=$(cd "$(dirname "$0")/../.." && pwd)
build=$top/${BUILD:-build}
convoy=$build/convoy cable=$build/tests/check/cable
die() { echo "$me: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || die "network namespaces need root"
[ -x "$convoy" ] && [ -x "$cable" ] || die "build first: make $convoy $cable"
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-$me-XXXXXX")
pids=()

ns() { echo "$tag-$1"; }
in_ns() { local i=$1; shift; nsenter --net="/run/netns/$(ns "$i")" "$@"; }
stop() { for p in "$@"; do kill "$p" 2>/dev/null; wait "$p" 2>/dev/null; done; }
leave_switch() {
    stop "${pids[@]}"
    for i in hub $(seq 0 $((n - 1))); do ip netns del "$(ns "$i")" 2>/dev/null; done
    [ -n "${KEEP:-}" ] || rm -rf "$dir"
}
trap 'exit 130' INT TERM
make_net() {
    ip netns add "$(ns hub)" && ip -n "$(ns hub)" link add sw type bridge && ip -n "$(ns hub)" link set sw up || die "no namespaces here"
    for i in $(seq 0 $((n - 1))); do
        ip netns add "$(ns "$i")"
        ip link add eth0 netns "$(ns "$i")" type veth peer name "p$i" netns "$(ns hub)"
        ip -n "$(ns hub)" link set "p$i" master sw up
        ip -n "$(ns "$i")" addr add "$subnet.$((i + 1))/24" dev eth0
        ip -n "$(ns "$i")" link set eth0 up
        ip -n "$(ns "$i")" link set lo up
    done
    for _ in $(seq 100); do in_ns 0 bash -c "</dev/tcp/$subnet.$n/1" 2>&1 | grep -q refused && break; sleep 0.1; done # until links run
}
# lay A B DELAY_US MBIT LOSS SEED — a cable of their own between two nodes, which the other nodes do not use.
lay() {
    : >"$dir/cable"
    "$cable" "$(ns "$1")" $(($1 + 1)) "$(ns "$2")" $(($2 + 1)) "$3" "$4" "$5" "$6" >"$dir/cable" &
    pids+=("$!")
    for _ in $(seq 200); do grep -q ready "$dir/cable" && break; sleep 0.05; done
    for p in "$1 $2" "$2 $1"; do
        set -- $p
        ip -n "$(ns "$1")" link set own up
        ip -n "$(ns "$1")" route add "$subnet.$(($2 + 1))/32" dev own src "$subnet.$(($1 + 1))"
    done
}
# check_all SETTING… — a check on all nodes, their reports in reportI.json, $codes; that of node $special, -1: none, within $wrap and with
# $extra.
special=-1 wrap=() extra=()
check_all() {
    local port=$((20000 + RANDOM % 20000)) i nodes=()
    for i in $(seq 0 $((n - 1)) | shuf); do
        local mine=() first=()
        [ "$i" != "$special" ] || { mine=("${extra[@]}") first=("${wrap[@]}"); }
        mkdir -p "$dir/ckpt$i"
        in_ns "$i" "${first[@]}" "$convoy" check DEVICE=cpu N_GPU_EACH_NODE=1 N_NODES=$n NODE_ID=$i MASTER_ADDR=$subnet.1 MASTER_PORT=$port \
            CHECKPOINT_DIR="$dir/ckpt$i" REPORT="$dir/report$i.json" "$@" "${mine[@]}" >"$dir/out.$i" 2>"$dir/err.$i" &
        nodes[i]=$!
    done
    codes=
    for i in $(seq 0 $((n - 1))); do wait "${nodes[$i]}"; codes="$codes${codes:+ }$?"; done
}
