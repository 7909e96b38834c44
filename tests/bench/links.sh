#!/bin/bash
# links — training over slow links, for each form of gradients: gpt2-nano, B=2, T=64 on each of 2 and 4 nodes of one core each.
# A node is a network namespace; a bridge joins them, and tc tbf gives each node's link the same rate in both directions.
# Prints for each row the time of a step, tokens/s of all nodes, what node 0 sent in a step, the bits that an element of the
# gradient took (of LOCAL_STEPS: an element of an outer step), and the held-out loss after 300 steps, which does not depend on
# the link and is measured without one; then what LINK=auto proposes, where a run has steps enough for that. Then the gates; ends with 1 when one is missed.
# Wants root, a core for each two nodes, iproute2, util-linux, jq and TEXT=FILE, a text of a megabyte to learn.
# NODES="2 4", MBITS="10 100 1000", FORMS="none int8 …" and PARTS="loss speed" choose rows. KEEP=FOLDER keeps what was measured
# and does not measure it again, so a table can be made in several runs: TABLE=1 prints it, with its gates, from there.
export LOG_LEVEL=info JOB_TOKEN=none
. "$(dirname "$0")/bench_lib.sh"
needs ip tc taskset jq
text=${TEXT:-$top/../shared/data/tinyshakespeare.txt}
all_forms="none int8 int8-zstd int4-zstd local:50 local:10+int4-zstd"
params=7357312 # of gpt2-nano
learn_steps=300 batch=2 tokens=64
[ -f "$text" ] || die "$text is not here; TEXT=FILE names a text to learn"
keep=${KEEP:-$dir/keep}
mkdir -p "$keep"
middle=cvl$$
leave() {
    local n
    for n in $(ip netns list | awk -v m="$middle" 'index($1, m) == 1 { print $1 }'); do
        ip netns pids "$n" 2>/dev/null | xargs -r kill 2>/dev/null || true # only ours live there
        ip netns del "$n" 2>/dev/null || true
    done
    rm -rf "$dir"
}
trap leave EXIT

# ---- what is compared ----

# every FORM — steps from one exchange to the next.
every() { case $1 in local:*) f=${1#local:}; echo "${f%%+*}" ;; *) echo 1 ;; esac; }
settings() { # settings FORM
    case $1 in
        none | int8 | int8-zstd | int4-zstd) echo "COMPRESS=$1" ;;
        local:*+*) echo "LOCAL_STEPS=$(every "$1") OUTER_LR=1 OUTER_MOMENTUM=0 $(settings "${1#*+}")" ;;
        local:*) echo LOCAL_STEPS=$(every "$1") OUTER_LR=1 OUTER_MOMENTUM=0 ;;
        *) die "no form $1; there are: $all_forms" ;;
    esac
}
# steps_of FORM MBITS — few where each takes long; with LOCAL_STEPS one outer step or two, and all before them.
steps_of() {
    case $1-$2 in
        local:10+*) echo 20 ;;
        local:*) every "$1" ;;
        none-10) echo 2 ;;
        int8-10) echo 3 ;;
        none-100) echo 7 ;; # as many as LINK=auto looks at, and one
        *) echo 10 ;;
    esac
}

# ---- nodes ----

