#!/bin/bash
# test_plan — `convoy plan` as a user runs it: text and JSON, MESH=auto, what does not fit and what would, refusals; nothing is
# opened but the program and its libraries; train beside its plan.
. "$(dirname "$0")/lib.sh"

plan() { work plan "$@"; }
seven="MODEL=llama-2-7b SEQ_LEN=4096"

try "a plan ends well" 0 -- plan CLUSTER=h100-sxm $seven N_NODES=4 GLOBAL_BATCH=512 BATCH_SIZE=1 TOKENS=300000000000
ok "it names the machines" grep -qF "llama-2-7b (32 layers, 4096 wide) on h100-sxm: 4 nodes of 8 GPUs, products in bf16" out
for chip in mi250 mi300x; do
    try "a plan for $chip" 0 -- plan CLUSTER=$chip MODEL=gpt2 N_NODES=2 GLOBAL_BATCH=512
    ok "$chip: GPUs of a node" grep -qF "on $chip: 2 nodes of 8 GPUs, products in bf16" out
done
plan CLUSTER=h100-sxm $seven N_NODES=4 GLOBAL_BATCH=512 BATCH_SIZE=1 TOKENS=300000000000
ok "memory by kind" grep -qE '^  gradients +[0-9.]+ GiB$' out
ok "time by kind" grep -qE '^  products +[0-9.]+ m?s +[0-9.]+ %  #+$' out
ok "rate, and time to TOKENS" grep -qE '^300G tokens: .* GPU hours, .* US dollars at [0-9.]+ an hour, .* kWh$' out
ok "what would be better" grep -qF "What would be better" out
ok "the last line: another node, and what to plan it with" is "$(tail -n 1 out)" \
    "Another node: no, with N_NODES=5 no mesh fits GLOBAL_BATCH=512, the layers and the memory; plan it with N_NODES=5 GLOBAL_BATCH=640"
cp out long
for tokens in 300B 300G 3e11 0.3T; do
    plan CLUSTER=h100-sxm $seven N_NODES=4 GLOBAL_BATCH=512 BATCH_SIZE=1 TOKENS=$tokens
    ok "TOKENS=$tokens is the same" cmp -s out long
done
try "a part of a token is none" 78 'TOKENS=1.5 (argument) is not a whole number' -- plan CLUSTER=h100-sxm $seven TOKENS=1.5
# As in README, without TOKENS: what a billion costs.
plan CLUSTER=h100-sxm MODEL=llama-3-8b N_NODES=4 MESH=auto
ok "cost without TOKENS" is "$rc $(grep -cE '^each 1B tokens: [0-9a-z]+, [0-9.]+ GPU hours, [0-9.]+ US dollars at 3.5 an hour, .* set TOKENS for the whole training, such as TOKENS=300B$' out)" "0 1"
ok "another node by MESH=auto" grep -qE '^Another node: yes, N_NODES=5 is [0-9]+ % faster for 25 % more GPUs; worth it from 8 % on$' <(tail -n 1 out)
plan CLUSTER=lambda MODEL=gpt-neox-20b EMBED=4096 N_NODES=2 PP=4 TP=2 SHARD=optimizer RECOMPUTE=block SEQ_LEN=2048 BATCH_SIZE=4 GLOBAL_BATCH=384
ok "lambda: the third node is not worth its price" grep -qE '^Another node: no, N_NODES=3 is ' <(tail -n 1 out)

