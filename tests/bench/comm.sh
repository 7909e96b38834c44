#!/bin/bash
# comm — all_reduce of fp32 by `convoy bench` beside Open MPI's and gloo's on the same machine in the same minutes: inside
# a node (shm) and over TCP (tcp), of 2, 3 and 4 workers. Every round runs all of them one after the other; printed is the
# median round of each, the ratio, what must hold, and what TCP carries by itself, both ways at once. Ends with 1 when a
# gate fails, having tried all. `make bench-comm` installs what it needs. Wants a quiet machine and memory for RANKS
# buffers of the largest size. A selection: ROUNDS=3 ROWS="shm tcp" RANKS="2 3 4" SIZES="8 1Ki 1Mi"; two ranks and six
# sizes up to 1Mi need 17 s a round, most of it for the other collectives of `convoy bench`. WITH="…": put before each
# measurement of a row and a number of ranks (a lock, where others use the machine: everything is measured by `comm.sh
# measure`).
set -eu
export LC_ALL=C NO_COLOR=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
top=$(cd "$(dirname "$0")/../.." && pwd)
convoy=$(cd "$top" && realpath "${BUILD:-build}")/convoy
rounds=${ROUNDS:-3} rows=${ROWS:-shm tcp} counts=${RANKS:-2 3 4}
bytes=$(numfmt --from=auto ${SIZES:-8 64 1Ki 8Ki 64Ki 256Ki 1Mi 4Mi 16Mi 64Mi 512Mi 1Gi})

# ---- one measurement: adds lines "WHO BYTES MICROSECONDS" to the file of the series, such as tcp2 ----

lines() { jq -r "select(.bytes) | \"$1 \(.bytes) \(.median_us)\"" >>"$dir/$series"; }
ours() {
    "$convoy" bench JSON=1 BENCH_SIZES="$(echo $bytes | tr ' ' ,)" BENCH_OVER="$1" N_GPU_EACH_NODE="$ranks" LOG_LEVEL=error |
        jq -c '.results[] | select(.collective == "all_reduce" and .wrong == 0)' | lines ours
}
mpi() {
    mpirun --oversubscribe --mca mpi_yield_when_idle "$yield" -np "$ranks" --mca pml ob1 "$@" "$dir/peer_mpi" $bytes \
        2>/dev/null | lines mpi
}
gloo() {
    local meet rank
    meet=$(mktemp -d "$dir/gloo-XXXXXX")
    for ((rank = 1; rank < ranks; rank++)); do "$dir/peer_gloo" "$rank" "$ranks" "$meet" $bytes & done
    "$dir/peer_gloo" 0 "$ranks" "$meet" $bytes | lines gloo
    wait
}
measure() {
    case $1 in
        raw) echo "raw $("$dir/peer_tcp" 1)" >>"$dir/raw" ;;
        shm.ours) ours memory ;;
        shm.mpi) mpi --mca btl vader,self ;;
        tcp.ours) ours tcp ;;
        tcp.mpi) mpi --mca btl tcp,self --mca btl_tcp_if_include lo ;;
        tcp.gloo) gloo ;;
    esac
}
# measure DIR ROW RANKS — all of a round.
if [ "${1-}" = measure ]; then
    dir=$2 series=$3$4 ranks=$4 yield=0
    [ "$ranks" -le "$(nproc)" ] || yield=1
    todo="$3.ours $3.mpi"
    [ "$series" != tcp2 ] || todo="raw $todo tcp.gloo"
    for one in $todo; do measure "$one"; done
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
# gate PART PEER BYTES — what the ratio must be at least; "-": for information.
gate() {
    case $1.$2.$3 in
        *.gloo.536870912) echo 1 ;;
        *.gloo.*) echo - ;;
        shm2.mpi.16777216) echo 1.5 ;;
        shm2.mpi.536870912) echo 3 ;;
        tcp2.mpi.536870912) echo 1.3 ;;
        *) echo 1 ;;
    esac
}
# compare ROW RANKS PEER BYTES
compare() {
    local series=$1$2 must a b ratio verdict=ok
    must=$(gate "$series" "$3" "$4") a=$(median "$dir/$series" ours "$4") b=$(median "$dir/$series" "$3" "$4")
    ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", (a > 0 ? b / a : 0) }')
    if [ "$must" = - ]; then
        verdict=
    elif ! awk -v r="$ratio" -v m="$must" 'BEGIN { exit !(r >= m) }'; then
        verdict=FAILED failed=1
    fi
    printf '%s, %d ranks %8s %12.1f %8s %9s %12.1f %8s %6s %5s  %s\n' "$1" "$2" "$(numfmt --to=iec-i "$4")" "$a" \
        "$(bus "$2" "$4" "$a")" "$3" "$b" "$(bus "$2" "$4" "$b")" "$ratio" "$must" "$verdict"
}

for ((round = 0; round < rounds; round++)); do
    for row in $rows; do
        for n in $counts; do
            ${WITH-} "$0" measure "$dir" "$row" "$n" || echo "comm: a measurement of $row, $n ranks, ended badly" >&2
        done
    done
done
printf '%-20s %8s %9s %8s %9s %12s %8s %6s %5s\n' "all_reduce, medians" "ours us" "GB/s" "" "peer" "us" "GB/s" "ratio" "gate"
for row in $rows; do
    for n in $counts; do
        for b in $bytes; do compare "$row" "$n" mpi "$b"; done
        [ "$row$n" != tcp2 ] || for b in $bytes; do compare tcp 2 gloo "$b"; done
    done
done
raw=$(median "$dir/raw" raw)
[ "$raw" = 0 ] || for b in $bytes; do
    [ "$b" -lt 67108864 ] || printf 'raw TCP, both ways at once: %s GB/s each; ours carries %s %% of it at %s with 2 ranks\n' \
        "$raw" "$(awk -v raw="$raw" -v b="$b" -v us="$(median "$dir/tcp2" ours "$b")" \
            'BEGIN { printf "%.0f", (us > 0 ? b / us * 1e-3 / raw * 100 : 0) }')" "$(numfmt --to=iec-i "$b")"
done
exit $failed
