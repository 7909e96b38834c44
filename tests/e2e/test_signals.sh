#!/bin/bash
# test_signals — SIGTERM, SIGINT and SIGUSR1 at any moment: a checkpoint, then 143, 130 or 75, and never 0 before the training
# is finished.
. "$(dirname "$0")/lib.sh"
endless="$tiny STEPS=100000000"
declare -A code=([TERM]=143 [INT]=130 [USR1]=75)
has_checkpoint() { [ -n "$(newest "$1")" ]; }

# 1. While training: checkpoint of the last finished step, which the metrics end with.
for s in TERM INT USR1; do
    begin_training $endless CHECKPOINT_DIR=train-$s METRICS_FILE=$s.jsonl
    sleep "0.1$((RANDOM % 10))"
    stop $s
    ok "SIG$s while training: ${code[$s]}" is $rc "${code[$s]}"
    ok "SIG$s: the checkpoint is of the last finished step" \
        is "$(newest_step train-$s)" "$(tail -n 1 $s.jsonl | jq .step)"
    ok "SIG$s: says where to go on" \
        says "stopped by SIG$s after step $(newest_step train-$s) of 100000000; checkpoint train-$s/step-"
done
ok "no error line for a stop" is "$(grep -c ' error ' err)" 0
last=$(newest_step train-TERM)
run $tiny STEPS=$((last + 3)) CHECKPOINT_DIR=train-TERM
ok "a stopped run goes on to its end: 0" is "$rc $(newest_step train-TERM)" "0 $((last + 3))"

# 2. While saving: with a checkpoint after every step nearly all the time goes into saving.
for s in TERM INT USR1; do
    begin_training $endless EMBED=128 VOCAB=4096 CHECKPOINT_DIR=save-$s CHECKPOINT_EVERY=1 CHECKPOINT_KEEP=2
    sleep "0.1$((RANDOM % 10))"
    stop $s
    ok "SIG$s while saving: ${code[$s]}" is $rc "${code[$s]}"
    run $tiny STEPS=1 EMBED=128 VOCAB=4096 CHECKPOINT_DIR=save-$s RESUME=required
    ok "SIG$s while saving: a valid checkpoint is there, nothing half-made" \
        is "$rc $(ls -A save-$s | grep -c '^\.tmp')" "0 0"
done

# 3. While loading: the text is large enough to be tokenised for a while.
for i in 1 2 3 4 5 6 7 8 9 10 11 12; do cat /usr/share/common-licenses/[A-Z]*; done >once.txt
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do cat once.txt && echo $i; done >large.txt
export OMP_NUM_THREADS=1
for s in TERM INT USR1; do
    begin $endless VOCAB=50257 DATA=large.txt CHECKPOINT_DIR=load-$s
    wait_for 20 has_worker
    sleep "0.0$((RANDOM % 10))"
    stop $s
    ok "SIG$s while loading: ${code[$s]}" is $rc "${code[$s]}"
    ok "SIG$s while loading: before the first step" says "before the first step; there was nothing to save"
done
unset OMP_NUM_THREADS

# 4. Before the worker has published anything.
for s in TERM INT USR1; do
    begin $endless CHECKPOINT_DIR=early
    wait_for 20 has_worker
    stop $s
    ok "SIG$s before the worker is up: ${code[$s]}" is $rc "${code[$s]}"
done

# 5. While evaluating.
head -c 30000 /usr/share/common-licenses/GPL-3 >eval.txt
cat eval.txt eval.txt eval.txt eval.txt eval.txt eval.txt eval.txt eval.txt >held.txt
begin_training $endless VOCAB=50257 DATA=eval.txt VAL_DATA=held.txt EVAL_EVERY=1 CHECKPOINT_DIR=eval
sleep 0.1
stop
ok "SIGTERM while evaluating: 143" is $rc 143
ok "after a checkpoint" has_checkpoint eval

# 6. To the whole process group; and `timeout`, which delivers the signal twice.
setsid "$convoy" train $quiet $endless CHECKPOINT_DIR=group >out 2>err &
track
wait_for 20 is_training
kill -TERM -- "-$pid"
finish
ok "SIGTERM to the process group: 143" is $rc 143
ok "after a checkpoint" has_checkpoint group
# timeout passes a signal on as it does at the end of its time: to its process and to the group. So it is asked when the run trains.
: >out
timeout --preserve-status 1h "$convoy" train $quiet $endless CHECKPOINT_DIR=twice >out 2>err &
track
wait_for 20 is_training
stop
ok "one signal delivered twice at once is one signal: 143" is $rc 143
ok "after a checkpoint" has_checkpoint twice

# 7. The second signal: at once, without another checkpoint, the last one intact. A stopped worker stands for a slow one.
for s in TERM INT; do
    begin_training $endless CHECKPOINT_DIR=second-$s CHECKPOINT_EVERY=100
    wait_for 20 has_checkpoint second-$s
    worker=$(worker_of "$pid")
    kill -STOP "$worker"
    kill -$s "$pid"
    wait_for 5 said "SIG$s: stopping after this step"
    sleep 0.6
    stop $s
    ok "second SIG$s: ${code[$s]} at once" is $rc "${code[$s]}"
    ok "second SIG$s: says so" says "ended immediately by a second signal"
    ok "second SIG$s: no worker is left" is_gone "$worker"
    try "second SIG$s: the last checkpoint is intact" 0 -- train $tiny STEPS=1 CHECKPOINT_DIR=second-$s RESUME=required
