#!/bin/bash
# test_memory_mesh — what the workers of a node take together, at their peaks, is the plan within 2 %: with TP, PP, both TP and
# SHARD=full, CP, and adapters. test_memory has what is refused.
. "$(dirname "$0")/lib.sh"
[ -z "${SAN:-}" ] || give_up "memory taken by meshes" "a sanitizer takes memory of its own"
grep -q '^Pss_Shmem:' /proc/self/smaps_rollup 2>/dev/null || give_up "memory taken by meshes" "no Pss_Shmem in /proc/PID/smaps_rollup"
export LOG_LEVEL=debug OMP_NUM_THREADS=1
# Large beside the program, small beside any machine: 27 million parameters.
large="MODEL=gpt2-nano LAYERS=2 EMBED=1024 HEADS=16 VOCAB=2048 CONTEXT=64 SEQ_LEN=32 BATCH_SIZE=1 RECOMPUTE=light STEPS=1000"

# peak PID — "KIB FILE_KIB": the most that a process had to itself, with its share of memory that workers share; and its pages of
# files (the program, libraries). Other processes map the same files, so these count once on a node.
peak() {
    awk -v file="${files[$1]}" '{ kib[$1] = $2 } END {
        if (!kib["VmHWM:"]) exit 1
        print kib["VmHWM:"] - file - kib["RssShmem:"] + kib["Pss_Shmem:"], file }' \
        "/proc/$1/status" "/proc/$1/smaps_rollup"
}
# look — files[PID]: the most pages of files that a process had so far. VmHWM is of the past and has them; where memory is short
# the kernel takes some back before the peaks are read.
declare -A files
look() {
    local p kib
    for p in $pid $(workers_of "$pid"); do
        kib=$(awk '$1 == "RssFile:" { print $2 }' "/proc/$p/status" 2>/dev/null)
        [ "${kib:-0}" -le "${files[$p]:-0}" ] || files[$p]=$kib
    done
}
# peaks — of the supervisor and all workers.
peaks() { for p in $pid $(workers_of "$pid"); do peak "$p" || echo failed; done; }
# Rank 0 is through the second step: so all ranks are through the first one, with its update.
second_step() { look; grep -q '^step 2/' out; }
# check_planned WORKERS SETTING… — begins, reads the peaks after the first step of all ranks, stops.
check_planned() {
    local workers=$1 all planned
    shift
    files=()
    begin $large N_GPU_EACH_NODE="$workers" "$@"
    wait_for 30 second_step
    all=$(peaks)
    stop
    planned=$(sed -n 's/.* memory planned: \([0-9]*\) KiB$/\1/p' err)
    ok "$*: trains, and $workers workers and the supervisor are read" is "$rc $(grep -cE '^[0-9]+ [0-9]+$' <<<"$all")" "143 $((workers + 1))"
    ok "$*: planned is what is taken within 2 %" awk -v planned="$planned" '
        { taken += $1; if ($2 > file) file = $2 }
        END {
            taken += file
            off = (planned - taken) / taken
            printf "# planned %.1f MiB, taken %.1f MiB: %+.2f %%\n", planned / 1024, taken / 1024, 100 * off
            exit !(taken > 500 * 1024 && off < 0.02 && off > -0.02)
        }' <<<"$all"
}

check_planned 2 TP=2
check_planned 2 PP=2 GLOBAL_BATCH=4
check_planned 4 TP=2 SHARD=full
check_planned 2 CP=2
# An adapter: most memory is of frozen weights and activations.
try "a model for an adapter is written" 0 -- train $large LAYERS=8 STEPS=1 OPTIMIZER=sgd CHECKPOINT_DIR=base
large="MODEL=base SEQ_LEN=32 BATCH_SIZE=1 RECOMPUTE=light STEPS=1000"
check_planned 2 LORA=16 SHARD=full
check_planned 2 LORA=16 TP=2
done_testing
