#!/bin/bash
# test_process — limits and signals of a process: a terminal that hangs up, limits of files, and what a process must not leak.
. "$(dirname "$0")/lib.sh"
endless="$tiny STEPS=100000000"

# 1. A terminal that hangs up is a SIGTERM; under nohup it is nothing.
begin_training $endless CHECKPOINT_DIR=hup METRICS_FILE=hup.jsonl
stop HUP
ok "SIGHUP while training: 143" is "$rc" 143
ok "with a checkpoint of the last step" is "$(newest_step hup)" "$(tail -n 1 hup.jsonl | jq .step)"
ok "and says which signal" says 'SIGTERM (by SIGHUP): stopping after this step and a checkpoint'
: >out >err
(trap '' HUP; exec "$convoy" train $quiet $endless CHECKPOINT_DIR=nohup >out 2>err) &
track
wait_for 20 is_training
kill -HUP "$pid"
sleep 0.5 # it would have been gone long since
ok "SIGHUP that nohup has ignored is ignored" kill -0 "$pid"
stop
ok "and SIGTERM still ends it: 143" is "$rc" 143
begin_training $endless CHECKPOINT_DIR=group
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
track
wait_for 20 is_training
ok "a soft limit is raised" is "$(awk '/Max open files/ { print $4 }' /proc/$pid/limits)" "$(ulimit -H -n)"

# A small stack. Root may raise its limit, another user not. Two threads, so that they have stacks, too; a sum over two workers, compressed, a
# checkpoint that is read again.
if [ "$(id -u)" = 0 ] && there setpriv; then
    as_user="setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource"
    stack() { # stack KIB SETTING… — $rc
        local kib=$1
        shift
        rc=0
        (ulimit -s "$kib" && exec $as_user "$convoy" "$@") >out 2>err || rc=$?
    }
    for kib in 64 128 512 1023; do
        stack $kib train $quiet $tiny STEPS=1
        ok "ulimit -s $kib: 78 with the remedy" is "$rc $(grep -c "the stack may grow to $kib KiB, and at least 1024 KiB are needed; raise the limit (ulimit -s 8192)" err)" "78 1"
    done
    for command in config status check "bench BENCH_OVER=tcp" eval; do
        stack 64 $command
        ok "ulimit -s 64: convoy $command is no crash" test $rc -lt 129
    done
    stack 64 help
    ok "ulimit -s 64: convoy help" is $rc 0
    many="$quiet $tiny N_GPU_EACH_NODE=2 SHARD=full COMPRESS=int8 CHECKPOINT_DIR=stack CHECKPOINT_EVERY=2 VAL_DATA=synthetic EVAL_EVERY=2"
    OMP_NUM_THREADS=2 stack 1024 train $many STEPS=4
    ok "ulimit -s 1024 is enough" is $rc 0
    OMP_NUM_THREADS=2 stack 1024 train $many STEPS=6
    ok "also to go on from a checkpoint" is "$rc $(newest_step stack)" "0 6"
else
    skip "a small stack" "needs root and setpriv"
fi
rc=0
(ulimit -S -s 64 && exec "$convoy" train $quiet $tiny STEPS=2) >out 2>err || rc=$?
ok "a soft limit of the stack is raised" is $rc 0

# 4. What a process may not give away.
child=$(pgrep -P "$pid" | head -n 1)
for p in "$pid" "$child"; do
    who=supervisor
    [ "$p" = "$child" ] && who=worker
    ok "$who: no core dumps, into a pipe neither" is "$(awk '/Max core file size/ { print $5 }' /proc/$p/limits)" 1
    ok "$who: what it executes gains no privileges" is "$(awk '/NoNewPrivs/ { print $2 }' /proc/$p/status)" 1
done
stop

# 5. The token of a job: once derived from, it is in no memory and no environment of any process.
export JOB_TOKEN="convoy-test-$$-$(head -c 12 /dev/urandom | od -An -tx1 | tr -d ' \n')"
port=$(free_port)
for node in 0 1; do
    "$convoy" train $quiet $endless N_NODES=2 NODE_ID=$node MASTER_ADDR=127.0.0.1 MASTER_PORT=$port METRICS_FILE=token.jsonl >out$node 2>err$node &
    started+=("$!")
    eval "node$node=$!"