net() { # net N
    local i
    ip netns add $middle
    ip -n $middle link add br0 type bridge
    ip -n $middle link set br0 up
    for ((i = 0; i < $1; i++)); do
        ip netns add $middle-$i
        ip link add eth0 netns $middle-$i type veth peer name p$i netns $middle
        ip -n $middle link set p$i master br0 up
        ip -n $middle-$i addr add 10.0.0.$((i + 1))/24 dev eth0
        ip -n $middle-$i link set eth0 up
        ip -n $middle-$i link set lo up
    done
    for ((i = 0; i < $1 * 100; i++)); do # the kernel takes a second to call a new link running
        [ "$(ip -n $middle -j -d link show type veth | jq -r '.[].linkinfo.info_slave_data.state' | grep -c forwarding)" != "$1" ] || return 0
        sleep 0.1
    done
    die "the links of $1 nodes do not become ready"
}
unnet() { # unnet N
    local i
    for ((i = 0; i < $1; i++)); do ip netns del $middle-$i; done
    ip netns del $middle
}
# limit N MBITS — what a port sends at once is what the link carries in 4 ms, and at least a segment as large as veth makes them.
limit() {
    local i burst=$(($2 * 500))
    [ $burst -ge 65536 ] || burst=65536
    for ((i = 0; i < $1; i++)); do
        tc -n $middle-$i qdisc replace dev eth0 root tbf rate "$2mbit" burst $burst latency 100ms
        tc -n $middle qdisc replace dev p$i root tbf rate "$2mbit" burst $burst latency 100ms
    done
}
# nodes N WHERE SETTING… — WHERE is net, or none for this machine's own network. Metrics and log of node 0: m.jsonl, log.
nodes() {
    local n=$1 where=$2 i rc=0 pids="" port=$((20000 + RANDOM % 20000)) at
    shift 2
    rm -f m.jsonl
    for ((i = n - 1; i >= 0; i--)); do
        at="taskset -c $((i % $(nproc)))" master=127.0.0.1
        [ "$where" = none ] || at="nsenter --net=/run/netns/$middle-$i $at" master=10.0.0.1
        $at "$convoy" train MODEL=gpt2-nano DATA=train.txt BATCH_SIZE=$batch SEQ_LEN=$tokens LR=1e-3 \
            CACHE_DIR="$dir/cache" N_NODES="$n" NODE_ID=$i MASTER_ADDR=$master MASTER_PORT=$port "$@" \
            $([ $i != 0 ] || echo METRICS_FILE=m.jsonl) >out.$i 2>log.$i &
        pids="$pids $!"
    done
    for i in $pids; do wait "$i" || rc=$?; done
    [ $rc = 0 ] || { tail -n 5 log.* >&2; die "training failed with $rc: $*"; }
    cp log.0 log
}

# ---- measured once, kept in files ----

# speed N MBITS FORM — "step_ms sent_bytes": means of all steps but the first, which touches new memory.
speed() {
    local file=$keep/speed.$1.$2.$3 steps
    [ ! -s "$file" ] || return 0
    steps=$(steps_of "$3" "$2")
    limit "$1" "$2"
    nodes "$1" net STEPS="$steps" $(settings "$3") $([ "$3" != none ] || echo LINK=auto)
    [ "$3" != none ] || sed -n 's/.*LINK=auto: .*; proposed: //p' log >"$keep/proposed.$1.$2"
    jq -s -r 'map(select(.step_ms))[1:] | [(map(.step_ms) | add / length), (map(.sent_bytes) | add / length)] | @tsv' m.jsonl >"$file.new"
    mv "$file.new" "$file"
}
# row_bytes — what rows of tokens took beside compressed gradients, by the log: "rows of tokens: this worker sent 11.3 MiB, …".
row_bytes() {
    awk '/rows of tokens: this worker sent/ { sub(/.* sent /, ""); split("B KiB MiB GiB", unit); sub(/,$/, "", $2)
        for (i in unit) if (unit[i] == $2) b = $1 * 1024 ^ (i - 1) } END { printf "%.0f", b }' log
}
# loss N FORM — "held-out-loss bits bytes row-bytes": bits of an element by the log, bytes sent in all steps.
loss() {
    local file=$keep/loss.$1.$2
    [ ! -s "$file" ] || return 0
    nodes "$1" none STEPS=$learn_steps WARMUP_STEPS=20 VAL_DATA=held-out.txt EVAL_EVERY=$learn_steps $(settings "$2")
    printf '%s %s %s %s\n' "$(jq -s 'map(select(.val_loss)) | last.val_loss' m.jsonl)" \
        "$(awk '/of gradients, [0-9.]+ bits an element/ { for (i = 2; i <= NF; i++) if ($i == "bits") b = $(i - 1) } END { print b + 0 ? b : 32 }' log)" \
        "$(jq -s 'map(.sent_bytes // 0) | add' m.jsonl)" "$(row_bytes)" >"$file.new"
    mv "$file.new" "$file"
}

# ---- table and gates ----

