#!/bin/bash
# test_rehearse — `convoy rehearse`: faults heal with the weights of a calm run, and the numbers of the report agree; nothing is left
# behind, however it ends; wrong settings are refused; a job that cannot heal is said to.
. "$(dirname "$0")/lib.sh"
export TMPDIR=$tmp/scratch
mkdir "$TMPDIR"
unset JOB_TOKEN FAULT
job="$tiny CHECKPOINT_EVERY=20 CHECKPOINT_DIR=$TMPDIR/run"
# processes — those of rehearsals in this test's scratch folder, with the ones that remove it.
processes() {
    local p
    for p in /proc/[0-9]*; do
        { tr '\0' ' ' <"$p/cmdline"; } 2>/dev/null | grep -qE "$tmp|rehearse $job" && ! is_gone "${p#/proc/}" && echo "${p#/proc/}"
    done
}
nothing_left() { [ -z "$(processes)" ] && [ -z "$(ls "$TMPDIR")" ]; }
left() { echo "# processes: $(processes | tr '\n' ' ') folders: $(ls "$TMPDIR")"; }
gone() { pid= wait_for 10 nothing_left || { left; false; }; }
rehearse() { # rehearse SETTING… — $rc, out, err; $in: what to run it in
    rc=0
    limit 100 ${in:-} "$convoy" rehearse $job "$@" >out 2>err || rc=$?
}

# rehearsed NAME SETTING… — a rehearsal with numbers for programs in out, which comes to a good end.
rehearsed() {
    rehearse "${@:2}" JSON=1
    ok "$1: exit 0, all faults healed, no sample lost, the weights of the calm run" holds out \
        "$rc == 0 and (.[0] | .problem == null and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed) and .samples_lost == 0 and (.weights | .equal and .compared > 0))"
    ok "$1: nothing is left" gone
}
of() { holds out ".[0].faults[] | select(.kind == \"$1\") | $2"; } # of KIND JQ

# Two nodes, text for people: workers killed.
rehearse N_NODES=2 DURATION=3s FAULT_EVERY=1s FAULT_MIX=kill
ok "two nodes, workers killed: exit 0" is "$rc" 0
ok "the table says that the weights are those of the calm run" shows '^weights +bit for bit those of the calm run, [0-9]+ checkpoints? up to step [0-9]+: [0-9a-f]{16}$'
ok "and how often machines fail" shows '^faults +one every 1 s\. A published fleet'
ok "nothing is left" gone

# Three nodes, all kinds, numbers for programs. A node that stands still is known after PEER_TIMEOUT.
at_load=$(slow)
rehearsed "three nodes" N_NODES=3 DURATION=$((8 * at_load))s FAULT_EVERY=${at_load}s FAULT_MIX=kill:1,node:1,hang:1 PEER_TIMEOUT="$(secs 3)" SEED=16
ok "workers and nodes killed" holds out '[.[0].faults[].made] | add >= 3'
ok "one of them a node that stands still" of hang '.made >= 1 and .detect_ms.median >= 1000'
ok "times are in order: detected before recovered, median, p95, worst" holds out \
    '.[0].faults | map(select(.made > 0)) | all(.detect_ms.median <= .recover_ms.median and (.detect_ms, .recover_ms, .steps_redone | .median <= .p95 and .p95 <= .worst))'
ok "from copies in memory: few steps are done again; the right nodes are named, the others keep their processes" holds out \
    '.[0].faults | map(select(.made > 0)) | all(.steps_redone.worst <= 1 and .named_wrong == 0 and .kept == .made) and (map(.named_right) | add) > 0'
ok "kinds that are not in the mix have none" of slow '.weight == 0 and .made == 0 and .detect_ms.median == null'
ok "goodput is that of the two runs" holds out \
    '.[0] | (.calm.step_ms / .faulty.step_ms) as $g | .goodput > 0 and .goodput < 1.5 and (.goodput - $g | fabs) < 0.001'
ok "the checkpoint that is compared" holds out '.[0].weights | .calm == .faulty and .step % 20 == 0 and (.calm | length) == 16'

# The collectives of a worker fail: no process is lost.
rehearsed "failing collectives" N_NODES=2 DURATION=2s FAULT_EVERY=1s FAULT_MIX=comm
ok "all processes stay" of comm '.made >= 1 and .kept == .made and .detect_ms.median != null'
ok "the report has the device and the transport" holds out '.[0] | (.device | startswith("cpu ")) and .backend == "tcp" and .gpus == 0'

