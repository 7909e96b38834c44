#!/bin/bash
# comm — all_reduce of fp32 by `convoy bench` beside Open MPI's and gloo's on the same machine in the same minutes: inside
# a node and over TCP, of 2 workers and of 4. Every round runs all of them one after the other; printed is the median
# round of each, the ratio, what must hold, and what TCP carries by itself, both ways at once. Ends with 1 when a gate fails,
# having tried all. `make bench-comm` installs what it needs. Wants a quiet machine and 4 GiB of memory.
# ROUNDS=3; PARTS="shm2 tcp2 shm4 tcp4"; MAX_MIB=512; WITH="…": put before each measurement, which takes less than a minute
# (a lock, where others use the machine: everything is measured by `comm.sh measure PART`).
set -eu
export LC_ALL=C NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
top=$(cd "$(dirname "$0")/../.." && pwd)
convoy=$top/${BUILD:-build}/convoy
rounds=${ROUNDS:-3} most=${MAX_MIB:-512}

# ---- one measurement: adds lines "WHO BYTES MICROSECONDS" to the file of the part ----

lines() { jq -r "select(.bytes) | \"$1 \(.bytes) \(.median_us)\"" >>"$dir/$part"; }
ours() {
    "$convoy" bench JSON=1 BENCH_MAX="$most" BENCH_ONLY=all_reduce BENCH_OVER="$1" N_GPU_EACH_NODE="$ranks" LOG_LEVEL=error |
        jq -c '.results[] | select(.wrong == 0)' | lines ours
}
mpi() { mpirun --oversubscribe --mca mpi_yield_when_idle "$yield" -np "$ranks" --mca pml ob1 "$@" "$dir/peer_mpi" "$most" 2>/dev/null | lines mpi; }
gloo() {
    local meet rank
    meet=$(mktemp -d "$dir/gloo-XXXXXX")
    for ((rank = 1; rank < ranks; rank++)); do "$dir/peer_gloo" "$rank" "$ranks" "$meet" "$most" & done
    "$dir/peer_gloo" 0 "$ranks" "$meet" "$most" | lines gloo
    wait
}
measure() {
    case $part in
        raw) echo "raw $("$dir/peer_tcp" 1)" >>"$dir/raw" ;;
        shm*.ours) ours memory ;;
        shm*.mpi) mpi --mca btl vader,self ;;
        tcp*.ours) ours tcp ;;
        tcp*.mpi) mpi --mca btl tcp,self --mca btl_tcp_if_include lo ;;
        tcp*.gloo) gloo ;;
    esac
}
if [ "${1-}" = measure ]; then
    dir=$2 part=$3 ranks=${3:3:1} yield=0
    [ "$ranks" -le "$(nproc)" ] 2>/dev/null || yield=1
    measure
    exit
fi

# ---- all of them ----

for tool in mpicc mpirun g++ jq; do
    command -v $tool >/dev/null || { echo "comm: $tool is missing; \`make bench-comm\` installs it" >&2; exit 1; }
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-comm-XXXXXX")
trap 'rm -rf "$dir"' EXIT
peers=$top/tests/bench/peers
mpicc -O2 -o "$dir/peer_mpi" "$peers/peer_mpi.c"
g++ -O2 -o "$dir/peer_gloo" "$peers/peer_gloo.cc" -lgloo -pthread
gcc -O2 -D_GNU_SOURCE -o "$dir/peer_tcp" "$peers/peer_tcp.c"
failed=0

# median FILE WHO [BYTES] — of the rounds; 0: none.
median() {
    awk -v who="$2" -v b="${3-}" '$1 == who && (b == "" || $2 == b) { print $NF }' "$1" 2>/dev/null | sort -g |
        awk '{ v[NR] = $1 } END { print NR ? (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2 : 0 }'
}
bus() { awk -v n="$1" -v b="$2" -v us="$3" 'BEGIN { printf "%.2f", (us > 0 ? 2 * (n - 1) / n * b / us * 1e-3 : 0) }'; }
# row PART BYTES NAME PEER MUST — MUST "-": for information.
row() {
    [ "$2" -le $((most * 1048576)) ] || return 0
    local n=${1:3:1} a b ratio verdict=ok
    a=$(median "$dir/$1.ours" ours "$2") b=$(median "$dir/$1.$4" "$4" "$2")
    ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", (a > 0 ? b / a : 0) }')
    if [ "$5" = - ]; then
        verdict=
    elif ! awk -v r="$ratio" -v m="$5" 'BEGIN { exit !(r >= m) }'; then
        verdict=FAILED failed=1
    fi
    printf '%s, %d ranks %8s %12.1f %8s %9s %12.1f %8s %6s %5s  %s\n' "${1:0:3}" "$n" "$3" "$a" "$(bus "$n" "$2" "$a")" \
        "$4" "$b" "$(bus "$n" "$2" "$b")" "$ratio" "$5" "$verdict"
}
# rows PART PEER MUST-AT-EACH-SIZE
rows() {
    row "$1" 1024 "1 KiB" "$2" "$3"
    row "$1" 65536 "64 KiB" "$2" "$4"
    row "$1" 1048576 "1 MiB" "$2" "$5"
    row "$1" 16777216 "16 MiB" "$2" "$6"
    row "$1" 536870912 "512 MiB" "$2" "$7"
}

for ((round = 0; round < rounds; round++)); do
    for part in ${PARTS:-shm2 tcp2 shm4 tcp4}; do
        case $part in
            shm*) todo="$part.ours $part.mpi" ;;
            tcp2) todo="raw $part.ours $part.mpi $part.gloo" ;;
            tcp*) todo="$part.ours $part.mpi" ;;
            *) echo "comm: $part is not known: shm2 tcp2 shm4 tcp4" >&2; exit 1 ;;
        esac
        # All of a round under one lock, if there is one.
        ${WITH-} bash -c 'for one; do "$0" measure '"'$dir'"' "$one"; done' "$0" $todo || echo "comm: a measurement of $part ended badly" >&2
    done
done
printf '%-20s %8s %9s %8s %9s %12s %8s %6s %5s\n' "all_reduce, medians" "ours us" "GB/s" "" "peer" "us" "GB/s" "ratio" "gate"
for part in ${PARTS:-shm2 tcp2 shm4 tcp4}; do
    case $part in
        shm2) rows shm2 mpi 1 1 1 1.5 3 ;;
        tcp2) rows tcp2 mpi 1 1 1 1 1.3 && rows tcp2 gloo - - - - 1 ;;
        *) rows "$part" mpi 1 1 1 1 1 ;;
    esac
done
raw=$(median "$dir/raw" raw)
[ "$raw" = 0 ] || printf 'raw TCP, both ways at once: %s GB/s each; ours carries %s %% of it at 512 MiB\n' "$raw" \
    "$(awk -v raw="$raw" -v us="$(median "$dir/tcp2.ours" ours 536870912)" 'BEGIN { printf "%.0f", (us > 0 ? 536870912 / us * 1e-3 / raw * 100 : 0) }')"
exit $failed
