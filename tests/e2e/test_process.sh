#!/bin/bash
# test_process — limits and signals of a process: a terminal that hangs up, limits of files, what a process may not give away.
. "$(dirname "$0")/lib.sh"
endless="$tiny STEPS=100000000"

# 1. A terminal that hangs up is a SIGTERM; under nohup it is nothing.
begin $endless CHECKPOINT_DIR=hup METRICS_FILE=hup.jsonl
wait_for 20 is_training
kill -HUP "$pid"
finish
ok "SIGHUP while training: 143" is "$rc" 143
ok "with a checkpoint of the last step" is "$(newest_step hup)" "$(tail -n 1 hup.jsonl | jq .step)"
ok "and says which signal" says 'SIGTERM (by SIGHUP): stopping after this step and a checkpoint'
: >out >err
(trap '' HUP; exec "$convoy" train $quiet $endless CHECKPOINT_DIR=nohup >out 2>err) &
pid=$!
started+=("$pid")
wait_for 20 is_training
kill -HUP "$pid"
sleep 0.5
ok "SIGHUP that nohup has ignored is ignored" kill -0 "$pid"
kill -TERM "$pid"
finish
ok "and SIGTERM still ends it: 143" is "$rc" 143
begin $endless CHECKPOINT_DIR=group
wait_for 20 is_training
kill -HUP "$pid" $(pgrep -P "$pid")
finish
ok "SIGHUP to the whole group, workers too: 143" is "$rc" 143

# 2. A file that may not grow (RLIMIT_FSIZE) is an error of storage, with its remedy.
limited() { # limited KIB COMMAND… — $rc
    local kib=$1
    shift
    rc=0
    (ulimit -f "$kib" && exec "$convoy" "$@" >out 2>err) || rc=$?
}
limited 6000 train $quiet MODEL=gpt2-nano LAYERS=1 EMBED=128 HEADS=4 VOCAB=20000 CONTEXT=16 SEQ_LEN=8 BATCH_SIZE=1 STEPS=1 CHECKPOINT_DIR=limited
ok "a checkpoint over the limit: 74" is "$rc $(grep -c 'ulimit -f' err)" "74 1"
limited 100 train $quiet $tiny STEPS=1
ok "memory to share over the limit: 74" is "$rc $(grep -c 'ulimit -f' err)" "74 1"
seq 1 60000 >numbers.txt
limited 100 tokenize DATA=numbers.txt OUT=numbers.bin
ok "tokenize over the limit: 74" is "$rc $(grep -c 'ulimit -f' err)" "74 1"
run MODEL=gpt2-nano LAYERS=1 EMBED=128 HEADS=4 VOCAB=20000 CONTEXT=16 SEQ_LEN=8 BATCH_SIZE=1 STEPS=1 CHECKPOINT_DIR=whole
limited 6000 export FROM=whole TO=exported
ok "export over the limit: 74" is "$rc $(grep -c 'ulimit -f' err)" "74 1"
run $tiny STEPS=1 METRICS_FILE=full.jsonl CHECKPOINT_DIR=going
line=$(head -n 1 full.jsonl)
yes "$line" | head -n $((6000 * 1024 / (${#line} + 1))) >full.jsonl
limited 6000 train $quiet $tiny STEPS=20 METRICS_FILE=full.jsonl CHECKPOINT_DIR=going
ok "METRICS_FILE over the limit: a warning, as on a full disk; training goes on" \
    is "$rc $(grep -c 'cannot write METRICS_FILE=full.jsonl' err) $(newest_step going)" "0 1 20"
limited 6000 train $quiet $tiny STEPS=3 TENSORBOARD_DIR=events METRICS_FILE=small.jsonl
ok "a limit that is not reached changes nothing" is "$rc $(wc -l <small.jsonl)" "0 3"

# 3. Few open files.
for files in 5 10 20; do
    rc=0
    (ulimit -n "$files" && exec "$convoy" train $quiet $tiny STEPS=1) >out 2>err || rc=$?
    ok "ulimit -n $files: 78 with the remedy" is "$rc $(grep -c 'ulimit -n' err)" "78 1"
done
rc=0
(ulimit -n 64 && exec "$convoy" train $tiny STATUS_PORT=0 STEPS=2 CHECKPOINT_DIR=few CHECKPOINT_EVERY=1 METRICS_FILE=few.jsonl VAL_DATA=synthetic EVAL_EVERY=1) >out 2>err || rc=$?
ok "ulimit -n 64 is enough for one worker" is "$rc" 0
(ulimit -S -n 64; exec "$convoy" train $quiet $endless >out 2>err) &
pid=$!
started+=("$pid")
wait_for 20 is_training
ok "a soft limit is raised" is "$(awk '/Max open files/ { print $4 }' /proc/$pid/limits)" "$(ulimit -H -n)"

# 4. What a process may not give away.
child=$(pgrep -P "$pid" | head -n 1)
for p in "$pid" "$child"; do
    who=supervisor
    [ "$p" = "$child" ] && who=worker
    ok "$who: no core dumps, into a pipe neither" is "$(awk '/Max core file size/ { print $5 }' /proc/$p/limits)" 1
    ok "$who: what it executes gains no privileges" is "$(awk '/NoNewPrivs/ { print $2 }' /proc/$p/status)" 1
done
kill -TERM "$pid"
finish
done_testing