plan CLUSTER=h100-sxm MODEL=gpt2 N_NODES=512 GLOBAL_BATCH=4096 BATCH_SIZE=1
ok "of many nodes: what node 0 needs besides" grep -qF "node 0 also needs 35.1 MiB and 0.05 of a core for the heartbeats of 512 nodes" out
plan CLUSTER=h100-sxm $seven N_NODES=4 GLOBAL_BATCH=512 MESH=auto JSON=1 TOKENS=300000000000 PRICE=2
ok "JSON: node 0 of few nodes needs little" holds out '.[0] | .node_0 | .control_bytes < 20e6 and .control_cores < 0.001'
ok "JSON: a plan that fits" holds out '.[0] | .fits and .memory.need_bytes < .memory.have_bytes and .devices == 32'
ok "its parts are the step" holds out '.[0] | .step_ms as $s | ([$s | to_entries[] | select(.key != "all") | .value] | add) - $s.all | fabs < 1e-6'
ok "one way for each mesh" holds out '.[0] | .fastest | length == 5 and (map([.tensor, .context, .pipeline]) | unique | length) == 5'
ok "the first is near the fastest" holds out '.[0] | .fastest[0].step_ms <= 1.03 * ([.fastest[].step_ms] | min)'
all=$(jq .step_ms.all out)
plan CLUSTER=h100-sxm $seven N_NODES=4 GLOBAL_BATCH=512 MESH=auto
way=$(grep -m1 '^TP=' out)
plan CLUSTER=h100-sxm $seven N_NODES=4 $way JSON=1
ok "the settings it prints give the same time" is "$(jq .step_ms.all out) $(jq .settings.global_batch out)" "$all 512"
plan CLUSTER=h100-sxm $seven N_NODES=4 MESH=auto
way=$(grep -m1 '^TP=' out)
grep -E '^  all +[0-9.]+ m?s$' out >time
plan CLUSTER=h100-sxm $seven N_NODES=4 $way
ok "also without GLOBAL_BATCH" grep -qxF "$(cat time)" out
plan CLUSTER=h100-sxm $seven N_NODES=4 GLOBAL_BATCH=512 MESH=auto JSON=1 TOKENS=300000000000 PRICE=2
ok "the mesh has all devices" holds out '.[0] | 32 % (.settings.tensor * .settings.context * .settings.pipeline) == 0'
ok "PRICE counts" holds out '.[0] | (.total.dollars / .total.device_hours - 2) | fabs < 1e-9'

plan CLUSTER=h100-sxm MODEL=gpt2 N_NODES=4 GLOBAL_BATCH=512 BATCH_SIZE=1 LOCAL_STEPS=10 JSON=1
ok "LOCAL_STEPS: a plan, and no other mesh beside it" is "$rc $(jq -c '[.fastest[] | [.tensor, .context, .pipeline]]' out)" "0 [[1,1,1]]"
try "LOCAL_STEPS with MESH=auto is refused" 78 'LOCAL_STEPS=10 (argument) does not go with MESH=auto' -- plan CLUSTER=h100-sxm MODEL=gpt2 N_NODES=4 GLOBAL_BATCH=6 LOCAL_STEPS=10 MESH=auto

# Over 10 Gb/s: the fewer bits travel, the shorter the step.
step_ms() { plan CLUSTER=a6000-ethernet MODEL=gpt2 N_NODES=2 GLOBAL_BATCH=128 JSON=1 "$@" && jq .step_ms.all out; }
jq -n "[$(step_ms), $(step_ms COMPRESS=int8), $(step_ms COMPRESS=int4-zstd), $(step_ms LOCAL_STEPS=10),
    $(step_ms LOCAL_STEPS=10 COMPRESS=int4-zstd)]" >out
ok "COMPRESS and LOCAL_STEPS are planned" holds out '.[0] | length == 5 and . == (sort | reverse) and .[1] < 0.7 * .[0] and .[4] < 0.9 * .[3]'

try "what does not fit is refused" 78 -- plan CLUSTER=a100-40 $seven BATCH_SIZE=1 SHARD=none RECOMPUTE=none
ok "with what is short" grep -qE 'does not fit: [0-9.]+ GiB short in the memory of a GPU; settings that fit: .*SHARD=full' err
ok "and the table of memory" grep -qE 'the fullest GPU needs .* GiB of 40.0 GiB' out
try "so is what no mesh fits" 78 -- plan CLUSTER=a100-40 MODEL=llama-3-70b SEQ_LEN=8192 GLOBAL_BATCH=64 MESH=auto
ok "with a number of nodes that does" grep -qE 'no mesh of 8 devices has room for llama-3-70b with GLOBAL_BATCH=64; it fits with N_NODES=[0-9]+' err

cat >machine.json <<END
{"name": "slow-link", "source": "made up", "device": "gpu", "locals": 2, "memory_bytes": 4.8e10, "peak": {"bf16": 1.5e14},
 "memory_bytes_per_second": 7e11, "memory_share": 0.8, "optimizer_share": 0.8, "operation_us": 2, "step_us": 100,
 "overlap_cost": 0, "inside": {"latency_us": 5, "bytes_per_second": 2e10}, "across": {"latency_us": 30, "bytes_per_second": 1e8}}
