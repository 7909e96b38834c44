#!/bin/bash
# balance — a slow node beside a fast one: two nodes of one core each, of which the second has 40 % of its core (a control group's
# quota). GPT-2 nano, 16 virtual shards of 256 tokens, with equal shares and with BALANCE=auto in turn: the median of the last
# steps, the gate of 1.3 times as fast, and the checksums of the weights. Ends with 1 when one is missed. Root, two quiet cores.
# `make bench-balance`.
export LOG_LEVEL=info JOB_TOKEN=a-secret-for-this-benchmark-only
. "$(dirname "$0")/bench_lib.sh"
percent=${PERCENT:-40} rounds=${ROUNDS:-2} steps=${STEPS:-40} gate=${GATE:-1.3}
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

job="train MODEL=gpt2-nano DATA=/usr/share/common-licenses DEVICE=cpu BATCH_SIZE=1 SEQ_LEN=256 GLOBAL_BATCH=16 STEPS=$steps EXACT=layout
    N_NODES=2 MASTER_ADDR=127.0.0.1 CACHE_DIR=$dir/cache"
# trained BALANCE — the median milliseconds of the last half of the steps; the weights are in folder BALANCE.
trained() {
    local port=$((20000 + RANDOM % 10000)) slow
    rm -rf "$1" metrics.jsonl
    (echo "$BASHPID" >"$group/cgroup.procs" && exec taskset -c 1 "$convoy" $job NODE_ID=1 MASTER_PORT=$port BALANCE="$1" CHECKPOINT_DIR="$1" CHECKPOINT_EVERY=$steps >out.1 2>err.1) &
    slow=$!
    taskset -c 0 "$convoy" $job NODE_ID=0 MASTER_PORT=$port BALANCE="$1" CHECKPOINT_DIR="$1" CHECKPOINT_EVERY=$steps METRICS_FILE=metrics.jsonl \
        >out.0 2>err.0 || { tail -n 5 err.0 >&2; exit 1; }
    wait $slow || { tail -n 5 err.1 >&2; exit 1; }
    jq -r "select(.step > $steps / 2) | .step_ms" metrics.jsonl | median
}
sum_of() { cat "$1"/step-*/*.safetensors | sha256sum | cut -c 1-16; }
for ((round = 0; round < rounds; round++)); do
    for way in off auto; do trained $way >>ms.$way; done
    grep -h 'BALANCE=auto: ' err.0 | sed 's/.*BALANCE=auto: //' | tail -n 1
done
best() { sort -n "$1" | head -n 1; }
awk -v off="$(best ms.off)" -v auto="$(best ms.auto)" -v gate="$gate" -v percent="$percent" -v a="$(sum_of off)" -v b="$(sum_of auto)" 'BEGIN {
    good = off >= gate * auto && a == b
    printf("%s a node at %d %%: equal shares %.0f ms, BALANCE=auto %.0f ms a step: %.2f times as fast (gate %.1f); weights %s and %s\n",
           (good ? "ok    " : "NOT OK"), percent, off, auto, off / auto, gate, a, b)
    exit !good }'
