#!/bin/bash
# test_bench — `convoy bench` as a user runs it: a table or JSON, every element right, and what it refuses.
. "$(dirname "$0")/lib.sh"

bench() { work bench BENCH_SIZES=4-1Mi "$@"; }

try "three workers end well" 0 -- bench BENCH_SIZES=4-1Mi N_GPU_EACH_NODE=3
ok "the table has every collective and size" [ "$(grep -cE '^(all_reduce|reduce_scatter|all_gather|broadcast) ' out)" = 28 ]
ok "nothing is wrong" [ "$(awk 'NR > 2 && $NF != 0' out | wc -l)" = 0 ]
bench JSON=1 N_GPU_EACH_NODE=2
ok "JSON for programs" [ "$(jq -r '[.ranks, (.results | length), ([.results[].wrong] | add)] | join(" ")' out)" = "2 28 0" ]
ok "times are there" holds out '.[0] | all(.results[]; .median_us > 0 and .median_us >= .best_us and .runs >= 5)'
bench JSON=1 N_GPU_EACH_NODE=2 BENCH_OVER=tcp BENCH_SIZES=8,16Ki-64Ki,2Mi
ok "over TCP, the sizes asked for" [ "$(jq -r '[.transport, (.results[] | select(.collective == "all_reduce") | .bytes), ([.results[].wrong] | add)] | join(" ")' out)" = "tcp 8 16384 65536 2097152 0" ]
for bad in 8,1KiB,six 6 64Ki-1Ki 5-60 8-; do
    try "BENCH_SIZES=$bad is refused" 78 "BENCH_SIZES (argument) is \"$bad\"" -- bench BENCH_SIZES=$bad
done
UCX_TLS=tcp,self UCX_NET_DEVICES=lo bench JSON=1 N_GPU_EACH_NODE=2 BENCH_OVER=ucx BENCH_SIZES=64Ki
ok "over UCX, one size" [ "$(jq -r '[.transport, (.results | length), ([.results[].wrong] | add)] | join(" ")' out)" = "ucx (tcp/lo) 4 0" ]
if [ -e /dev/nvidiactl ]; then
    skip "GPUs that are not there are refused" "there is a driver here"
else
    bench DEVICE=cuda
    ok "GPUs that are not there are refused" is "$rc $(grep -c DEVICE=cpu err)" "69 1"
    try "so is NCCL without them" 69 'BACKEND=nccl (argument) needs two GPUs' -- bench DEVICE=auto BACKEND=nccl
fi
try "several nodes are refused, with the reason" 78 "one node" -- bench N_NODES=2 JOB_TOKEN=none MASTER_ADDR=127.0.0.1
done_testing
