#!/bin/bash
# balance — a slow node beside a fast one: two nodes of one core each, of which the second has 40 % of its core (a control group's
# quota). GPT-2 nano, 16 samples of 256 tokens, with equal shares and with BALANCE=auto in turn: 16 virtual shards of EXACT=layout,
# and micro-batches without it. The median of the last steps, gates, and the checksums of the weights, or the
# greatest difference of losses. Ends with 1 when one is missed. Root, two quiet cores. `make bench-balance`.
export LOG_LEVEL=info JOB_TOKEN=a-secret-for-this-benchmark-only
. "$(dirname "$0")/bench_lib.sh"
percent=${PERCENT:-40} rounds=${ROUNDS:-2} steps=${STEPS:-40}
# Version 1 of control groups has a tree for processor time alone.
groups=/sys/fs/cgroup
[ ! -d "$groups/cpu" ] || groups=$groups/cpu
group=$groups/convoy-balance-$$
mkdir "$group" || die "no control group can be made in $groups; run it as root"
trap 'rmdir "$group" 2>/dev/null || true; rm -rf "$dir"' EXIT
if [ -e "$group/cpu.max" ]; then
    echo "$((percent * 1000)) 100000" >"$group/cpu.max"
else
    echo 100000 >"$group/cpu.cfs_period_us"
    echo $((percent * 1000)) >"$group/cpu.cfs_quota_us"
fi

job="train MODEL=gpt2-nano DATA=/usr/share/common-licenses DEVICE=cpu BATCH_SIZE=1 SEQ_LEN=256 GLOBAL_BATCH=16 STEPS=$steps
    N_NODES=2 MASTER_ADDR=127.0.0.1 CACHE_DIR=$dir/cache"
# trained BALANCE SETTING… — the median milliseconds of the last half of the steps; the weights are in folder BALANCE.
trained() {
    local port=$((20000 + RANDOM % 10000)) slow way=$1
    shift
    rm -rf "$way" metrics.$way.jsonl
    (echo "$BASHPID" >"$group/cgroup.procs" && exec taskset -c 1 "$convoy" $job NODE_ID=1 MASTER_PORT=$port "$@" BALANCE="$way" CHECKPOINT_DIR="$way" CHECKPOINT_EVERY=$steps >out.1 2>err.1) &
    slow=$!
    taskset -c 0 "$convoy" $job NODE_ID=0 MASTER_PORT=$port "$@" BALANCE="$way" CHECKPOINT_DIR="$way" CHECKPOINT_EVERY=$steps METRICS_FILE=metrics.$way.jsonl \
        >out.0 2>err.0 || { tail -n 5 err.0 >&2; exit 1; }
    wait $slow || { tail -n 5 err.1 >&2; exit 1; }
    jq -r "select(.step > $steps / 2) | .step_ms" metrics.$way.jsonl | median
}
sum_of() { cat "$1"/step-*/*.safetensors | sha256sum | cut -c 1-16; }
best() { sort -n "$1" | head -n 1; }
apart() { paste <(jq .loss metrics.off.jsonl) <(jq .loss metrics.auto.jsonl) | awk '{ d = ($1 - $2) / $1; d = d < 0 ? -d : d; if (d > most) most = d } END { printf("%.1e", most) }'; }
# compare GATE SETTING… — both ways in turn.
bad=0
compare() {
    local gate=$1 round way same
    shift
    rm -f ms.off ms.auto
    for ((round = 0; round < rounds; round++)); do
        for way in off auto; do trained $way "$@" >>ms.$way; done
        grep -h 'BALANCE=auto: ' err.0 | sed 's/.*BALANCE=auto: //' | tail -n 1
    done
    same="losses $(apart) apart"
    [ "$1" != EXACT=layout ] || same="weights $(sum_of off) and $(sum_of auto)"
    awk -v off="$(best ms.off)" -v auto="$(best ms.auto)" -v gate="$gate" -v percent="$percent" -v what="$*" -v same="$same" 'BEGIN {
        split(same, word, " ")
        good = off >= gate * auto && (word[1] == "weights" ? word[2] == word[4] : word[2] < 1e-5)
        printf("%s %s, a node at %d %%: equal shares %.0f ms, BALANCE=auto %.0f ms a step: %.2f times as fast (gate %.2f); %s\n",
               (good ? "ok    " : "NOT OK"), what, percent, off, auto, off / auto, gate, same)
        exit !good }' || bad=1
}
compare "${GATE:-1.3}" EXACT=layout
compare "${GATE:-1.3}" EXACT=off
exit $bad
