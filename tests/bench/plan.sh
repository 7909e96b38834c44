#!/bin/bash
# plan — plans of training runs on this machine beside the runs themselves: the time of a step, and the memory of all processes. The
# machine is measured once for each number of workers (convoy check OUT=), and no run changes what was measured. Prints a JSON object a
# row, at the end the largest errors; ends with 1 when a gate is missed. Wants a quiet machine; some five minutes on two cores.
#   ROWS="1 2 4 large other threads"  rows of so many workers with a thread each, of small models; large: models of 124 and 135 million
#                       parameters; other: models of other families and widths; threads: one worker with a thread on each core
#   MACHINES=DIR        keeps the measured machines there, and uses those that are there
#   STEPS=8             steps of a run; the fastest of all but the first two counts
# With BUILD=DIR it runs that build.
. "$(dirname "$0")/bench_lib.sh"
needs jq
export OMP_NUM_THREADS=1
pid=
trap '[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true; rm -rf "$dir"' EXIT
machines=${MACHINES:-$dir/machines} steps=${STEPS:-8}
mkdir -p "$machines"
: >rows

# machine WORKERS — the file of this machine with so many, of $OMP_NUM_THREADS threads; measured at first use.
machine() {
    local file=$machines/$1x$OMP_NUM_THREADS.json
    [ -s "$file" ] || "$convoy" check CHECK=quick BUDGET=15s OUT="$file" DEVICE=cpu N_GPU_EACH_NODE="$1" >out 2>err || true # a row may fail
    [ -s "$file" ] || die "the machine cannot be measured with $1 workers"
    echo "$file"
}

# peak PID — KIB and KIB of pages of files: as tests/e2e/test_memory_mesh.sh has it.
declare -A files
look() {
    local p kib
    for p in "$pid" $(pgrep -P "$pid"); do
        kib=$(awk '$1 == "RssFile:" { print $2 }' "/proc/$p/status" 2>/dev/null || true)
        [ "${kib:-0}" -le "${files[$p]:-0}" ] || files[$p]=$kib
    done
}
peak() {
    awk -v file="${files[$1]:-0}" '{ kib[$1] = $2 } END {
        print kib["VmHWM:"] - file - kib["RssShmem:"] + kib["Pss_Shmem:"], file }' "/proc/$1/status" "/proc/$1/smaps_rollup"
}
# held_bytes — bytes of the supervisor and all workers; pages of files count once.
held_bytes() {
    for p in "$pid" $(pgrep -P "$pid"); do peak "$p"; done |
        awk '{ kib += $1; if ($2 > file) file = $2 } END { printf "%.0f\n", 1024 * (kib + file) }'
}

# run SETTING… — ms, bytes: the fastest step, which other processes disturbed least; the peak of memory.
run() {
    : >lines
    files=()
    "$convoy" train STEPS=1000000 METRICS_FILE=lines LOG_LEVEL=warn "$@" >out 2>err &
    pid=$!
    while [ "$(wc -l <lines)" -lt "$steps" ]; do
        kill -0 "$pid" 2>/dev/null || die "training failed: $*"
        look
        sleep 0.1
    done
    bytes=$(held_bytes)
    kill -TERM "$pid"
    wait "$pid" || [ $? = 143 ] || die "the run did not stop well: $*"
    pid=
    ms=$(jq -s '.[2:] | map(.step_ms) | min' lines)
}

