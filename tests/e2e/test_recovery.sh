#!/bin/bash
# test_recovery — a worker that dies or hangs is detected, named, and started again from the last checkpoint, up to
# MAX_RESTARTS.
. "$(dirname "$0")/lib.sh"
endless="$tiny STEPS=100000000"
warned() { grep -cE " warn .*$1" err; }
has_checkpoint() { [ -n "$(newest "$1")" ]; }

# 1. Rehearsed failures heal: the same losses as without, one restart each.
heals "$tiny" kill nan stall
ok "the warning says from where" is "$(warned 'after step 20.*restart 1 of 3 from the checkpoint of step 16')" 1
run $tiny STEPS=30 METRICS_FILE=bare.jsonl FAULT=kill@step=21
ok "without CHECKPOINT_DIR: from the beginning, which is said" \
    is "$rc $(warned 'restart 1 of 3 from the beginning')" "0 1"
ok "losses bit for bit" is "$(losses bare.jsonl | cksum)" "$(losses calm.jsonl | cksum)"

# 2. No restart left: the exit code of the failure, and a sentence with what, where and what to do.
try "killed: 75" 75 -- train $tiny STEPS=30 CHECKPOINT_DIR=k0 CHECKPOINT_EVERY=8 FAULT=kill@step=21 MAX_RESTARTS=0
ok "named: rank, pid, signal, step; a guess is marked" is \
    "$(grep -cE 'worker rank 0 \(pid [0-9]+\) was killed by SIGKILL after step 20, phase training; a guess: the kernel' err)" 1
ok "and what is kept" says "no restart left (MAX_RESTARTS=0); the same command goes on from the checkpoint of step 16"
try "not finite: 79, with the values" 79 'step 21: loss [0-9.]*, gradient norm' -- train $tiny STEPS=30 FAULT=nan@step=21 MAX_RESTARTS=0
run $tiny STEPS=30 FAULT=stall@step=21 MAX_RESTARTS=0 STEP_TIMEOUT=$(patience_for stall)
ok "hung: 81, with the silence and the setting" is \
    "$rc $(grep -cE 'hung: no sign of progress for [0-9.]+ s after step 20.*STEP_TIMEOUT' err)" "81 1"
if [ -z "${SAN:-}" ]; then
    is_past_notes() { grep -q '^step 20/' out; } # as many steps as a crash report has notes, and more
    for s in SEGV ABRT BUS FPE ILL; do
        begin $endless MAX_RESTARTS=0
        wait_for 20 is_past_notes
        kill -$s "$(worker_of "$pid")"
        finish
        ok "SIG$s: 70" is $rc 70
        ok "SIG$s is named" says "was killed by SIG$s after step"
    done
    ok "a crash report with the last notes" is "$(grep -c '^  note: step [0-9]* begins' err)" 16
else
    skip "crashes" "sanitizers keep their own handlers"
fi

# 3. A loss that is not finite comes again from the same state: one more try, then 79.
wild="OPTIMIZER=sgd WEIGHT_DECAY=0 GRAD_CLIP=0 LR=1000"
for max in 0 1; do
    run $tiny $wild STEPS=50 MAX_RESTARTS=$max
    ok "never finite, MAX_RESTARTS=$max: 79 after $max restarts" is "$rc $(warned 'restart . of')" "79 $max"
done
for workers in 1 2; do
    run $tiny $wild STEPS=50 MAX_RESTARTS=9 N_GPU_EACH_NODE=$workers
    ok "$workers workers: a failure that follows from the state is tried once more" is "$rc $(warned 'restart . of 9')" "79 1"
    ok "and the message says why" says "lower LR, or check the data; the same failure came again at the same step after a restart; it follows from the weights, the data and the settings"
done
if [ -z "${SAN:-}" ]; then
    begin $endless MAX_RESTARTS=99
    # Kills each next worker at once. One that is late, after some steps, is a new failure: the loop goes on until two were in time.
    crashes_again() {
        ! is_gone "$pid" || return 0
        has_worker && [ "$worker" != "${last:-}" ] && last=$worker && kill -SEGV "$worker"
        return 1
    }
    wait_for 120 crashes_again || kill "$pid"
    finish
    ok "a crash that comes again at the same step: 70" is $rc 70
    ok "and the message says so" says "the same failure came again at the same step"
else
    skip "a crash that comes again at the same step" "sanitizers keep their own handlers"
fi

# Without a checkpoint each loss returns to the beginning, and none of the next ones comes as far as the first.
begin $endless MAX_RESTARTS=9
is_again() { [ "$(grep -c '^step 1/' out)" -gt "$1" ] && [ "$(tail -n 1 out | sed 's/^step \([0-9]*\).*/\1/')" -ge "$2" ]; }
wait_for 30 is_again 0 2000
for i in 1 2 3 4; do
    has_worker && kill -KILL "$worker"
    wait_for 30 is_again "$i" 20
