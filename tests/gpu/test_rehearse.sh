#!/bin/bash
# test_rehearse — `convoy rehearse` with DEVICE=cuda, on emulated GPUs (tests/gpu/emulated.c): nodes that share a GPU or have their own,
# every kind of fault, and the report of each; EXACT=layout refuses GPUs of two kinds, and BALANCE=auto follows their speed. Device
# memory is the process's own here, but only the worker may change it, as on a GPU.
# Exchanges go through host memory: there is no NCCL between processes without a GPU (tests/comm/test_nccl_async.c has it between threads).
EMULATED=1
. "$(dirname "$0")/../e2e/lib.sh"
[ -x "$convoy" ] || give_up "rehearsals on emulated GPUs" "no $convoy: it needs CUDA's headers"
[ -z "${SAN:-}" ] || give_up "rehearsals on emulated GPUs" "kernels switch stacks, and sanitizers do not support that"
export TMPDIR=$tmp/scratch
mkdir "$TMPDIR"
unset JOB_TOKEN FAULT CUDA_VISIBLE_DEVICES
job="$tiny LAYERS=1 EMBED=16 PRECISION=fp32 DEVICE=cuda CHECKPOINT_EVERY=5 CHECKPOINT_DIR=$TMPDIR/run N_NODES=2 PEER_TIMEOUT=$(secs 3)"
rehearse() { # SETTING… — $rc, out, err
    rc=0
    limit 150 "$convoy" rehearse $job "$@" >out 2>err || rc=$?
}
healed='.problem == null and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed) and .samples_lost == 0 and (.weights | .judged and .equal and .compared > 0)'
of() { holds out ".[0].faults[] | select(.kind == \"$1\") | $2"; } # of KIND JQ
at_load=$(slow)

# Two nodes share the GPU of this machine.
rehearse DURATION=$((14 * at_load))s FAULT_EVERY=$((2 * at_load))s FAULT_MIX=kill:1,node:1,flip:2,comm:1,disk:1,slow:1 SEED=16 JSON=1
ok "one GPU: exit 0, all faults healed, no sample lost, the weights of the calm run" holds out "$rc == 0 and (.[0] | $healed)"
ok "the GPU is shared, so exchanges go through the host" holds out '.[0] | .gpus == 1 and .gpu_workers == 2 and (.device | startswith("cuda 0 Emulated GPU")) and .backend == "tcp"'
ok "a worker and a node were killed" holds out '[.[0].faults[] | select(.kind == "kill" or .kind == "node") | .made] | add >= 1'
ok "bits in the memory of a GPU: the right worker is named" of flip '.made >= 1 and .named_right == .made and .detect_steps.worst <= 2'
ok "each flip was made by its worker, in a parameter" [ "$(grep -c 'bit [0-9]* of parameter [0-9]* of rank [01]: was' err)" -ge 1 ]
ok "collectives that fail end no process" of comm '.made == .kept'

# A GPU for each node: two of three. A node that stands still is known after PEER_TIMEOUT.
EMULATED_GPUS=3 EMULATED_NAMES="Emulated 0,Emulated 1,Emulated 2" CUDA_VISIBLE_DEVICES=2,0,1 \
    rehearse BACKEND=tcp N_GPU_EACH_NODE=1 DURATION=$((4 * at_load))s FAULT_EVERY=$((2 * at_load))s FAULT_MIX=hang SEED=3 LOG_LEVEL=debug
ok "two GPUs, a node stands still: exit 0" is "$rc" 0
ok "the report names the GPUs and the workers" shows '^devices      3 GPUs for 2 workers: cuda 0 Emulated 2 .*; tcp between workers$'
ok "each node has a GPU of its own, in the order of CUDA_VISIBLE_DEVICES" is \
    "$(grep -o 'node [01] rank [01] .*device cuda 0 Emulated [0-9]' err | sed 's/^.*\(rank .\).*Emulated/\1/' | sort -u | tr '\n' ';')" "rank 0 2;rank 1 0;"
ok "the fault is in the table" shows '^hang +[1-9]'

# A job that ends by itself: no fault is made when it may end before it notices it.
rehearse STEPS=15 DURATION=10m FAULT_EVERY=100ms FAULT_MIX=kill:1,node:1 SEED=5 JSON=1
ok "workers and nodes killed up to the last steps of a job: all healed" holds out \
    "$rc == 0 and (.[0] | $healed) and ([.[0].faults[].made] | add) >= 3"

# GPUs of two kinds round differently: EXACT=layout refuses them, and the job does not need it.
two_kinds() {
    EMULATED_GPUS=2 EMULATED_NAMES="Emulated A,Emulated B" \
        run $tiny PRECISION=fp32 DEVICE=cuda BACKEND=tcp N_GPU_EACH_NODE=2 GLOBAL_BATCH=4 STEPS=2 "$@"
}
two_kinds EXACT=layout
ok "GPUs of two kinds and EXACT=layout: 78" is "$rc" 78
ok "with the ranks, their GPUs and what to do" grep -qE \
    'EXACT=layout: rank 1 computes on Emulated B sm_90, cuBLASLt .* and rank 0 on Emulated A sm_90, .* use devices of one kind .* or EXACT=off' err
ok "no step was made" is "$(grep -c '^step ' out)" 0
two_kinds EXACT=off
ok "GPUs of two kinds without it train" is "$rc $(grep -c '^step ' out)" "0 2"

# A GPU three times as slow as the other one gets fewer virtual shards; the weights are those of equal numbers.
balance() {
    EMULATED_GPUS=2 EMULATED_PACES=$1 run $tiny PRECISION=fp32 DEVICE=cuda BACKEND=tcp BATCH_SIZE=1 GLOBAL_BATCH=8 EXACT=layout \
        STEPS=24 CHECKPOINT_DIR="got-$1" "${@:2}"
}
balance 1 N_GPU_EACH_NODE=1
balance 1,3 N_GPU_EACH_NODE=2 BALANCE=auto
ok "unequal GPUs and BALANCE=auto: the slow one has fewer shards" \
    grep -qE 'BALANCE=auto: virtual shards of each worker from now on, [^:]*: 6 of [0-9.]+ ms, 2 of' err
ok "the weights of one GPU" is "$rc $(weights got-1,3/step-00000024)" "0 $(weights got-1/step-00000024)"

# Refused settings.
rehearse BACKEND=nccl
ok "BACKEND=nccl for two ranks on one GPU: 78" is "$rc" 78
ok "with what to do" says 'would share 1 GPUs, and NCCL refuses two ranks on one GPU; use BACKEND=auto'
ok "nothing is left" is "$(ls "$TMPDIR")" ""
done_testing