# row WORKERS SETTING… — planned beside measured.
row() {
    local workers=$1 plan line
    shift
    set -- DATA=synthetic CACHE_DIR="$dir/cache" N_GPU_EACH_NODE="$workers" "$@"
    plan=$("$convoy" plan CLUSTER="$(machine "$workers")" JSON=1 LOG_LEVEL=warn "$@" 2>err) || die "planning failed: $*"
    run DEVICE=cpu "$@"
    line=$(jq -cn --argjson plan "$plan" --argjson ms "$ms" --argjson bytes "$bytes" --argjson workers "$workers" \
        --arg settings "$(printf '%s\n' "${@:4}" | paste -sd' ')" '
        def off(a; b): 100 * (a / b - 1) * 10 | round / 10;
        {workers: $workers, threads: env.OMP_NUM_THREADS, settings: $settings, measured_ms: $ms, planned_ms: ($plan.step_ms.all * 100 | round / 100),
         off_percent: off($plan.step_ms.all; $ms), measured_mib: ($bytes / 1048576 | round),
         planned_mib: ($plan.memory.need_bytes / 1048576 | round), memory_off_percent: off($plan.memory.need_bytes; $bytes),
         terms: ($plan.step_ms | map_values(. * 100 | round / 100))}')
    echo "$line" | tee -a rows
}

small() {
    local nano="MODEL=gpt2-nano SEQ_LEN=256" mini="MODEL=gpt2-mini SEQ_LEN=128"
    case $1 in
    1)
        row 1 $nano BATCH_SIZE=1 GLOBAL_BATCH=1
        row 1 $nano BATCH_SIZE=4 GLOBAL_BATCH=8
        row 1 MODEL=gpt2-nano SEQ_LEN=1024 BATCH_SIZE=1 GLOBAL_BATCH=1 RECOMPUTE=block
        row 1 $mini BATCH_SIZE=2 GLOBAL_BATCH=2
        row 1 $mini BATCH_SIZE=1 GLOBAL_BATCH=2 OPTIMIZER=sgd ;;
    2)
        for shard in none optimizer gradients full; do row 2 $mini BATCH_SIZE=1 GLOBAL_BATCH=2 SHARD=$shard; done
        row 2 $nano BATCH_SIZE=2 GLOBAL_BATCH=8
        row 2 $mini BATCH_SIZE=2 GLOBAL_BATCH=2 TP=2
        row 2 $mini BATCH_SIZE=1 GLOBAL_BATCH=8 PP=2
        row 2 MODEL=gpt2-mini SEQ_LEN=512 BATCH_SIZE=1 GLOBAL_BATCH=1 CP=2 ;;
    4)
        row 4 $nano BATCH_SIZE=1 GLOBAL_BATCH=4
        row 4 $mini BATCH_SIZE=1 GLOBAL_BATCH=4 SHARD=full
        row 4 $mini BATCH_SIZE=2 GLOBAL_BATCH=4 TP=2
        row 4 $mini BATCH_SIZE=1 GLOBAL_BATCH=8 PP=2 TP=2 ;;
    esac
}
large() {
    row 1 MODEL=gpt2 SEQ_LEN=256 BATCH_SIZE=1 GLOBAL_BATCH=1
    row 1 MODEL=smollm2-135m SEQ_LEN=256 BATCH_SIZE=1 GLOBAL_BATCH=1
    row 2 MODEL=gpt2 SEQ_LEN=64 BATCH_SIZE=2 GLOBAL_BATCH=4
    row 2 MODEL=gpt2 SEQ_LEN=64 BATCH_SIZE=4 GLOBAL_BATCH=4 TP=2
    row 2 MODEL=smollm2-135m HEADS=8 KV_HEADS=4 HEAD_DIM=64 SEQ_LEN=64 BATCH_SIZE=4 GLOBAL_BATCH=4 TP=2
}
other() {
    row 1 MODEL=llama-3.2-1b LAYERS=4 EMBED=512 HEADS=8 KV_HEADS=2 HEAD_DIM=64 SEQ_LEN=192 BATCH_SIZE=2 GLOBAL_BATCH=4
    row 2 MODEL=pythia-70m SEQ_LEN=256 BATCH_SIZE=1 GLOBAL_BATCH=2
}
for group in ${ROWS:-1 2 4 large other threads}; do
    case $group in
    1 | 2 | 4) small "$group" ;;
    large) large ;;
    other) other ;;
    threads) OMP_NUM_THREADS=$(env -u OMP_NUM_THREADS nproc) small 1 ;; # nproc reads it, too
    *) die "$group is no group of rows" ;;
    esac
done
jq -s '{rows: length, step_time_off_most: (map(.off_percent | fabs) | max), memory_off_most: (map(.memory_off_percent | fabs) | max)}' rows
jq -es 'all(.[]; (.off_percent | fabs) <= 10 and (.memory_off_percent | fabs) <= 2)' rows >/dev/null || failed=1
exit $failed
