#!/bin/bash
# gates — what the whole program may take: memory of GPT-2 124M in training (supervisor and worker together, a checkpoint
# included), time from the command to the first step with tokens in the cache, time of `convoy version`. Two updates each;
# prints a table, ends with 1 when a gate fails. Wants a quiet machine and 2 GiB of disk under TMPDIR.
. "$(dirname "$0")/bench_lib.sh"
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT
export XDG_CACHE_HOME=$dir/cache
# row NAME FIGURE GATE UNIT — no more than the gate.
row() {
    local verdict=ok
    at_most 0.0001 "$2" && at_most "$2" "$3" || { verdict=FAILED; failed=1; }
    printf '%-44s %8s %8s %-4s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}
# peak_kib PID — what a process had resident at most so far; 0 when it is gone.
peak_kib() { awk '$1 == "VmHWM:" { kib = $2 } END { print kib + 0 }' "/proc/$1/status" 2>/dev/null || echo 0; }
# train SETTING… — sets peak_mib and first_ms (from the command to the line of step 1, that step included).
train() {
    local start super=0 worker=0 child kib
    rm -f out && : >out
    first_ms=0
    start=$(now_ms)
    "$convoy" train MODEL=gpt2 DATA=/usr/share/common-licenses STEPS=2 "$@" >out &
    pid=$!
    while kill -0 "$pid" 2>/dev/null; do
        [ $first_ms != 0 ] || ! grep -q '^step 1/' out || first_ms=$(($(now_ms) - start))
        kib=$(peak_kib "$pid") && [ "$kib" -le $super ] || super=$kib
        for child in $(cat "/proc/$pid/task/$pid/children" 2>/dev/null); do
            kib=$(peak_kib "$child") && [ "$kib" -le $worker ] || worker=$kib
        done
        sleep 0.02
    done
    wait "$pid" || die "training failed: $*"
    pid=
    peak_mib=$(((super + worker) / 1024))
}
gib() { awk -v m="$1" 'BEGIN { printf "%.2f", m / 1024 }'; }

printf '%-44s %8s %8s\n' "what" "measured" "gate"
for i in 1 2 3 4 5; do
    start=${EPOCHREALTIME/./}
    "$convoy" version >/dev/null
    echo $((${EPOCHREALTIME/./} - start))
done | sort -n | sed -n 3p >version_us
row "convoy version, median of 5" "$(awk '{ printf "%.1f", $1 / 1000 }' version_us)" 50 ms
train BATCH_SIZE=4 SEQ_LEN=64 CHECKPOINT_DIR=run
row "gpt2 B=4 T=64, peak resident, with checkpoint" "$(gib "$peak_mib")" 2.3 GiB
rm -rf run
train BATCH_SIZE=4 SEQ_LEN=64
row "gpt2 B=4 T=64, command to end of step 1" "$(awk -v m="$first_ms" 'BEGIN { printf "%.2f", m / 1000 }')" 3 s
train BATCH_SIZE=4 SEQ_LEN=256
row "gpt2 B=4 T=256, peak resident" "$(gib "$peak_mib")" 2.6 GiB
train BATCH_SIZE=1 SEQ_LEN=1024
row "gpt2 B=1 T=1024, peak resident" "$(gib "$peak_mib")" 2.6 GiB
exit $failed
