#!/bin/bash
# comm — the all-reduce of a node's workers beside Open MPI's on the same machine in the same minute: for 2 and 4 workers
# the speed of both at five sizes, what must hold and what is aimed at. Takes the better of two rounds of each, for
# either may be disturbed; ends with 1 when a gate fails. RANKS, ROUNDS and MAX_MIB make it shorter. Wants a quiet machine, 3 GiB of memory, mpicc, mpirun, jq.
set -eu
export LC_ALL=C NO_COLOR=1
top=$(cd "$(dirname "$0")/../.." && pwd)
convoy=$top/${BUILD:-build}/convoy
for tool in mpicc mpirun jq; do
    command -v $tool >/dev/null || { echo "comm: $tool is missing; install openmpi-bin, libopenmpi-dev and jq" >&2; exit 1; }
done
dir=$(mktemp -d "${TMPDIR:-/tmp}/convoy-comm-XXXXXX")
trap 'rm -rf "$dir"' EXIT
cd "$dir"
mpicc -O2 -o peer_mpi "$top/tests/bench/peer_mpi.c"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
failed=0

# round RANKS — adds a round of both to ours and theirs: lines "BYTES MICROSECONDS".
round() {
    "$convoy" bench JSON=1 BENCH_MAX="${MAX_MIB:-512}" N_GPU_EACH_NODE="$1" LOG_LEVEL=error |
        jq -r '.results[] | select(.collective == "all_reduce" and .wrong == 0) | "\(.bytes) \(.median_us)"' >>ours
    mpirun --oversubscribe --bind-to none -np "$1" ./peer_mpi "${MAX_MIB:-512}" 2>/dev/null | jq -r '"\(.bytes) \(.median_us)"' >>theirs
}
best() { awk -v b="$2" '$1 == b && (m == "" || $2 + 0 < m + 0) { m = $2 } END { print m == "" ? 0 : m }' "$1"; }
# row RANKS BYTES NAME MUST AIM
row() {
    [ "$2" -le $((${MAX_MIB:-512} * 1048576)) ] || return 0
    local a b verdict=ok
    a=$(best ours "$2") b=$(best theirs "$2")
    ratio=$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", (a > 0 ? b / a : 0) }')
    awk -v r="$ratio" -v m="$4" 'BEGIN { exit !(r >= m) }' || { verdict=FAILED; failed=1; }
    printf '%d ranks %8s %12s %12s %8s %6s %5s  %s\n' "$1" "$3" "$a" "$b" "$ratio" "$4" "$5" "$verdict"
}

printf '%-16s %12s %12s %8s %6s %5s\n' "all_reduce" "ours us" "Open MPI us" "speed-up" "must" "aim"
for ranks in ${RANKS:-2 4}; do
    rm -f ours theirs
    round "$ranks"
    [ "${ROUNDS:-2}" = 1 ] || round "$ranks"
    if [ "$ranks" = 2 ]; then
        row 2 1024 "1 KiB" 1 3
        row 2 65536 "64 KiB" 1 9
        row 2 1048576 "1 MiB" 1 5
        row 2 16777216 "16 MiB" 1.5 1.8
        row 2 536870912 "512 MiB" 3 5
    else
        row "$ranks" 1024 "1 KiB" 1 1
        row "$ranks" 65536 "64 KiB" 1 1
        row "$ranks" 1048576 "1 MiB" 1 1
        row "$ranks" 16777216 "16 MiB" 1 1
        row "$ranks" 536870912 "512 MiB" 1 1
    fi
done
exit $failed
