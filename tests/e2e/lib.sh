# lib — what the end-to-end tests share: TAP, a temporary folder, a tiny model, processes that end with the test. Source it,
# call ok() for each point, end with `done_testing`.
set -u
export LC_ALL=C
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
convoy=$root/${BUILD:-build}/convoy
case ${BUILD:-build} in /*) convoy=$BUILD/convoy ;; esac
# EMULATED=1 — the program on emulated GPUs (tests/gpu/emulated.c), for scripts whose job then has DEVICE=cuda.
[ "${EMULATED:-0}" = 0 ] || convoy=${convoy%/*}/gpu/convoy_emulated
tmp=$(mktemp -d "${TMPDIR:-/tmp}/convoy-e2e-XXXXXX")
cd "$tmp" || exit 99
user_cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache} # for what takes long to make anew
export XDG_CACHE_HOME=$tmp/cache NO_COLOR=1
unset MODEL VAL_DATA CHECKPOINT_DIR METRICS_FILE STATUS_PORT FAULT STEPS
export DATA=synthetic LOG_EVERY=1 # unless a test says otherwise in its arguments
started=()
n=0
processors=$(nproc)

# processor_ticks — of all processors since the machine began, in 1/100 s: "BUSY STOLEN"; stolen: a virtual machine wanted to run, and
# its host let others.
processor_ticks() {
    local user nice system irq softirq stolen
    read -r _ user nice system _ _ irq softirq stolen _ </proc/stat
    stolen=${stolen:-0}
    echo "$((user + nice + system + irq + softirq + stolen)) $stolen"
}
ticks_at_start=$(processor_ticks)
# slow — how many processes want each processor of the machine, at least 1, and more where a virtual machine's host takes processors away;
# the most that this test saw, so that a limit that was set by it and one by which that is judged fit. Every limit of time is multiplied by it.
slow() {
    local minute now most=1 busy stolen own
    read -r minute _ _ now _ </proc/loadavg
    minute=${minute%.*} now=${now%/*}
    [ "$now" -gt "$minute" ] || now=$minute
    now=$((now > processors ? (now + processors - 1) / processors : 1))
    read -r busy stolen < <(processor_ticks)
    busy=$((busy - ${ticks_at_start% *})) stolen=$((stolen - ${ticks_at_start#* }))
    own=$((busy - stolen > busy / 10 ? busy - stolen : busy / 10))
    [ "$busy" -lt 100 ] || now=$(((now * busy + own / 2) / own))
    [ ! -s "$tmp/.slow" ] || read -r most <"$tmp/.slow"
    if [ $now -gt "${most:-1}" ]; then echo $now >"$tmp/.slow"; else now=${most:-1}; fi
    echo $now
}
secs() { echo "$(($1 * $(slow)))s"; }                                    # secs N — N seconds on a quiet machine, as a setting
# patience_for FAULT — STEP_TIMEOUT of a run with this fault: short where a stall is to be found, long where a machine that stands still for
# a moment would only add another restart.
patience_for() { case $1 in stall*) secs 2 ;; *) secs 20 ;; esac; }
limit() { local s=$1; shift; timeout --foreground $((s * $(slow))) "$@"; } # limit SECONDS COMMAND…
# within TOOK_MS LIMIT_MS — no longer than that on a quiet machine.
within() {
    local most=$(($2 * $(slow)))
    [ "$1" -le $most ] || { echo "# took $1 ms, at most $most ms at this load"; false; }
}

cleanup() {
    for p in ${started[@]+"${started[@]}"}; do
        kill -CONT "$p" 2>/dev/null
        kill -KILL "$p" 2>/dev/null
    done
    cd /
    free_ports
    # What is mounted under it, the innermost first; its name has nothing that /proc/self/mounts would write otherwise.
    awk -v top="$tmp/" 'index($2, top) == 1 { print $2 }' /proc/self/mounts | tac | while read -r m; do umount "$m" || umount -l "$m"; done 2>/dev/null
    rm -rf --one-file-system "$tmp"
}
trap cleanup EXIT

# A model of a few thousand parameters: a step takes a fraction of a millisecond.
tiny="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 LR=1e-3"
quiet="STATUS_PORT=0"

# ok NAME COMMAND… — one TAP line; the output of the last run follows when the command fails.
ok() {
    local name=$1
    shift
    n=$((n + 1))
    if "$@"; then
        echo "ok $n - $name"
    else
        echo "not ok $n - $name"
        echo "# failed: $*"
        [ -f err ] && tail -n 12 err | sed 's/^/# err: /'
        [ -f out ] && tail -n 3 out | sed 's/^/# out: /'
    fi
    return 0
}
now_ms() { echo $(($(date +%s%N) / 1000000)); }
is() { [ "$1" = "$2" ] || { echo "# got '$1', expected '$2'"; false; }; }
says() { grep -qF -- "$1" err || { echo "# err does not say '$1'"; false; }; }  # says TEXT
said() { grep -qF -- "$1" err; } # the same without a word, for wait_for
shows() { grep -qE -- "$1" out || { echo "# out does not show '$1'"; false; }; } # shows REGEX
holds() { jq -s -e "$2" "$1" >/dev/null || { echo "# $1: $2 is not so"; false; }; } # holds FILE JQ, lines as one array
skip() { n=$((n + 1)); echo "ok $n - $1 # SKIP $2"; }
done_testing() { echo "1..$n"; }
# give_up WHAT WHY — the rest cannot be tried here; before the first point prove prints why.
give_up() {
    if [ $n = 0 ]; then echo "1..0 # SKIP $1: $2"; else skip "$1" "$2"; done_testing; fi
    exit
}
there() { local p; for p in "$@"; do command -v "$p" >/dev/null || return 1; done; } # there PROGRAM…: all of them
# extra WHAT COMMAND… — the rest needs WHAT, which COMMAND finds and `make test-all` installs; a test installs nothing.
extra() {
    local what=$1
    shift
    "$@" >out 2>err || give_up "$what" "not installed here; \`make test-all\` installs it"
}
# near A B LIMIT — every loss of A and B, relative.
near() {
    paste <(jq .loss "$1") <(jq .loss "$2") | awk -v limit="$3" '
        { d = ($1 - $2) / $1; if (d < 0) d = -d; if (d > worst) worst = d; n++ }
        END { printf "# %d losses, %.2g apart at most\n", n, worst; exit !(n > 0 && worst <= limit) }'
}
# losses_near FILE LIMIT NAME SETTING… — a run has the losses of FILE, as near says.
losses_near() {
    rm -f near.jsonl
    run "${@:4}" METRICS_FILE=near.jsonl
    ok "$3" near "$1" near.jsonl "$2"
}
# heals JOB FAULT… — each of these faults in step 21 of 30, "kill" or "kill:rank=1": one restart from step 16, the bits of a run without.
heals() {
    local job=$1 f
    shift
    run $job STEPS=30 METRICS_FILE=calm.jsonl CHECKPOINT_DIR=calm
    for f; do
        run $job STEPS=30 METRICS_FILE=$f.jsonl CHECKPOINT_DIR=$f CHECKPOINT_EVERY=8 FAULT=${f%%:*}@step=21${f#"${f%%:*}"} STEP_TIMEOUT=$(patience_for "$f")
        ok "FAULT=$f: heals by one restart from step 16" is "$rc $(grep -cE ' warn .*after step 2[01].*restart 1 of 3' err) $(
            grep -c 'resuming from .*: step 16 of 30' err)" "0 1 1"
        ok "FAULT=$f: losses and weights bit for bit" is "$(losses $f.jsonl | cksum) $(weights $f/step-00000030)" \
            "$(losses calm.jsonl | cksum) $(weights calm/step-00000030)"
    done
}
# block NAME — the commands behind <!-- NAME --> in README.md or in a page of docs.
block() { awk -v mark="<!-- $1 -->" '$0 == mark { on = 1 } on && /^```$/ { exit } on && !/^(<!--|```)/ { print }' "$root/README.md" "$root"/docs/*.md; }

# work COMMAND SETTING… — to the end; $rc, files out and err. run SETTING… — train.
work() {
    local command=$1
    shift
    [ "$command" != train ] || set -- $quiet "$@"
    rc=0
    "$convoy" "$command" "$@" >out 2>err || rc=$?
}
run() { work train "$@"; }
# ended CODE TEXT… — the last one ended with CODE, and of each TEXT, a basic regular expression, err has one line, of !TEXT none;
# where CODE is not 0 err has one line of level error, and that line is meant.
ended() {
    local text lines
    is "$rc" "$1" || return 1
    lines=$(if [ "$rc" = 0 ]; then cat err; else grep " error " err; fi)
    [ "$rc" = 0 ] || is "$(wc -l <<<"$lines")" 1 || return 1
    for text in "${@:2}"; do
        is "$(grep -c -- "${text#!}" <<<"$lines")" "$([[ $text = !* ]]; echo $?)" || { echo "# of '$text'"; return 1; }
    done
}
# try NAME CODE TEXT… -- COMMAND SETTING… — works, and compares how it ended, as one point.
try() {
    local name=$1 how=()
    shift
    while [ "$1" != -- ]; do
        how+=("$1")
        shift
    done
    work "${@:2}"
    ok "$name" ended "${how[@]}"
}
# track — the process begun last is $pid, and ends with the test.
track() {
    pid=$!
    started+=("$pid")
}
# begin SETTING… — in the background; $pid; $in: what to run it in ("" or "nice").
begin() {
    : >out >err # here, for the process may be slow to: what stood in them is of another run
    ${in:-} "$convoy" train $quiet "$@" >out 2>err &
    track
}
# finish — wait for $pid; $rc.
finish() {
    rc=0
    wait "$pid" 2>/dev/null || rc=$?
}
# begin_training SETTING… — begin, and wait for the first step. stop [SIGNAL] — TERM, or this one, to $pid; $rc.
begin_training() {
    begin "$@"
    wait_for 30 is_training
}
stop() {
    kill "-${1:-TERM}" "$pid"
    finish
}
# A run with its page at $port: begin_served SETTING…; get PATH; code CURL-ARGUMENT…, its answer in the file body; status_has JQ, of
# the answer that is in status.json then.
begin_served() { quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port" begin "$@"; }
get() { curl -s --max-time 60 "http://127.0.0.1:$port$1"; }
code() { curl -s -o body --max-time 60 -w '%{http_code}' "$@"; }
status_has() { get /status >status.json && [ "$(jq -r "$1" status.json 2>/dev/null)" = true ]; }
# workers_of PID — the processes it started, oldest first; /proc's own list of children misses some while others come and go.
workers_of() { echo $(ps -o pid= --ppid "$1" --sort start_time,pid); }
worker_of() { workers_of "$1"; }
# wait_for SECONDS COMMAND… — until the command succeeds, or the process begun last has ended without that.
wait_for() {
    local left=$(($1 * 20 * $(slow)))
    shift
    until "$@"; do
        left=$((left - 1))
        if [ $left -le 0 ] || { [ "$1" != is_gone ] && is_gone "${pid:-0}" && ! "$@"; }; then
            echo "# waited in vain for: $*"
            return 1
        fi
        sleep 0.05
    done
}
has_worker() { worker=$(worker_of "$pid"); [ -n "$worker" ]; }
is_training() { has_worker && grep -q '^step ' out; }
is_gone() { [ ! -d "/proc/$1" ] || grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null; }
# free_port — below the range from which the kernel takes those of outgoing connections (32768 on), which ss -l does not list.
# It is this test's until it ends: tests that run beside it, whose nodes have the same token, get others.
ports=${TMPDIR:-/tmp}/convoy-test-ports-$(id -u)
free_port() {
    local p owner
    mkdir -p "$ports"
    while :; do
        p=$((10000 + RANDOM % 22000))
        owner=$(cat "$ports/$p" 2>/dev/null) && kill -0 "$owner" 2>/dev/null && continue
        [ -z "$owner" ] || rm -f "$ports/$p"
        (set -C && echo $$ >"$ports/$p") 2>/dev/null || continue
        ss -Hltn "sport = :$p" 2>/dev/null | grep -q . || { echo $p; return; }
    done
}
free_ports() { grep -lxF $$ "$ports"/* 2>/dev/null | xargs -r rm -f; }
# losses FILE — what must repeat bit for bit: all but the time of a step.
losses() { sed 's/,"step_ms":.*//' "$1"; }
weights() { cat "$1"/*.safetensors | cksum; }
steps_of() { grep -c '"loss":' "$1"; }
newest() { ls "$1" 2>/dev/null | grep '^step-' | sort | tail -n 1; }
newest_step() { newest "$1" | sed 's/^step-0*//'; }
# tokens MAGIC VERSION COUNT IDS… — an llm.c token file: 256 int32 words of head, then uint16 ids.
tokens() { perl -e 'print pack("l<256 v*", splice(@ARGV, 0, 3), (0) x 253, @ARGV)' "$@"; }
