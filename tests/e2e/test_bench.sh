#!/bin/bash
# test_bench — `convoy bench` as a user runs it: a table or JSON, every element right, and what it refuses.
. "$(dirname "$0")/lib.sh"

bench() { limit 60 "$convoy" bench BENCH_MAX=1 "$@" >out 2>err; }

has_times() { jq -e 'all(.results[]; .median_us > 0 and .median_us >= .best_us and .runs >= 5)' out >/dev/null; }

bench N_GPU_EACH_NODE=3
code=$?
ok "three workers end well" [ $code = 0 ]
ok "the table has every collective and size" [ "$(grep -cE '^(all_reduce|reduce_scatter|all_gather|broadcast) ' out)" = 28 ]
ok "nothing is wrong" [ "$(awk 'NR > 2 && $NF != 0' out | wc -l)" = 0 ]
bench JSON=1 N_GPU_EACH_NODE=2
ok "JSON for programs" [ "$(jq -r '[.ranks, (.results | length), ([.results[].wrong] | add)] | join(" ")' out)" = "2 28 0" ]
ok "times are there" has_times
bench JSON=1 N_GPU_EACH_NODE=2 BENCH_OVER=tcp BENCH_ONLY=all_reduce
ok "over TCP, one collective" [ "$(jq -r '[.transport, (.results | length), ([.results[].wrong] | add)] | join(" ")' out)" = "tcp 7 0" ]
bench JSON=1 N_GPU_EACH_NODE=2 BENCH_OVER=tcp BENCH_ONLY=all_reduce BENCH_SIZES=8,1Ki,2Mi
ok "the sizes asked for, whatever BENCH_MAX" [ "$(jq -r '[.results[].bytes, ([.results[].wrong] | add)] | join(" ")' out)" = "8 1024 2097152 0" ]
bench BENCH_SIZES=8,1KiB,six
ok "what is no size is refused" is "$? $(grep -c 'BENCH_SIZES (argument) is "8,1KiB,six"' err)" "78 1"
UCX_TLS=tcp,self UCX_NET_DEVICES=lo bench JSON=1 N_GPU_EACH_NODE=2 BENCH_OVER=ucx BENCH_ONLY=all_reduce
ok "over UCX, one collective" [ "$(jq -r '[.transport, (.results | length), ([.results[].wrong] | add)] | join(" ")' out)" = "ucx (tcp/lo) 7 0" ]
if [ -e /dev/nvidiactl ]; then
    skip "GPUs that are not there are refused" "there is a driver here"
    skip "so is NCCL without them" "there is a driver here"
else
    bench DEVICE=cuda BENCH_ONLY=all_reduce
    ok "GPUs that are not there are refused" is "$? $(grep -cE 'DEVICE=cpu' err)" "69 1"
    bench DEVICE=auto BACKEND=nccl
    ok "so is NCCL without them" is "$? $(grep -c 'BACKEND=nccl (argument) moves numbers between GPUs' err)" "69 1"
fi
bench N_NODES=2 JOB_TOKEN=none MASTER_ADDR=127.0.0.1
code=$?
ok "several nodes are refused" [ $code = 78 ]
ok "and it says why" grep -q "one node" err
done_testing