END
plan CLUSTER=./machine.json MODEL=gpt2 N_NODES=3 GLOBAL_BATCH=96
ok "a node that adds little is named" grep -qE '^  the third node makes it .*: do not rent it$' out

# Own attention kernels are planned by rates of their own, and a missing one is named; cuDNN's is that of the key attention.
sed 's/"peak"/"attention": [[1e10, 0.5]], "attention_own_backward": [[1e10, 0.1]], &/' machine.json >own.json
attention() { plan CLUSTER=./own.json MODEL=gpt2 JSON=1 "$@" && jq -c '[.step_ms.attention, .lacks_own_attention.forward, .lacks_own_attention.backward]' out; }
jq -n "[$(attention ATTENTION=cudnn), $(attention), $(attention DETERMINISTIC=0), $(attention ATTENTION=own)]" >out
ok "attention by cuDNN, and backward by own kernels" holds out '.[0] | .[1][0] > 2 * .[0][0] and .[2] == .[0] and .[3][0] == .[1][0]'
ok "own kernels forward have no rate here" holds out '.[0] | map(.[1:]) == [[false, false], [false, false], [false, false], [true, false]]'
plan CLUSTER=./own.json MODEL=gpt2 ATTENTION=own
ok "which the text says" grep -qF "own kernels compute attention forward: the cluster has no rate for them" out
plan CLUSTER=./own.json MODEL=gpt2
ok "and only then" is "$rc $(grep -c 'own kernels' out)" "0 0"

try "MESH=auto says what else no way has" 78 'computes nothing in f32' -- plan CLUSTER=./machine.json MODEL=gpt2 PRECISION=fp32 MESH=auto
try "so many GPUs a node does not have" 78 'N_GPU_EACH_NODE=4 (argument), but a node of CLUSTER=slow-link has 2' -- plan CLUSTER=./machine.json MODEL=gpt2 N_GPU_EACH_NODE=4
sed 's/"locals": 2/"locals": 2, "nodes": 2/' machine.json >two.json
try "no more nodes than the cluster has" 78 'nor a mesh of more devices of the cluster' -- plan CLUSTER=./two.json MODEL=llama-3-70b MESH=auto
plan CLUSTER=./two.json MODEL=gpt2 N_NODES=2 GLOBAL_BATCH=96
ok "nor another one" is "$(tail -n 1 out)" "Another node: no, slow-link has 2"
sed 's/"locals"/"local"/' machine.json >bad.json
try "a wrong key is refused" 65 'unknown key "local"; did you mean "locals"?' -- plan CLUSTER=bad.json
try "so is an unknown cluster" 78 'did you mean h100-sxm? (h100-sxm, ' -- plan CLUSTER=h100
try "CLUSTER is needed" 78 'CLUSTER is not set' -- plan
try "the rules of settings hold" 78 'TP=4' -- plan CLUSTER=machine.json MODEL=gpt2 TP=4 N_NODES=2

if strace -f -e trace=network,openat -o calls "$convoy" version >out 2>err && grep -q openat calls; then
    strace -f -e trace=network,openat -o calls "$convoy" plan CLUSTER=h100-sxm MODEL=gpt2 >out 2>err
    ok "no socket, no device" is "$(grep -cE 'socket\(|connect\(|/dev/nvidia' calls)" 0
else
    skip "no socket, no device" "strace cannot trace here"
fi

cat >cpu.json <<END
{"name": "cores", "source": "made up", "device": "cpu", "locals": 1, "threads": 1, "memory_bytes": 1e9, "peak": {"f32": 1e15},
 "memory_bytes_per_second": 1e15, "memory_share": 1, "optimizer_share": 1, "operation_us": 0, "step_us": 1, "overlap_cost": 0}
END
sed 's/"locals": 1, "threads": 1/"locals": 4, "threads": 1, "cores": 2/; s/"step_us": 1,/&"inside": {"latency_us": 5, "bytes_per_second": 1e10},/' \
    cpu.json >cores.json
