#!/bin/bash
# test_memory — memory is planned before it is allocated. What cannot fit is refused with a table and with settings that fit;
# a run takes what was planned; a stop is obeyed while a model is loaded.
. "$(dirname "$0")/lib.sh"
export LOG_LEVEL=info

# Beyond any machine: refused by its plan, in every command that would take it.
giant="LAYERS=1024 EMBED=16384 HEADS=128"
began=$(now_ms)
run $giant CHECKPOINT_DIR=ck CHECKPOINT_EVERY=1
took=$(($(now_ms) - began))
echo "# refused in $took ms"
ok "a model beyond the machine: 78, not 75" is "$rc" 78
ok "at once: no worker has begun, nothing is written" is "$(grep -c 'device cpu' err) $([ -e ck ] && echo there) $(within "$took" 2000 && echo soon)" "0  soon"
for kind in parameters gradients moments activations workspace program all; do
    ok "the table has $kind" grep -Eq "$kind +[0-9.]+ [KMGTP]?i?B" err
done
ok "the sentence has what is needed, what there is" grep -Eq 'needs [0-9.]+ [TP]iB of memory, but .* has [0-9.]+ [MGT]iB; ' err
# What would fit is tried with any number of workers and nodes, of which LOCAL_STEPS takes only some.
run $giant LOCAL_STEPS=5 N_GPU_EACH_NODE=2
ok "LOCAL_STEPS with two workers: 78, not 70" is "$rc $(grep -c 'SHARD=full' err)" "78 0"
run $giant LOCAL_STEPS=5 N_NODES=4 NODE_ID=0 JOB_TOKEN=none MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) BATCH_SIZE=1
ok "with four nodes of one sample each too" is "$rc $(grep -c 'of memory, but' err)" "78 1"
mkdir folder
echo '{"model_type":"gpt2","architectures":["GPT2LMHeadModel"],"n_layer":1024,"n_head":128,"n_embd":16384,"n_positions":1024,"n_ctx":1024,"vocab_size":50257}' >folder/config.json
echo none >folder/model.safetensors
echo 'one two three four five six seven eight nine ten' >text.txt
# Weights of such a shape for import, which needs no memory for them: wide blocks of 3.3 TB in a file that is all hole.
mkdir wide
sed 's/"n_layer":1024/"n_layer":16/; s/16384/65536/' folder/config.json >wide/config.json
perl -e '
    my ($e, $at, @t) = (65536, 0);
    sub tensor { my ($name, @shape) = @_; my $bytes = 4; $bytes *= $_ for @shape;
        push @t, sprintf q("%s":{"dtype":"F32","shape":[%s],"data_offsets":[%d,%d]}), $name, join(",", @shape), $at, $at + $bytes; $at += $bytes }
    tensor("wte.weight", 50257, $e); tensor("wpe.weight", 1024, $e);
    for my $h (map { "h.$_." } 0 .. 15) {
        tensor($h . "$_.weight", $e), tensor($h . "$_.bias", $e) for qw(ln_1 ln_2);
        tensor($h . "$_->[0].weight", $_->[1], $_->[2]), tensor($h . "$_->[0].bias", $_->[2])
            for ["attn.c_attn", $e, 3 * $e], ["attn.c_proj", $e, $e], ["mlp.c_fc", $e, 4 * $e], ["mlp.c_proj", 4 * $e, $e];
    }
    tensor("ln_f.weight", $e); tensor("ln_f.bias", $e);
    my $head = "{" . join(",", @t) . "}";
    open my $f, ">:raw", "wide/model.safetensors" or die; print $f pack("Q<", length $head), $head; close $f;
    truncate "wide/model.safetensors", 8 + length($head) + $at or die "$!"'
for command in "train MODEL=folder $quiet" "generate MODEL=folder PROMPT=a TOKENS=2" \
    "eval MODEL=folder VAL_DATA=text.txt SEQ_LEN=8 BATCH_SIZE=1"; do
    rc=0
    "$convoy" $command >out 2>err || rc=$?
    ok "${command%% *} of a folder beyond the machine: 78" is "$rc $(grep -c 'of memory, but' err)" "78 1"
done

# To a disk of our own: that of the machine may have room for it, and would get it.
if mkdir disk && mount -t tmpfs -o size=64m none disk 2>/dev/null; then
    rc=0
    "$convoy" import FROM=wide TO=disk/to >out 2>err || rc=$?
    ok "import of such a folder asks for space on the disk: 74" is "$rc $(grep -c 'no space for checkpoint' err)" "74 1"
    ok "and leaves nothing" is "$(ls -A disk)" ""
    umount disk
else
    skip "import of such a folder asks for space on the disk: 74" "no right to mount"
fi