# A slow node is no lost one.
rehearse N_NODES=2 DURATION=2s FAULT_EVERY=1s FAULT_MIX=slow PEER_TIMEOUT="$(secs 6)" JSON=1
ok "a slow node: exit 0, healed" of slow ".made >= 1 and .made == .healed and $rc == 0"

# A bit of a weight changes: the worker is named, and all go back to the last checkpoint. The first one of this seed is in an exponent: the step's
# numbers may be infinite at once.
named='.made >= 1 and .named_right == .made'
rehearsed "flipped bits" N_NODES=3 DURATION=$((2 + at_load))s FAULT_EVERY=1s FAULT_MIX=flip SEED=14
ok "an exponent, and others" says 'bit 28 of parameter '
ok "the right worker is named, at the next comparison" of flip ".made >= 2 and $named and .detect_steps.worst <= 4"
ok "SENTINEL_EVERY was set" holds out '.[0].sentinel_every_set == 4'
rehearse N_NODES=3 DURATION=2s FAULT_EVERY=1s FAULT_MIX=flip SENTINEL_EVERY=10 SHARD=none
ok "the user's SENTINEL_EVERY stays" is "$rc $(grep -c '^set ' out)" "0 0"
ok "the table says how many were named right" shows '^flip .*; named right: ([0-9]+) of \1$'

# ON_LOSS=shrink: the node of a wrong worker ends, the others go on, and another node takes its place. The next node stands still twice; the
# second time waits until it is back, or no generation would end by it.
rehearsed "nodes that leave and return" N_NODES=3 DURATION=$((4 * at_load))s FAULT_EVERY=${at_load}s FAULT_MIX=flip:1,hang:1 EXACT=layout GLOBAL_BATCH=12 BATCH_SIZE=1 \
    ON_LOSS=shrink PEER_TIMEOUT="$(secs 2)" SEED=131
ok "both kinds, and the right worker is named" of flip "$named"
ok "the node that stands still is known after the timeout, each time" of hang '.made >= 1 and .detect_ms.median >= 1000'

# Two workers that hold a shard each: nothing to compare, and the next update finds it. They go on from copies in memory.
rehearsed "flipped bits of shards" N_NODES=2 DURATION=6s FAULT_EVERY=1s FAULT_MIX=flip SHARD=full SEED=15
ok "the right worker is named, by the next update" of flip ".made >= 2 and $named and .detect_steps.worst <= 1"
# Two workers give no majority, neither of a virtual shard's computations nor of replicas: the sums of updates show which one's memory changed.
rehearsed "flipped bits of two workers" N_NODES=2 DURATION=4s FAULT_EVERY=1s FAULT_MIX=flip EXACT=layout GLOBAL_BATCH=4 BATCH_SIZE=1 SENTINEL_EVERY=1 SEED=203
ok "the right worker is named, and one finished step is done again at most" of flip ".made >= 2 and $named and .steps_redone.worst <= 1"
# Three workers hold all parameters, and each updates a part: a change in another's part would be overwritten.
rehearsed "flipped bits of parts" N_NODES=3 DURATION=3s FAULT_EVERY=1s FAULT_MIX=flip SHARD=optimizer SEED=5
ok "the right worker is named, by the next update" of flip ".made >= 1 and $named and .detect_steps.worst <= 1"

# A full disk: checkpoints fail, training goes on.
rehearsed "full disks" N_NODES=2 DURATION=3s FAULT_EVERY=1s FAULT_MIX=disk
ok "a checkpoint failed, and a later one was written" of disk '.made >= 1 and .detect_ms.median != null and .detect_ms.median <= .recover_ms.median'
ok "no generation ended, no step was done again" holds out '.[0].faulty | .unexpected == 0 and .steps_redone == 0'

# A cut cable. without_networks — a command to run another in, where no network namespace can be made.
printf '%s\n' '#!/bin/sh' 'exec unshare -Ur sh -c "echo 0 >/proc/sys/user/max_net_namespaces && exec \"\$@\"" sh "$@"' >without_networks
chmod +x without_networks
if unshare -n true 2>err || unshare -Urn true 2>err; then
    rehearsed "a cut cable" N_NODES=3 DURATION=2s FAULT_EVERY=1s FAULT_MIX=cut PEER_TIMEOUT="$(secs 3)"
    ok "known after the timeout" of cut ".made >= 1 and .detect_ms.median >= 1000 and .detect_ms.worst <= $((4500 * $(slow)))"
    rehearsed "stages and tensor groups" N_NODES=2 N_GPU_EACH_NODE=2 PP=2 TP=2 BATCH_SIZE=1 GLOBAL_BATCH=4 DURATION=4s FAULT_EVERY=2s FAULT_MIX=cut,hang PEER_TIMEOUT="$(secs 3)"
    ok "nobody else is named, all processes stay" holds out '.[0].faults | all(.kept == .made and .named_wrong == 0)'