done
pid=$node0
token=$JOB_TOKEN
unset JOB_TOKEN
has_lines() { [ -s token.jsonl ]; }
wait_for 30 has_lines
# holds_token PID — reads all that the process has, as /proc shows it; the token itself comes on stdin.
holds_token() {
    printf %s "$token" | perl -e 'my $t = do { local $/; <STDIN> }; my $p = shift;
        open my $m, "<", "/proc/$p/maps" or exit 2; open my $f, "<:raw", "/proc/$p/mem" or exit 2; my $n = 0;
        while (<$m>) { my ($a, $b, $r) = /^(\w+)-(\w+) (r)/ or next; ($a, $b) = (hex $a, hex $b);
            for (my $at = $a; $at < $b; $at += 1 << 22) { my $len = $b - $at < (1 << 22) + 256 ? $b - $at : (1 << 22) + 256;
                sysseek($f, $at, 0) or last; my $got = sysread($f, my $x, $len) or last; $n++ while $x =~ /\Q$t\E/g; } }
        print "$n\n"' "$1"
}
for p in "$node0" "$node1" $(pgrep -P "$node0") $(pgrep -P "$node1"); do
    processes=$((${processes:-0} + 1))
    ok "process $processes of the job: the token is not in its memory, nor in its environment" \
        is "$(holds_token "$p") $(tr '\0' '\n' <"/proc/$p/environ" | grep -cF -e JOB_TOKEN -e "$token")" "0 0"
done
ok "the search finds what is there" is "$(( $(holds_token $$) > 0 ))" 1
kill -TERM "$node0"
finish
wait "$node1" 2>/dev/null

# 6. MASTER_ADDR that node 0 does not know is refused, not listened for everywhere.
rc=0
JOB_TOKEN=a-secret-for-these-tests-only "$convoy" train $quiet $tiny STEPS=1 N_NODES=2 NODE_ID=0 MASTER_ADDR=no-such-host.invalid MASTER_PORT=$port JOIN_TIMEOUT=1s >out 2>err || rc=$?
ok "a MASTER_ADDR that does not resolve on node 0: 78" is "$rc $(grep -c 'listening on all' err) $(grep -c 'a name that resolves here' err)" "78 0 2"
: >err
JOB_TOKEN=a-secret-for-these-tests-only "$convoy" train $quiet $tiny STEPS=1 N_NODES=2 NODE_ID=0 MASTER_ADDR=no-such-host.invalid MASTER_PORT=$port >out 2>err &
track
wait_for 20 said "looked up again"
stop
ok "SIGTERM while it is looked up again: 143" is "$rc" 143

# 7. The folder in /tmp that is CACHE_DIR where neither HOME nor XDG_CACHE_HOME is set: this user's alone, or refused.
user=$((60000 + RANDOM % 5000))
cache=/tmp/convoy-cache-$user
cp "$convoy" program && chmod 755 "$tmp" program && echo 'one two three four five six seven eight nine' >few.txt
as_user() { # as_user — $rc; by names that begin in this folder, for those above it may be closed to that user
    rc=0
    env -i PATH="$PATH" setpriv --reuid=$user --regid=$user --clear-groups ./program tokenize DATA=few.txt OUT="/tmp/convoy-test-$user.bin" >out 2>err || rc=$?
    rm -f "/tmp/convoy-test-$user.bin"
}
if [ "$(id -u)" = 0 ] && setpriv --reuid=$user --regid=$user --clear-groups ./program version >/dev/null 2>&1; then
    as_user
    ok "made for this user alone" is "$rc $(stat -c '%a %u' $cache)" "0 700 $user"
    as_user
    ok "and used again" is "$rc" 0
    chmod 755 $cache
    as_user
    ok "readable by others: 78" is "$rc $(grep -c "CACHE_DIR=$cache" err)" "78 1"
    chmod 700 $cache && chown 1 $cache
    as_user
    ok "of another user: 78" is "$rc $(grep -c "user 1," err)" "78 1"
    rm -rf $cache && mkdir elsewhere && chown $user elsewhere && chmod 700 elsewhere && ln -s "$tmp/elsewhere" $cache
    as_user
    ok "a symbolic link: 78" is "$rc $(grep -c 'a symbolic link' err) $(ls elsewhere | wc -l)" "78 1 0"
    rm -f $cache
else
    skip "CACHE_DIR in /tmp" "needs root and setpriv"
fi
done_testing
