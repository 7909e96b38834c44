#!/bin/bash
# test_sentinel — SENTINEL_EVERY: a flipped bit in the parameters of one worker is found at the next comparison, the worker is named, and the job goes
# on from the last checkpoint with the weights of an undisturbed run. With EXACT=layout a flipped bit in a gradient is found before the update, and the
# job goes on from the step before. Nothing is found where nothing is wrong. Bits that change in a running worker, also of exponents: test_rehearse.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
job="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=50257 CONTEXT=32 DATA=/usr/share/common-licenses/GPL-3 DEVICE=cpu BATCH_SIZE=1 SEQ_LEN=32 STEPS=12
    CHECKPOINT_EVERY=4 DROPOUT=0.1 LR=3e-3"
job=${job//$'\n'/ }
weights() { # no two missing ones are equal
    ls "$1"/*12/*.safetensors >/dev/null 2>&1 || { echo "no weights in $1"; return; }
    cat "$1"/*12/*.safetensors | cksum
}

# calm MESH… — the weights to compare with.
calm() {
    rm -rf calm
    try "$*: nothing is found where nothing is wrong" 0 '! differ' -- train $job "$@" CHECKPOINT_DIR=calm SENTINEL_EVERY=1
}
# found RANK TEXT MESH… — a bit of this rank's flips before step 6, and is found after step 8.
found() {
    local rank=$1 text=$2
    shift 2
    rm -rf hurt
    run $job "$@" CHECKPOINT_DIR=hurt SENTINEL_EVERY=4 FAULT=flip@step=6:rank=$rank
    ok "$*: a flip on rank $rank is found" is "$rc $(grep -E "$text" err | grep -vc "no worker or node was lost, but")" "0 1"
    ok "$*: healed from step 4" says "resuming from hurt/step-00000004"
    ok "$*: the weights of an undisturbed run" is "$(weights hurt)" "$(weights calm)"
}
calm N_GPU_EACH_NODE=3
for rank in 0 1 2; do
    found $rank "rank $rank .*exit code 80 .*the parameters of rank $rank differ from those of most of 3 workers.*convoy check" N_GPU_EACH_NODE=3
done
calm N_GPU_EACH_NODE=2
found 1 "the parameters of 2 workers differ .rank 0 is one of them., and no majority" N_GPU_EACH_NODE=2
calm N_GPU_EACH_NODE=6 PP=2
found 4 "rank 4 .*exit code 80 .*the parameters of rank 4 differ from those of most of 3 workers" N_GPU_EACH_NODE=6 PP=2

# Where all replicas are alike the numbers are the cause, as without SENTINEL_EVERY.
run $job N_GPU_EACH_NODE=3 CHECKPOINT_DIR=nan SENTINEL_EVERY=4 FAULT=nan@step=6:rank=1 MAX_RESTARTS=0
ok "a gradient that is not a number: 79, and no rank is called different" is "$rc $(grep -c ' differ ' err)" "79 0"

# Several nodes: the right one ends with 80 where it may not restart.
rm -rf nodes
train_nodes 3 $job CHECKPOINT_DIR=nodes SENTINEL_EVERY=4 FAULT=flip@step=6:rank=2 MAX_RESTARTS=0
ok "three nodes without restarts: only the node of rank 2 ends with 80" is "$codes" "75 75 80"
ok "node 0 names the rank" node_says 0 "rank 2 "

# With restarts they go on from the checkpoint, not from memory: the steps since the flip have gradients of the wrong rank in them.
rm -rf nodes
calm N_GPU_EACH_NODE=3
train_nodes 3 $job CHECKPOINT_DIR=nodes SENTINEL_EVERY=4 FAULT=flip@step=6:rank=2
ok "three nodes: healed" is "$codes" "0 0 0"
ok "three nodes: the weights of an undisturbed run" is "$(weights nodes)" "$(weights calm)"

# A shard that one rank alone holds: its next update finds what changed. The copies in memory of the step that may be wrong are not used, those of the
# step before are: no disk is read.
calm N_GPU_EACH_NODE=2 SHARD=full
ok "the weights of a run without the check" run $job N_GPU_EACH_NODE=2 SHARD=full CHECKPOINT_DIR=unchecked
ok "which are the same" is "$(weights unchecked)" "$(weights calm)"
for rank in 0 1; do
    rm -rf nodes
    train_nodes 2 $job SHARD=full CHECKPOINT_DIR=nodes SENTINEL_EVERY=1000 FAULT=flip@step=7:rank=$rank
    ok "a shard of rank $rank of 2: healed" is "$codes" "0 0"
    ok "named" node_says 0 "rank $rank .*exit code 80 .*the parameters of rank $rank changed by themselves after the update of step 6, within .*convoy check"
    ok "the copies of step 6 are not used" node_says 0 'copies of step 6 and later are not used'
    ok "those of step 5 are" node_says 0 'resuming from memory: step 5, 0 of 2 parts'
    ok "the weights of an undisturbed run" is "$(weights nodes)" "$(weights calm)"
done
rm -rf nodes
train_nodes 3 $job SHARD=full CHECKPOINT_DIR=nodes SENTINEL_EVERY=1000 FAULT=flip@step=6:rank=1 MAX_RESTARTS=0
ok "three nodes without restarts: only the node whose memory changed ends with 80" is "$codes" "75 80 75"
# On one node there are no copies: the checkpoint, which was checked before it was written.
found 1 "rank 1 .*exit code 80 .*the parameters of rank 1 changed by themselves after the update of step 5" N_GPU_EACH_NODE=2 SHARD=full
# No step follows the last one: what its update found is asked for before the last checkpoint.
rm -rf hurt
run $job N_GPU_EACH_NODE=2 SHARD=full CHECKPOINT_DIR=hurt SENTINEL_EVERY=1000 FAULT=flip@step=12:rank=0
ok "in the last step" is "$rc $(grep -c 'exit code 80 .*the parameters of rank 0 changed by themselves after the update of step 11' err)" "0 1"
ok "the weights of an undisturbed run" is "$(weights hurt)" "$(weights calm)"
try "SHARD=gradients: nothing is found where nothing is wrong" 0 '! changed ' -- train $job N_GPU_EACH_NODE=2 SHARD=gradients PRECISION=fp32 SENTINEL_EVERY=1 CHECKPOINT_DIR=one
try "no moments: nothing is found where nothing is wrong" 0 '! changed ' -- train $job N_GPU_EACH_NODE=2 SHARD=full OPTIMIZER=sgd SENTINEL_EVERY=1 CHECKPOINT_DIR=sgd

# One worker alone, whose memory changes from outside: a bit of the exponent of the first weight of 1 or more, a norm's.
alone="$tiny STEPS=3000 CHECKPOINT_EVERY=500 SENTINEL_EVERY=1000000"
run $alone CHECKPOINT_DIR=calm3000
begin $alone CHECKPOINT_DIR=hurt3000 LOG_LEVEL=debug
ok "a checkpoint is there" wait_for 30 said 'checkpoint hurt3000/step-00000500'
ok "a weight changes" perl -e 'my ($elems, $address, $pid) = @ARGV;
    open my $memory, "+<:raw", "/proc/$pid/mem" or die "$!\n";
    sysseek $memory, $address, 0; sysread($memory, my $bytes, 4 * $elems) == 4 * $elems or die "$!\n";
    my @v = unpack "f<*", $bytes; my ($i) = grep { $v[$_] >= 1 && $v[$_] < 2 } 0 .. $#v;
    sysseek $memory, $address + 4 * $i, 0;
    syswrite($memory, pack "V", unpack("V", substr $bytes, 4 * $i, 4) ^ 1 << 30) == 4 or die "$!\n"' \
    $(sed -nE 's/.* ([0-9]+) parameters at address ([0-9]+) of process ([0-9]+) are compared/\1 \2 \3/p' err | tail -n 1)
finish
ok "one worker: found and healed" is "$rc $(grep -c 'exit code 80 .*the parameters of rank 0 changed by themselves' err)" "0 1"
ok "the weights of an undisturbed run" is "$(cat hurt3000/*3000/*.safetensors | cksum)" "$(cat calm3000/*3000/*.safetensors | cksum)"

# A gradient that is wrong once: a virtual shard is computed by two workers. Without a checkpoint before it, so from copies in memory alone.
exact="$job EXACT=layout GLOBAL_BATCH=6 CHECKPOINT_EVERY=12"
rm -rf calm
run $exact CHECKPOINT_DIR=calm
# wrong_gradient NODES RANK SHARD SETTING… — in step 8.
wrong_gradient() {
    local nodes=$1 rank=$2 shard=$3
    shift 3
    rm -rf hurt
    train_nodes $nodes $exact SHARD=$shard CHECKPOINT_DIR=hurt SENTINEL_EVERY=4 FAULT=gradient@step=8:rank=$rank "$@"
    cat err.* >err
    zeros=$(printf '0 %.0s' $(seq $nodes)) zeros=${zeros% }
    named="in step 8 the gradients of rank $rank differ from most of $((nodes + 2)) computations of virtual shard"
}
for way in "3 0 none" "3 1 optimizer" "3 2 full" "2 1 none"; do
    wrong_gradient $way
    ok "$way: healed" is "$codes" "$zeros"
    ok "$way: the rank is named, with what to do" node_says 0 "exit code 80 .*$named.*computed again they are right.*convoy check"
    ok "$way: only the step under way is done again" is "$(grep -c 'resuming from memory: step 7,' err.0) $(grep -c 'resuming from [^mc]' err.0)" "1 0"
    ok "$way: the weights of an undisturbed run on one worker, without comparisons" is "$(weights hurt)" "$(weights calm)"
done
wrong_gradient 3 2 full MAX_RESTARTS=0
ok "a wrong gradient without restarts: only the node of rank 2 ends with 80" is "$codes" "75 75 80"
# A rank whose parameters have changed is wrong again, and so may the steps before be: back to the checkpoint, not to the copies in memory.
rm -rf hurt
train_nodes 3 $exact CHECKPOINT_EVERY=4 CHECKPOINT_DIR=hurt SENTINEL_EVERY=4 FAULT=flip@step=6:rank=2
ok "a rank that is wrong again: healed, named" is "$codes $(grep -c 'rank 2 .*exit code 80 .*in step 8 the gradients of rank 2 differ .*wrong as well' err.0)" "0 0 0 1"
ok "from the checkpoint, with the weights of an undisturbed run" is "$(grep -c 'resuming from memory' err.0) $(grep -c 'resuming from hurt/step-00000004' err.0) $(weights hurt)" \
    "0 1 $(weights calm)"
# Both are counted: in steps 4 and 8, and from the beginning again in 4, 8 and 12.
port=$(free_port)
begin_served $exact N_GPU_EACH_NODE=3 SHARD=full SENTINEL_EVERY=4 FAULT=gradient@step=8:rank=1 CHECKPOINT_DIR=count LINGER=10m
ok "a run that lingers" wait_for 30 status_has '.phase == "done"'
ok "comparisons and differences are counted" is "$(jq -c '[.comparisons, .differences]' status.json)" "[5,1]"
stop
# Ranks that compute a shard together: TP, CP and PP. One of them is wrong, and it alone is named, where the others of its group have got its result, too.
# group_gradient NODES RANK CODES SETTING… — two groups of two on so many nodes; without restarts, then healed from copies in memory.
group_gradient() {
    local nodes=$1 rank=$2 want=$3 named zeros
    shift 3
    zeros=$(printf '0 %.0s' $(seq $nodes))
    named="exit code 80 .*in step 8 the gradients of rank $rank differ from most of 4 computations of virtual shard .*it differed first.*computed again they are right"
    rm -rf alone hurt
    run $exact "$@" N_GPU_EACH_NODE=2 CHECKPOINT_DIR=alone
    for restarts in 0 3; do
        rm -rf hurt
        train_nodes $nodes $exact "$@" N_GPU_EACH_NODE=$((4 / nodes)) CHECKPOINT_EVERY=4 CHECKPOINT_DIR=hurt SENTINEL_EVERY=4 FAULT=gradient@step=8:rank=$rank MAX_RESTARTS=$restarts
        ok "$*, rank $rank, MAX_RESTARTS=$restarts: codes" is "$codes" "$([ $restarts = 0 ] && echo "$want" || echo ${zeros})"
        ok "$*: the rank is named" node_says 0 "$named"
    done
    ok "$*: from copies in memory, with the weights of an undisturbed run of one group" \
        is "$(grep -cE 'resuming from memory: step [67],' err.0) $(grep -c 'resuming from hurt' err.0) $(weights hurt)" "1 0 $(weights alone)"
}
group_gradient 2 3 "75 80" TP=2
group_gradient 4 1 "75 80 75 75" CP=2
group_gradient 4 2 "75 75 80 75" PP=2 TIE_EMBEDDINGS=0
# A weight of one rank that has changed makes all that follows wrong, in its whole group.
rm -rf hurt
run $exact TP=2 N_GPU_EACH_NODE=6 CHECKPOINT_EVERY=4 CHECKPOINT_DIR=hurt SENTINEL_EVERY=4 FAULT=flip@step=6:rank=3 MAX_RESTARTS=0
ok "TP=2: a rank that is wrong again is named" is "$rc $(grep -cE 'rank 3 .*in step 8 the gradients of rank 3 differ .*of ranks 2, 3 on node 0, .*wrong as well' err)" "80 1"
# What the comparison is for: else the wrong gradient is applied by all, and no replica differs.
rm -rf hurt
run $exact N_GPU_EACH_NODE=3 CHECKPOINT_DIR=hurt FAULT=gradient@step=8:rank=1
ok "a wrong gradient without SENTINEL_EVERY: other weights" test "$rc" = 0 -a "$(weights hurt)" != "$(weights calm)"
# A number that is not finite in the shard that is compared: the rank is the cause, not the numbers.
run $exact N_GPU_EACH_NODE=3 CHECKPOINT_DIR=nan SENTINEL_EVERY=4 FAULT=nan@step=8:rank=1 MAX_RESTARTS=0
ok "a gradient that is not a number on one rank alone: the rank is named, not 79" is "$rc $(grep -c 'in step 8 the gradients of rank 1 differ' err)" "80 1"
# Nothing is found where nothing is wrong, with shards dealt by speed, and with groups.
for settings in "N_GPU_EACH_NODE=3 SHARD=gradients BALANCE=auto" "N_GPU_EACH_NODE=4 PP=2 TIE_EMBEDDINGS=0" "N_GPU_EACH_NODE=8 TP=2 CP=2 SHARD=full"; do
    rm -rf hurt
    try "$settings: nothing is found" 0 '! differ' -- train $exact $settings CHECKPOINT_DIR=hurt SENTINEL_EVERY=1
done
rm -rf calm hurt
try "SHARD=optimizer: nothing is found where nothing is wrong" 0 '! differ' -- train $job N_GPU_EACH_NODE=3 SHARD=optimizer SENTINEL_EVERY=1 CHECKPOINT_DIR=shards
done_testing