else
    skip "a cut cable" "no network namespace can be made"
fi
if unshare -Ur true 2>err; then
    in=./without_networks rehearse N_NODES=2 FAULT_MIX=cut,kill
    ok "no namespaces, and cut is asked for: 78, with what to do" ended 78 'FAULT_MIX has cut: needs network namespaces'
    in=./without_networks rehearse N_NODES=2 SHARD=optimizer OPTIMIZER=sgd DURATION=1s FAULT_EVERY=1s PEER_TIMEOUT="$(secs 3)"
    ok "no namespaces, and the default mix: exit 0" is "$rc" 0
    ok "cut is left out" shows '^left out +cut: needs network namespaces'
    ok "without moments, and two workers that each update a part of the parameters: flip is left out" shows '^left out +flip: no worker has parameters'
else
    skip "without network namespaces" "no user namespace can be made"
fi

# What cannot heal.
rehearse N_NODES=2 DURATION=3s FAULT_EVERY=1s FAULT_MIX=kill MAX_RESTARTS=0
ok "no restart is allowed: exit 1" is "$rc" 1
ok "with the reason" says 'was killed by SIGKILL'
ok "and in the table" shows '^result +node [01] ended with [0-9]+: '
ok "and how many healed" shows '^kill +1 +0 '
ok "nothing is left" gone

# However it ends. is_under_way — its nodes train.
is_under_way() { [ "$(ls "$TMPDIR"/*/calm 2>/dev/null | grep -c step-)" -gt 0 ]; }
for name in TERM KILL; do
    "$convoy" rehearse $job N_NODES=3 DURATION=60s >out 2>err &
    track
    disown
    wait_for 30 is_under_way
    ok "SIG$name: it runs before" [ "$(processes | wc -l)" -ge 7 ]
    kill -$name "$pid"
    ok "SIG$name: no process and no folder is left" gone
done
# A process that stands still ends, too.
one_stopped() { grep -sq '^State:.T' $(processes | sed 's,.*,/proc/&/status,'); }
"$convoy" rehearse $job N_NODES=2 DURATION=1s FAULT_EVERY=1s FAULT_MIX=hang >out 2>err &
track
disown
ok "a node stands still" wait_for 30 one_stopped
kill -KILL "$pid"
ok "SIGKILL meanwhile: no process and no folder is left" gone
set -m # a shell's Ctrl-C goes to the process group
"$convoy" rehearse $job N_NODES=2 DURATION=60s >out 2>err &
pid=$!
set +m
started+=("$pid")
wait_for 30 is_under_way
kill -INT -- "-$pid"
finish
ok "Ctrl-C: 130" is "$rc" 130
ok "and says so" says 'stopped by SIGINT'
ok "nothing is left" gone

# What is refused.
# refuses CODE TEXT SETTING…
refuses() {
    local code=$1 text=$2
    shift 2
    rehearse "$@"
    ok "$*: $code" is "$rc" "$code"
    ok "$*: with what to do: $text" says "$text"
}
refuses 78 'leave it out for 2' N_NODES=1
refuses 78 '2 to 64 nodes' N_NODES=65
refuses 78 'DURATION' DURATION=0
refuses 78 'known are kill, node, hang, slow, flip, disk, cut and comm' FAULT_MIX=fire:1
refuses 78 'has no fault; try kill:3,hang:1' FAULT_MIX=kill:0
refuses 78 'FAULT_MIX has flip: no worker has parameters' N_NODES=2 FAULT_MIX=flip SHARD=optimizer OPTIMIZER=sgd
refuses 78 'FAULT_MIX has flip: no worker has parameters' N_NODES=2 FAULT_MIX=flip:1,kill:1 SHARD=gradients OPTIMIZER=sgd
refuses 78 'FAULT_MIX has cut: nodes whose cables are cut' FAULT_MIX=cut DATA=http://127.0.0.1:1/x.txt
refuses 78 'raise DURATION' DURATION=5s FAULT_EVERY=6s
refuses 78 'leave FAULT out' FAULT=kill@step=3
refuses 78 'FAULT_MIX' FAULT_MIX="$(printf '\033[31mkill')"
ok "no control character is repeated" is "$(grep -c "$(printf '\033')" err)" 0
refuses 78 'DATA is not set' DATA=
refuses 66 'without a fault' DATA="$tmp/none.txt"
refuses 74 'CHECKPOINT_DIR' CHECKPOINT_DIR="$tmp/none/ck"
ok "nothing is left" gone
done_testing