sed 's/"step_us": 1,/&"across": {"latency_us": 50, "bytes_per_second": 1e9},/' cpu.json >pair.json
plan CLUSTER=pair.json $tiny DEVICE=cpu N_NODES=2 GLOBAL_BATCH=4
ok "copies in peers' memory are said, and not counted" is "$(grep -c "copies in peers' memory (PEER_COPIES=auto) use [0-9.]* KiB more of a node" out) $(grep -c '^  copies for peers' out)" "1 0"
plan CLUSTER=pair.json $tiny DEVICE=cpu N_NODES=2 GLOBAL_BATCH=4 PP=2
ok "a lost node costs one step, and their memory" shows '^a lost node costs at most 1 step \([0-9.]+ [a-z]+\); copies use [0-9.]+ KiB of host memory on each node$'
ok "of stages the most" is "$(grep -c "copies in peers' memory (PEER_COPIES=auto) use up to [0-9.]* KiB more of a node" out)" 1
plan CLUSTER=pair.json $tiny DEVICE=cpu N_NODES=2 GLOBAL_BATCH=4 PEER_COPIES=1
ok "with PEER_COPIES=1 they are counted" is "$(grep -c "PEER_COPIES=auto" out) $(grep -cE '^  copies for peers +[0-9.]+ KiB' out)" "0 1"
plan CLUSTER=h100-sxm MODEL=llama-2-7b SEQ_LEN=4096 N_NODES=4 GLOBAL_BATCH=512 SHARD=full
ok "a GPU's copies are in the memory of its host" is "$(grep -c "copies in peers' memory (PEER_COPIES=auto) use 75.3 GiB more of a node" out)" 1
plan CLUSTER=pair.json $tiny DEVICE=cpu N_NODES=2 GLOBAL_BATCH=4 PEER_COPIES=0 CHECKPOINT_DIR=x CHECKPOINT_EVERY=50
ok "without copies a lost node costs the steps since the last checkpoint" shows '^a lost node costs at most 50 steps \([0-9.]+ [a-z]+\) since the last checkpoint$'
plan CLUSTER=h100-sxm MODEL=gpt2 N_NODES=4 GLOBAL_BATCH=512 SENTINEL_EVERY=10 JSON=1
ok "the wait of SENTINEL_EVERY and the delay of copies have a time, at most 2 % for the latter" holds out \
    '.[0] | .lost_node as $l | $l.sentinel_ms == 0.05 and $l.copy_ms > 0 and .step_ms["copies and checks"] - 0.05 <= 0.0201 * .step_ms.all and $l.steps == $l.copy_every'
plan CLUSTER=h100-sxm MODEL=gpt2 N_NODES=4 GLOBAL_BATCH=512 SENTINEL_EVERY=10
ok "both are printed as assumptions" shows '^  copies and checks are assumed, not measured: copies at 20 GB/s, a wait of 0.05 ms in each step \(SENTINEL_EVERY\)$'
plan CLUSTER=h100-sxm MODEL=gpt2 N_NODES=4 GLOBAL_BATCH=512 PEER_COPIES=0
ok "without copies and checks nothing is assumed" is "$(grep -c 'assumed, not measured' out)" 0
turns() { grep -oE '[0-9]+ workers of 1 thread share 2 cores' out; }
plan CLUSTER=cores.json $tiny DEVICE=cpu GLOBAL_BATCH=24
ok "four workers on two cores take turns" is "$(turns)" "4 workers of 1 thread share 2 cores"
plan CLUSTER=cores.json $tiny DEVICE=cpu GLOBAL_BATCH=24 N_GPU_EACH_NODE=3
ok "so do three of them" is "$(turns)" "3 workers of 1 thread share 2 cores"
plan CLUSTER=cores.json $tiny DEVICE=cpu GLOBAL_BATCH=24 N_GPU_EACH_NODE=2
ok "two of them have a core each" is "$rc $(turns)" "0 "
run $tiny DEVICE=cpu STEPS=12 CLUSTER=cpu.json
ok "train compares with its plan" grep -qE 'plan: a step takes .* planned: [0-9]+ % more; most of it is ' err
try "and says where there is none" 0 'no plan to compare with: CLUSTER=h100-sxm computes on GPUs' -- train $tiny DEVICE=cpu STEPS=1 CLUSTER=h100-sxm
try "train takes no MESH=auto" 78 'MESH=auto (argument) is for' -- train $tiny DEVICE=cpu STEPS=1 MESH=auto
done_testing