# A machine of other sizes, where a mount of our own may lie over /proc/meminfo.
with_memory() { # with_memory TOTAL_KB AVAILABLE_KB SETTING… — $rc, out, err
    printf 'MemTotal: %s kB\nMemFree: 1 kB\nMemAvailable: %s kB\n' "$1" "$2" >meminfo
    shift 2
    rc=0
    unshare -m sh -c 'mount --bind meminfo /proc/meminfo && exec "$@"' - "$convoy" train $quiet "$@" >out 2>err || rc=$?
}
gib=$((1 << 20))
if with_memory $((8 * gib)) $((7 * gib)) $tiny STEPS=1 && [ $rc = 0 ]; then
    with_memory $((24 * gib)) $((23 * gib)) LAYERS=32 EMBED=2560 HEADS=32 RECOMPUTE=light
    ok "2.7 billion parameters on 24 GiB: 78" is "$rc" 78
    ok "and over how many workers they would go" grep -Eq 'it would fit with: SHARD=full RECOMPUTE=block on [0-9]+ workers' err
    with_memory $((8 * gib)) $((6 * gib)) MODEL=gpt2 BATCH_SIZE=32 RECOMPUTE=light
    ok "a batch too large: 78, with smaller ones that fit" is "$rc $(grep -Ec 'BATCH_SIZE=[0-9]+ GLOBAL_BATCH=32; SEQ_LEN=[0-9]+; RECOMPUTE=' err)" "78 1"
    with_memory $((8 * gib)) $((420 << 10)) MODEL=gpt2-nano BATCH_SIZE=32 SEQ_LEN=128 STEPS=1
    ok "RECOMPUTE=auto uses more of it where memory is short, and says why" grep -Eq 'RECOMPUTE=auto uses (attention|block)(:[0-9]+)?: needs [0-9.]+ MiB of the 420.0 MiB that are free; RECOMPUTE=[a-z]+(:[0-9]+)? SHARD=none would need' err
    small="MODEL=gpt2-nano LAYERS=12 EMBED=512 HEADS=8 VOCAB=2048 SEQ_LEN=64 BATCH_SIZE=1 STEPS=1 N_GPU_EACH_NODE=2"
    with_memory $((1020 << 10)) $((1000 << 10)) $small
    ok "two copies of a model are too much: 78, before a worker begins, with TP and PP that fit" is \
        "$rc $(grep -c 'device cpu' err) $(grep -Ec 'needs 1.[0-9] GiB of memory, but .*it would fit with: .*TP=2; PP=2; SHARD=full' err)" "78 0 1"
    with_memory $((1020 << 10)) $((1000 << 10)) $small TP=2
    ok "in the tensor group that was said to fit it trains" is "$rc" 0
    with_memory $((820 << 10)) $((800 << 10)) $small OPTIMIZER=muon
    ok "with OPTIMIZER=muon, which goes without TP, stages alone are named" is "$rc $(grep -c 'TP=2' err) $(grep -Ec 'it would fit with: .*; PP=2' err)" "78 0 1"
    with_memory $((1420 << 10)) $((1400 << 10)) $small LOCAL_STEPS=5
    ok "with LOCAL_STEPS one worker alone" is "$rc $(grep -cE 'TP=|PP=|CP=|SHARD=' err) $(grep -Ec 'it would fit with: .*N_GPU_EACH_NODE=1' err)" "78 0 1"
    with_memory $((620 << 10)) $((600 << 10)) $small PP=2 GLOBAL_BATCH=4
    ok "stages that are too much: 78, with what a worker of each takes" is \
        "$rc $(grep -Ec 'memory of a worker, planned: stage 0: [0-9.]+ MiB, activations [0-9.]+ MiB; stage 1: [0-9.]+ MiB' err)" "78 1"
    with_memory $((620 << 10)) $((600 << 10)) $small N_GPU_EACH_NODE=4 TP=2 SHARD=full GLOBAL_BATCH=2
    ok "so are groups with SHARD=full" is "$rc $(grep -c 'device cpu' err)" "78 0"
    long="MODEL=llama-3.2-1b TOKENIZER=gpt2 LAYERS=8 HEADS=4 KV_HEADS=2 HEAD_DIM=8 EMBED=32 FFN=64 VOCAB=64 CONTEXT=2048 SEQ_LEN=2048
        BATCH_SIZE=1 GLOBAL_BATCH=2 STEPS=1 RECOMPUTE=none N_GPU_EACH_NODE=2"
    needs() { with_memory $((64 << 10)) $((64 << 10)) $long "$@" && grep -oE 'needs [0-9]+[.0-9]* MiB' err | grep -oE '[0-9]+' | head -n 1; }
    export OMP_NUM_THREADS=2
    middle=$((($(needs) + $(needs CP=2)) / 2))
    with_memory $((middle << 10)) $((middle << 10)) $long
    ok "samples too long: 78, with CP that fits" is "$rc $(grep -Ec 'it would fit with: SEQ_LEN=1024; .*CP=2' err)" "78 1"
    with_memory $((middle << 10)) $((middle << 10)) $long CP=2
    ok "in the context group that was said to fit it trains" is "$rc" 0
    unset OMP_NUM_THREADS
    with_memory $((64 * gib)) $((1 * gib)) MODEL=gpt2 BATCH_SIZE=1
    ok "memory that others hold just now: 75" is "$rc $(grep -c 'other processes hold the rest' err)" "75 1"