done
begin_training $endless CHECKPOINT_DIR=upgrade
kill -STOP "$(worker_of "$pid")"
kill -USR1 "$pid"
wait_for 5 said "SIGUSR1: stopping"
kill -TERM "$pid"
wait_for 5 said "SIGTERM: stopping"
kill -CONT "$(worker_of "$pid")"
finish
ok "SIGTERM after SIGUSR1 is no second signal: 143" is $rc 143
ok "after a checkpoint" has_checkpoint upgrade

# 8. Signals that would end a process by default: notices of schedulers, limits and timers. To the worker, too; and again and again.
for s in USR2 ALRM VTALRM PROF XCPU PWR IO STKFLT; do
    begin_training $endless CHECKPOINT_DIR=other-$s METRICS_FILE=$s.jsonl
    kill -$s "$(worker_of "$pid")"
    sleep 0.1
    stop $s
    ok "SIG$s: 143, with a checkpoint of the last step" is "$rc $(newest_step other-$s)" "143 $(tail -n 1 $s.jsonl | jq .step)"
    name=$s
    [ $s = IO ] && name=POLL # one number
    ok "SIG$s: the log names it" says "SIGTERM (by SIG$name): stopping after this step and a checkpoint"
    ok "SIG$s: the worker was not lost" is "$(grep -c 'restart 1' err)" 0
done
: >out >err
perl -e 'use Time::HiRes "setitimer"; setitimer(Time::HiRes::ITIMER_REAL, 2, 0.2); exec @ARGV' "$convoy" train $quiet $endless CHECKPOINT_DIR=timer >out 2>err &
track
finish
ok "a timer that a launcher has left running, and that goes on: 143" is $rc 143
ok "after a checkpoint, or before the first step" eval 'has_checkpoint timer || said "before the first step"'
begin_training $endless CHECKPOINT_DIR=notice
kill -STOP "$(worker_of "$pid")"
kill -USR2 "$pid"
wait_for 5 said "SIGTERM (by SIGUSR2): stopping"
sleep 0.6
kill -USR2 "$pid"
kill -TERM "$pid"
sleep 0.2
kill -CONT "$(worker_of "$pid")"
finish
ok "SIGUSR2 twice and a SIGTERM after it: nothing ends at once, 143" is "$rc $(grep -c 'immediately by a second' err)" "143 0"
ok "after a checkpoint" has_checkpoint notice
: >out >err
(trap '' USR2; exec "$convoy" train $quiet $endless >out 2>err) &
track
wait_for 20 is_training
kill -USR2 "$pid"
sleep 0.5
ok "SIGUSR2 that was ignored at the start is ignored" kill -0 "$pid"
stop

# 9. Without CHECKPOINT_DIR; and the supervisor killed outright takes the worker along.
begin_training $endless
stop
ok "without CHECKPOINT_DIR: 143" is $rc 143
ok "and says that nothing was saved" says 'nothing was saved, because CHECKPOINT_DIR is not set'
begin_training $endless
worker=$(worker_of "$pid")
disown "$pid" # or bash announces its death
kill -KILL "$pid"
wait_for 5 is_gone "$pid"
ok "the worker dies with its supervisor" wait_for 5 is_gone "$worker"

# 10. Ctrl-C as a person types it, below the progress bar.
: >typescript
seen() { tr '\r' '\n' <typescript | grep -q "$1"; }
pid=$$ # wait_for looks whether this lives
(wait_for 20 seen '^\[[#-]*\] '; printf '\003'; wait_for 20 seen 'stopped by SIGINT') | \
    script -qfec "$convoy train $quiet $endless CHECKPOINT_DIR=tty" typescript >out 2>err
ok "Ctrl-C on a terminal: 130, after a checkpoint" is "$? $([ -n "$(newest tty)" ] && echo yes)" "130 yes"
ok "what is said then stands at the beginning of a line, the bar is gone" \
    is "$(tr '\r' '\n' <typescript | grep -c '^.\[K20.*SIGINT: stopping') $(
        tr '\r' '\n' <typescript | grep -v '^$\|^Script done' | tail -n 1 | grep -c 'stopped by SIGINT')" "1 1"

# 10. Nobody reads: a closed stdout or a broken pipe is no reason to end.
"$convoy" train $quiet $tiny STEPS=50 CHECKPOINT_DIR=closed >&- 2>err
ok "stdout closed: 0" is "$? $(newest_step closed)" "0 50"
{ "$convoy" train $quiet $tiny STEPS=3000 CHECKPOINT_DIR=pipe 2>err; echo $? >rc; } | head -n 1 >out
ok "stdout a broken pipe: 0" is "$(cat rc) $(newest_step pipe)" "0 3000"
done_testing
