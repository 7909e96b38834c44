#!/bin/bash
# scale — two nodes of one core each beside one node of one core: GPT-2 124M, B=4, T=256 on each, in two network namespaces
# joined by a veth pair, one process tree and one core in each. First without a limit, then over a link so slow that a plain
# fp32 all-reduce of the gradients takes as long as a step computes (tc tbf, both directions), where waiting for that after
# the backward pass would give 1.0x. Prints what both took, how much of the communication was hidden, and the gate. Then
# the loss of COMPRESS=int8 after 300 steps beside that without. Ends with 1 when a gate is missed. Wants root, two quiet
# cores, 6 GiB of memory, iproute2, jq. ROWS="free none bf16 int8 learn", STEPS and ROUNDS make it shorter or longer; TEXT=FILE
# is the text to learn; LOCK=FILE is held around each timed run, on a machine that is shared.
# ROWS=links is a table of its own, over slow links: links.sh.
[ "${ROWS:-}" != links ] || exec "$(dirname "$0")/links.sh"
. "$(dirname "$0")/bench_lib.sh"
needs ip tc taskset jq
ns=(cvs0n$$ cvs1n$$)
leave() {
    for n in "${ns[@]}"; do
        ip netns pids "$n" 2>/dev/null | xargs -r kill 2>/dev/null || true # only ours live there
        ip netns del "$n" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap leave EXIT
steps=${STEPS:-5}
grad_bytes=$((124439808 * 4)) # of GPT-2 124M
export JOB_TOKEN=a-secret-for-this-benchmark-only
job="train MODEL=gpt2 DATA=/usr/share/common-licenses BATCH_SIZE=4 SEQ_LEN=256 STEPS=$steps CACHE_DIR=$dir/cache"

make_net() {
    ip netns add "${ns[0]}" && ip netns add "${ns[1]}"
    ip link add eth0 netns "${ns[0]}" type veth peer name eth0 netns "${ns[1]}"
    for i in 0 1; do
        ip -n "${ns[$i]}" addr add 10.0.0.$((i + 1))/24 dev eth0
        ip -n "${ns[$i]}" link set eth0 up
        ip -n "${ns[$i]}" link set lo up
    done
}
# limit BYTES_PER_SECOND of payload; 0: none. A segment of 1448 bytes is 1514 on the wire.
limit() {
    for n in "${ns[@]}"; do
        tc -n "$n" qdisc del dev eth0 root 2>/dev/null || true
        [ "$1" = 0 ] || tc -n "$n" qdisc add dev eth0 root tbf rate $(($1 * 1514 / 1448))bps burst 1mb latency 200ms
    done
}
locked() { (if [ -n "${LOCK:-}" ]; then exec 9>>"$LOCK" && flock -x 9; fi; "$@"); }
# mean_ms FILE — of all steps but the first, which waits for nothing of a step before it and touches new memory.
mean_ms() { jq -s '.[1:] | map(.step_ms) | add / length' "$1"; }

run_one() { taskset -c 0 "$convoy" $job METRICS_FILE=one.jsonl >one.out 2>one.err; }
run_two() {
    local i rc=0 pids=
    for i in 1 0; do
        nsenter --net="/run/netns/${ns[$i]}" taskset -c $i "$convoy" $job N_NODES=2 NODE_ID=$i MASTER_ADDR=10.0.0.1 "$@" \
            METRICS_FILE=two$i.jsonl >two$i.out 2>two$i.err &
        pids="$pids $!"
    done
    for i in $pids; do wait "$i" || rc=$?; done
    return $rc
}

one() {
    rm -f one.jsonl
    run_one || die "training failed: one node"
    mean_ms one.jsonl >one.ms
}
# two SETTING… — the mean step in two.ms, the share of communication that was hidden in two.hidden.
two() {
    rm -f two?.jsonl
    run_two "$@" || die "training failed: $*"
    mean_ms two0.jsonl >two.ms
    jq -s '.[1:] | (map(.wait_ms) | add) as $w | (map(.comm_ms) | add) as $c | if $c > 0 then 100 * (1 - $w / $c) else 0 end | if . < 0 then 0 else . end | round' \
        two0.jsonl >two.hidden
}

# row NAME GATE SETTING…
row() {
    local name=$1 gate=$2 verdict=ok ratio
    shift 2
    for _ in $(seq "${ROUNDS:-1}"); do
        locked two "$@" || exit 1
        if [ ! -s best.ms ] || awk -v a="$(cat two.ms)" -v b="$(cat best.ms)" 'BEGIN { exit !(a < b) }'; then
            cp two.ms best.ms && cp two.hidden best.hidden
        fi
    done
    ratio=$(awk -v a="$(cat one.ms)" -v b="$(cat best.ms)" 'BEGIN { printf "%.2f", 2 * a / b }')
    awk -v r="$ratio" -v g="$gate" 'BEGIN { exit !(r >= g) }' || { verdict=FAILED; failed=1; }
    printf '%-44s %8.0f %7s%% %8s %6s  %s\n' "$name" "$(cat best.ms)" "$(cat best.hidden)" "$ratio" "$gate" "$verdict"
    rm -f best.*
}
# learn — does int8 learn as well? tests/bench/learn.sh's settings on two workers of this machine, with and without.
learn() {
    local text=${TEXT:-$top/../shared/data/tinyshakespeare.txt} cut c apart verdict=ok
    if [ ! -f "$text" ]; then
        echo "loss of int8: skipped, $text is not here; TEXT=FILE names another copy"
        [ -z "${ROWS:-}" ] || failed=1 # it was asked for by name
        return 0
    fi
    cut=$(($(wc -c <"$text") * 9 / 10))
    head -c $cut "$text" >train.txt
    tail -c +$((cut + 1)) "$text" >held-out.txt
    for c in none int8; do
        "$convoy" train MODEL=gpt2-mini DATA=train.txt VAL_DATA=held-out.txt EVAL_EVERY=100 STEPS=300 N_GPU_EACH_NODE=2 \
            BATCH_SIZE=2 SEQ_LEN=256 LR=1e-3 WARMUP_STEPS=20 LR_SCHEDULE=cosine WEIGHT_DECAY=0.1 GRAD_CLIP=1 COMPRESS=$c \
            CACHE_DIR="$dir/cache" METRICS_FILE=learn.$c.jsonl >learn.out 2>learn.err || die "training failed: COMPRESS=$c"
        jq -s 'map(select(.val_loss)) | last.val_loss' learn.$c.jsonl >learn.$c
    done
    apart=$(awk -v a="$(cat learn.int8)" -v b="$(cat learn.none)" 'BEGIN { d = 100 * (a / b - 1); printf "%.2f", d < 0 ? -d : d }')
    awk -v a="$apart" 'BEGIN { exit !(a <= 1) }' || { verdict=FAILED; failed=1; }
    printf 'held-out loss after 300 steps, tinyshakespeare, gpt2-mini: int8 %.4f, none %.4f: %s%% apart, gate 1%%  %s\n' \
        "$(cat learn.int8)" "$(cat learn.none)" "$apart" "$verdict"
}
row_wanted() { wants "$1" "${ROWS:-free none bf16 int8 learn}"; }

if [ "${ROWS:-}" = learn ]; then # nothing is timed
    learn
    exit $failed
fi
make_net
sleep 1.5 # the kernel takes a second to call a new link running
locked one
printf '%-44s %8s %8s %8s %6s\n' "GPT-2 124M, B=4 T=256 on each node" "step ms" "hidden" "speed-up" "gate"
printf '%-44s %8.0f\n' "one node" "$(cat one.ms)"
row_wanted free && row "two nodes" 1.90
rate=$(awk -v b=$grad_bytes -v ms="$(cat one.ms)" 'BEGIN { printf "%.0f", b / ms * 1000 }')
limit "$rate"
printf 'link of %d MB/s: an all-reduce of %d MB takes one step\n' $((rate / 1000000)) $((grad_bytes / 1000000))
row_wanted none && row "two nodes, limited link, COMPRESS=none" 1.40
row_wanted bf16 && row "two nodes, limited link, COMPRESS=bf16" 1.75 COMPRESS=bf16
row_wanted int8 && row "two nodes, limited link, COMPRESS=int8" 1.85 COMPRESS=int8
row_wanted learn && learn
exit $failed
