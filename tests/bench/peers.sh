#!/bin/bash
# peers — steps of GPT-2 124M in fp32 beside PyTorch's (torch.compile, scaled_dot_product_attention, fused AdamW) on this
# machine's CPU, in interleaved rounds: each takes STEPS steps in turn, ROUNDS times, and the medians are compared. Ends with
# 1 when PyTorch is not GATE times as slow at a shape, having tried all. `make bench-peers` makes a Python environment with
# the newest PyTorch in VENV, several gigabytes. LEVEL=avx2 or avx512 limits both. Wants a quiet machine.
set -eu
export LC_ALL=C
top=$(cd "$(dirname "$0")/../.." && pwd)
step=$top/${BUILD:-build}/tests/bench/bench_step python=${VENV:?}/bin/python3
rounds=${ROUNDS:-5} steps=${STEPS:-5} gate=${GATE:-1.5} level=${LEVEL:-best} threads=$(nproc)
log=$(mktemp "${TMPDIR:-/tmp}/convoy-peers-XXXXXX")
trap 'rm -f "$log"; kill "${torch_PID:-}" 2>/dev/null || true' EXIT

median() { sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
# What bench_step says of a shape: its gates of the floor are judged by `make gates-cpu`, not here.
ours() {
    local words=()
    [ "$level" = best ] || words=("level=$level")
    { "$step" "${words[@]}" model=gpt2 "$steps" "$1" "$2" || :; } | sed -n 's/^  step \([0-9.]*\) ms.*/\1/p'
}
# compare BATCH TOKENS — a row of the table.
compare() {
    local version round a b
    coproc torch { exec "$python" "$top/tests/bench/peers/peer_torch.py" "$level" "$threads" "$1" "$2" 2>"$log"; }
    read -r version <&"${torch[0]}" || { echo "peers: PyTorch ended:" >&2; tail -n 5 "$log" >&2; exit 1; }
    a=() b=()
    for ((round = 0; round < rounds; round++)); do
        a+=("$(ours "$1" "$2")")
        echo "$steps" >&"${torch[1]}"
        read -r torch_ms <&"${torch[0]}"
        b+=("$torch_ms")
    done
    kill "$torch_PID" && wait "$torch_PID" 2>/dev/null || :
    awk -v ours="$(printf '%s\n' "${a[@]}" | median)" -v theirs="$(printf '%s\n' "${b[@]}" | median)" -v gate="$gate" \
        -v name="B=$1 T=$2" -v version="$version" -v level="$level" 'BEGIN {
            good = ours > 0 && theirs >= gate * ours
            printf("%s %s, %s: convoy %.1f ms, torch.compile of PyTorch %s %.1f ms: %.2f times as fast (gate %.1f)\n",
                   good ? "ok    " : "NOT OK", name, level, ours, version, theirs, (ours > 0 ? theirs / ours : 0), gate)
            exit !good }'
}
bad=0
for shape in ${SHAPES:-4,64 4,256 1,1024}; do compare "${shape%,*}" "${shape#*,}" || bad=1; done
exit $bad