done
ok "four losses, each after new steps but below the first one: the job goes on" is "$(warned 'restart [1-4] of 9')" 4
stop
ok "SIGTERM ends it: 143" is $rc 143

# 100 checkpoints without a loss give a restart back.
begin $endless MAX_RESTARTS=1 CHECKPOINT_DIR=calm100 CHECKPOINT_EVERY=1 CHECKPOINT_KEEP=2
for i in 1 2; do
    wait_for 30 has_worker && first=$worker
    returned() { [ "$(grep -c 'no loss for an hour or 100 checkpoints' err)" -ge "$1" ]; }
    [ $i = 1 ] || wait_for 60 returned 1
    is_new() { has_checkpoint calm100 && tail -n 1 out | grep -q '^step'; }
    wait_for 20 is_new
    kill -KILL "$first"
    another() { has_worker && [ "$worker" != "$first" ]; }
    wait_for 20 another
done
wait_for 60 returned 2
ok "a restart comes back: two with MAX_RESTARTS=1" is "$(warned 'restart 1 of 1')" 2
stop
ok "and the job ends as asked: 143" is $rc 143

# 4. Stopped by SIGSTOP in earnest: noticed, named, healed; twice.
# (Saving has a longer limit, so there is one checkpoint, made beforehand, and none later.)
run $tiny STEPS=50 CHECKPOINT_DIR=stop
begin_training $endless CHECKPOINT_DIR=stop STEP_TIMEOUT=$(secs 1)
first=$(worker_of "$pid")
kill -STOP "$first"
another() { has_worker && [ "$worker" != "$first" ]; }
ok "the stopped worker was replaced" wait_for 10 another
ok "the sentence knows that it was stopped" says "the process was stopped (SIGSTOP or a debugger)"
going_on() { [ "$(grep -c '^step 51/' out)" -ge "$1" ]; } # a worker that is killed before its first step is no restart
wait_for 10 going_on 2
second=$worker
kill -KILL "$second"
wait_for 10 going_on 3
ok "a second failure, of another kind, is a second restart" says "restart 2 of 3"
stop
ok "SIGTERM afterwards: 143" is $rc 143

# 5. SIGTERM while no worker runs, between two starts: the run ends at once.
stop_between_lives() { # two kills: a third one after the same step would end the job
    for i in 1 2; do
        wait_for 10 has_worker && kill -KILL "$worker"
        sleep 0.1
    done
    stop
}
begin_training $endless CHECKPOINT_DIR=gap CHECKPOINT_EVERY=50 MAX_RESTARTS=100
wait_for 20 has_checkpoint gap
stop_between_lives
ok "SIGTERM while recovering: 143" is $rc 143
begin_training $endless MAX_RESTARTS=100
stop_between_lives
ok "without CHECKPOINT_DIR nothing is said to be kept" is "$rc $(grep -c 'is intact' err)" "143 0"

# 6. What a person must change is never tried again.
run $tiny STEPS=30 HEADS=3
ok "78 is not restarted" is "$rc $(warned restart)" "78 0"
run $tiny STEPS=30 DATA=missing.txt
ok "66 is not restarted" is "$rc $(warned restart)" "66 0"
run $tiny STEPS=30 CHECKPOINT_DIR=none RESUME=required
ok "65 is not restarted" is "$rc $(warned restart)" "65 0"

# 7. As PID 1 of a container: orphans are reaped, signals arrive.
if unshare --pid --fork --mount-proc true 2>/dev/null; then
    cat >init.sh <<END
(sleep 0.3; (sleep 0.2; : >left) & exec true) &
exec "$convoy" train $quiet $endless CHECKPOINT_DIR=$tmp/init
END
    unshare --pid --fork --kill-child --mount-proc bash init.sh >out 2>err &
    track
    wait_for 20 grep -q '^step ' out
    init=$(worker_of "$pid")
    # Its children: the worker, and for a while what init.sh has left behind, which is gone only when it was waited for.
    has_worker_alone() { [ -e left ] && [ "$(workers_of "$init" | wc -w)" = 1 ]; }
    ok "PID 1: no zombies" wait_for 20 has_worker_alone
    kill -TERM "$init"
    finish
    ok "PID 1: SIGTERM is heard: 143 after a checkpoint" is "$rc $([ -n "$(newest init)" ] && echo yes)" "143 yes"
else
    skip "PID 1: no zombies" "no right to make a PID namespace"
fi
done_testing