else
    skip "machines of other sizes" "no mounts of our own here"
fi

# A control group's limit; the settings that are reported to fit run in it to the end.
group=
for top in /sys/fs/cgroup/memory /sys/fs/cgroup; do
    [ -z "$group" ] && mkdir "$top/convoy-test-$$" 2>/dev/null && group=$top/convoy-test-$$
done
limit=memory.limit_in_bytes
[ -n "$group" ] && [ -e "$group/memory.max" ] && limit=memory.max
in_group() { (echo "$BASHPID" >"$group/cgroup.procs" && exec "$convoy" train $quiet "$@" >out 2>err); }
if [ -n "$group" ] && echo $((512 << 20)) 2>/dev/null >"$group/$limit"; then
    small="MODEL=gpt2-nano LAYERS=8 EMBED=256 VOCAB=8192 CONTEXT=512 SEQ_LEN=512 STEPS=1 RECOMPUTE=light OMP_NUM_THREADS=2"
    export OMP_NUM_THREADS=2
    small=${small% *}
    rc=0
    in_group $small BATCH_SIZE=16 || rc=$?
    ok "over a container's limit: 78 by its name" is "$rc $(grep -c "a container's limit" err)" "78 1"
    batch=$(grep -o 'BATCH_SIZE=[0-9]* GLOBAL_BATCH=16' err | head -n 1)
    echo "# $batch"
    rc=0
    in_group $small $batch || rc=$?
    ok "the batch that was said to fit does" is "${batch:+said} $rc" "said 0"
    rmdir "$group"
else
    [ -n "$group" ] && rmdir "$group"
    skip "a control group's limit" "none can be made here"
fi

# Addresses of a process: limits of the shell.
if (ulimit -v 400000) 2>/dev/null; then
    rc=0
    (ulimit -v 400000 && exec "$convoy" train $quiet MODEL=gpt2 BATCH_SIZE=1 >out 2>err) || rc=$?
    ok "ulimit -v below the plan: 78 by its name" is "$rc $(grep -c 'ulimit -v' err)" "78 1"
    rc=0
    (ulimit -v 1500000 && exec "$convoy" train $quiet MODEL=gpt2 BATCH_SIZE=1 N_GPU_EACH_NODE=2 >out 2>err) || rc=$?
    ok "the same for two workers" is "$rc $(grep -c 'ulimit -v' err)" "78 1"
    rc=0
    (ulimit -v 1200000 && exec "$convoy" train $quiet $tiny STEPS=1 N_GPU_EACH_NODE=4 TP=2 GLOBAL_BATCH=4 >out 2>err) || rc=$?
    ok "four workers of a tiny model train below ulimit -v 1200000" is "$rc" 0
else
    skip "limits of a process" "ulimit -v cannot be set here"
fi

# Planned beside what was really taken, of a model of some hundred MiB.
if [ -n "${SAN:-}" ]; then
    skip "planned is what is taken" "a sanitizer takes memory of its own"
else
    export LOG_LEVEL=debug
    try "a model of some hundred MiB trains" 0 -- train MODEL=gpt2-mini LAYERS=3 VOCAB=30000 SEQ_LEN=128 BATCH_SIZE=2 STEPS=2
    planned=$(sed -n 's/.*memory planned: \([0-9.]*\) MiB.*/\1/p' err)
    taken=$(sed -n 's/.*memory: \([0-9]*\) KiB at the most.*/\1/p' err)
    ok "planned is what is taken within 8 %" awk -v planned="$planned" -v taken="$taken" 'BEGIN {
        taken = taken / 1024 + 12; off = (planned - taken) / taken; printf "# planned %.1f MiB, taken %.1f MiB\n", planned, taken
        exit !(taken > 100 && off < 0.08 && off > -0.08) }'
    export LOG_LEVEL=info
fi

# A stop while a worker loads and does not look: here because it is frozen, as in a call that takes minutes.
begin MODEL=gpt2-mini STEPS=1000
wait_for 20 has_worker
kill -STOP "$worker"
began=$(now_ms)
stop
took=$(($(now_ms) - began))
echo "# stopped in $took ms"
ok "SIGTERM while a worker loads: 143 within 5 s" is "$rc $(within "$took" 5000 && echo soon)" "143 soon"
ok "and says so" says "stopped by SIGTERM while loading, before the first step"
done_testing