gate() { # gate WHAT VALUE RELATION BOUND
    awk -v v="$2" -v r="$3" -v b="$4" 'BEGIN { exit !(r == ">=" ? v >= b : v <= b) }' && verdict=pass || { verdict=MISS; failed=1; }
    printf '%-92s %10s %s %-6s %s\n' "$1" "$2" "$3" "$4" "$verdict"
}
value() { cut -d' ' -f"$2" "$keep/$1" 2>/dev/null | tr '\t' ' ' | cut -d' ' -f1; }
apart() { awk -v a="$1" -v b="$2" 'BEGIN { d = 100 * (a / b - 1); printf "%.2f", d < 0 ? -d : d }'; }
row() { # row N MBITS FORM
    local ms sent
    [ -s "$keep/speed.$1.$2.$3" ] || return 0
    read -r ms sent <"$keep/speed.$1.$2.$3"
    awk -v n="$1" -v m="$2" -v f="$3" -v ms="$ms" -v sent="$sent" -v t=$((batch * tokens)) \
        -v base="$(cut -f1 "$keep/speed.$1.$2.none" 2>/dev/null || true)" -v bits="$(value "loss.$1.$3" 2)" -v loss="$(value "loss.$1.$3" 1)" \
        'BEGIN { printf "%5d %9d  %-18s %9.1f %9.0f %8s %10.4f %8s %9s\n", n, m, f, ms, n * t / ms * 1000, base ? sprintf("%.1f", base / ms) : "-", \
                 sent / 1e6, bits ? sprintf("%.3f", bits) : "-", loss ? sprintf("%.4f", loss) : "-" }'
}
table() {
    local n m f
    printf '%5s %9s  %-18s %9s %9s %8s %10s %8s %9s\n' nodes Mb/s form "step ms" tokens/s "x none" MB/step bits "held-out"
    for n in ${NODES:-2 4}; do for m in ${MBITS:-10 100 1000}; do for f in ${FORMS:-$all_forms}; do row "$n" "$m" "$f"; done; done; done
    for n in ${NODES:-2 4}; do for m in ${MBITS:-10 100 1000}; do
        [ ! -s "$keep/proposed.$n.$m" ] || printf '%5d %9d  LINK=auto proposes %s\n' "$n" "$m" "$(cat "$keep/proposed.$n.$m")"
    done; done
}
# sent_formula N FORM — bytes that a node sends in $learn_steps steps, without headers of calls: 2 (N-1)/N of the parameters at
# so many bits, in every step or every outer step, and with LOCAL_STEPS eight numbers of eight bytes to each other node; and rows of
# tokens.
sent_formula() {
    awk -v n="$1" -v f="$2" -v p=$params -v bits="$(value "loss.$1.$2" 2)" -v s=$learn_steps -v h="$(every "$2")" \
        -v rows="$(value "loss.$1.$2" 4)" 'BEGIN { l = f ~ /^local/; printf "%.0f", rows + 2 * (n - 1) / n * p * bits / 8 * (l ? s / h : s) + (l ? 64 * (n - 1) * s : 0) }'
}
gates() {
    local n f
    for n in ${NODES:-2 4}; do
        [ -s "$keep/loss.$n.none" ] || continue
        if [ -s "$keep/loss.$n.int8-zstd" ]; then
            gate "$n nodes: bits an element of int8-zstd" "$(value "loss.$n.int8-zstd" 2)" "<=" 5.5
            gate "$n nodes: held-out loss of int8-zstd beside none, % apart" \
                "$(apart "$(value "loss.$n.int8-zstd" 1)" "$(value "loss.$n.none" 1)")" "<=" 1
        fi
        for f in ${FORMS:-$all_forms}; do
            case $f in local*) ;; *) continue ;; esac
            [ -s "$keep/loss.$n.$f" ] || continue
            gate "$n nodes: held-out loss of $f beside none, % apart" "$(apart "$(value "loss.$n.$f" 1)" "$(value "loss.$n.none" 1)")" "<=" 2
            [ -s "$keep/speed.$n.100.$f" ] || continue
            gate "$n nodes, 100 Mb/s: tokens/s of $f, times none" \
                "$(awk -v a="$(cut -f1 "$keep/speed.$n.100.none")" -v b="$(cut -f1 "$keep/speed.$n.100.$f")" 'BEGIN { printf "%.1f", a / b }')" ">=" 20
        done
        for f in ${FORMS:-$all_forms}; do
            [ -s "$keep/loss.$n.$f" ] || continue
            gate "$n nodes: bytes sent by $f in $learn_steps steps beside the formula, % apart" \
                "$(apart "$(value "loss.$n.$f" 3)" "$(sent_formula "$n" "$f")")" "<=" 0.5
        done
    done
}

measure() {
    local n m f
    for n in ${NODES:-2 4}; do
        wants loss "${PARTS:-loss speed}" && for f in ${FORMS:-$all_forms}; do loss "$n" "$f"; done
        wants speed "${PARTS:-loss speed}" || continue
        net "$n"
        for m in ${MBITS:-10 100 1000}; do for f in ${FORMS:-$all_forms}; do speed "$n" "$m" "$f"; done; done
        unnet "$n"
    done
}
cut=$(($(wc -c <"$text") * 9 / 10))
head -c $cut "$text" >train.txt
tail -c +$((cut + 1)) "$text" >held-out.txt
[ "${TABLE:-}" = 1 ] || measure
table
gates
exit $failed
