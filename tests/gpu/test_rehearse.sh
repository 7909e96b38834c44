#!/bin/bash
# test_rehearse — `convoy rehearse` with DEVICE=cuda, on emulated GPUs (tests/gpu/emulated.c): nodes that share a GPU or have their own,
# every kind of fault, and the report of each. Device memory is the process's own here, but only the worker may change it, as on a GPU.
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
ok "the GPU is shared, so exchanges go through the host" holds out '.[0] | .gpus == 1 and .gpu_workers == 2 and (.device | startswith("cuda 0 Emulated 0")) and .backend == "tcp"'
ok "a worker and a node were killed" holds out '[.[0].faults[] | select(.kind == "kill" or .kind == "node") | .made] | add >= 1'
ok "bits in the memory of a GPU: the right worker is named" of flip '.made >= 1 and .named_right == .made and .detect_steps.worst <= 2'
ok "each flip was made by its worker, in a parameter" [ "$(grep -c 'bit [0-9]* of parameter [0-9]* of rank [01]: was' err)" -ge 1 ]
ok "collectives that fail end no process" of comm '.made == .kept'

# A GPU for each node: two of three. A node that stands still is known after PEER_TIMEOUT.
EMULATED_GPUS=3 CUDA_VISIBLE_DEVICES=2,0,1 rehearse BACKEND=tcp N_GPU_EACH_NODE=1 DURATION=$((4 * at_load))s FAULT_EVERY=$((2 * at_load))s FAULT_MIX=hang SEED=3 LOG_LEVEL=debug
ok "two GPUs, a node stands still: exit 0" is "$rc" 0
ok "the report names the GPUs and the workers" shows '^devices      3 GPUs for 2 workers: cuda 0 Emulated 2 .*; tcp between workers$'
ok "each node has a GPU of its own, in the order of CUDA_VISIBLE_DEVICES" is \
    "$(grep -o 'node [01] rank [01] .*device cuda 0 Emulated [0-9]' err | sed 's/^.*\(rank .\).*Emulated/\1/' | sort -u | tr '\n' ';')" "rank 0 2;rank 1 0;"
ok "the fault is in the table" shows '^hang +[1-9]'

# Refused settings.
rehearse BACKEND=nccl
ok "BACKEND=nccl for two ranks on one GPU: 78" is "$rc" 78
ok "with what to do" says 'would share 1 GPUs, and NCCL refuses two ranks on one GPU; use BACKEND=auto'
ok "nothing is left" is "$(ls "$TMPDIR")" ""
done_testing
