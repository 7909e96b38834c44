#!/bin/bash
# test_exact — EXACT=layout: the weights after some steps have one checksum in every layout of a list: workers and nodes, SHARD, PP, RECOMPUTE, threads,
# transports, a restart on other workers, a kill. With TP and CP the same for each of their sizes. A model of each family, with dropout. `make exact` (EVERY=1) runs the list for each, with
# gpt2-nano and 50 steps; the suite a part of it. EMULATED=1 runs the 57 layouts without groups, of smaller models, on emulated GPUs (`make exact-emulated`).
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
export UCX_TLS=tcp # for BACKEND=ucx and auto
steps=${STEPS:-8} tiny="LAYERS=2 HEADS=2 EMBED=48 CONTEXT=32"
[ -z "${EVERY:-}" ] || tiny= steps=${STEPS:-50}
common="DEVICE=cpu BATCH_SIZE=1 GLOBAL_BATCH=12 SEQ_LEN=32 STEPS=$steps LR=3e-3 DROPOUT=0.1 EXACT=layout STEP_TIMEOUT=600"
declare -A family=(
    [gpt2]="MODEL=gpt2-nano $tiny DATA=/usr/share/common-licenses/GPL-3"
    [llama]="MODEL=llama-2-7b TOKENIZER=gpt2 VOCAB=50257 LAYERS=2 HEADS=4 KV_HEADS=2 HEAD_DIM=8 EMBED=48 FFN=40 CONTEXT=32 DATA=/usr/share/common-licenses/GPL-3"
    [qa]="MODEL=gpt2-nano $tiny TASK=qa DATA=synthetic"
)
if [ "${EMULATED:-0}" != 0 ]; then
    # Each worker has an emulated GPU of its own; there is no NCCL between processes. A GPU of the emulation computes some 10^8 FLOP/s.
    export EMULATED_GPUS=8 BACKEND=tcp
    EVERY=1 steps=${STEPS:-3}
    common="DEVICE=cuda PRECISION=fp32 BATCH_SIZE=1 GLOBAL_BATCH=12 SEQ_LEN=16 STEPS=$steps LR=3e-3 DROPOUT=0.1 EXACT=layout STEP_TIMEOUT=600 JOIN_TIMEOUT=600s DATA=synthetic VOCAB=64"
    family=(
        [gpt2]="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=16 CONTEXT=16"
        [llama]="MODEL=llama-2-7b LAYERS=2 HEADS=4 KV_HEADS=2 HEAD_DIM=8 EMBED=16 FFN=24 CONTEXT=16"
        [qa]="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=16 CONTEXT=16 TASK=qa"
    )
fi

# sum_of FOLDER — of the weights at the end; no two missing ones are equal.
sum_of() {
    ls "$1"/step-*"$steps"/*.safetensors >/dev/null 2>&1 || { echo "no weights in $1"; return; }
    cat "$1"/step-*"$steps"/*.safetensors | sha256sum | cut -d ' ' -f 1
}
# layout NAME "NODES WORKERS" SETTING… — trains, and compares with $want.
layout() {
    local name=$1 nodes=${2% *} workers=${2#* } got
    last=$name
    shift 2
    rm -rf got
    if [ "$nodes" = 1 ]; then
        run ${family[$name]} $common N_GPU_EACH_NODE=$workers CHECKPOINT_DIR=got CHECKPOINT_EVERY=$steps "$@"
    else
        train_nodes $nodes ${family[$name]} $common N_GPU_EACH_NODE=$workers CHECKPOINT_DIR=got CHECKPOINT_EVERY=$steps "$@"
        cat err.* >err
    fi
    got=$(sum_of got)
    ok "$name on $nodes nodes of $workers workers, $*: the same sha256" is "$got" "$want"
    all=$((all + 1))
    [ "$got" != "$want" ] || same=$((same + 1))
}
# begins NAME [WORKERS SETTING…] — the sum to compare with: of one worker, or of one group of them.
begins() {
    rm -rf one
    try "$*: ends" 0 -- train ${family[$1]} $common CHECKPOINT_DIR=one CHECKPOINT_EVERY=$steps N_GPU_EACH_NODE="${2:-1}" "${@:3}"
    want=$(sum_of one)
}

# ---- the list: each family begins, then its layouts ----

all=0 same=0
list() {
    local name nodes workers settings
    while read -r name nodes workers settings; do
        case $name in
            '' | \#*) continue ;;
            begins) begins "$nodes" $workers $settings ;;
            *) layout "$name" "$nodes $workers" $settings ;;
        esac
    done
}
if [ -z "${EVERY:-}" ]; then
    list <<'LIST'
begins gpt2
gpt2 1 2
gpt2 1 3 SHARD=full
gpt2 1 1 BATCH_SIZE=5
gpt2 1 2 BATCH_SIZE=8 PP=2
gpt2 1 4 SHARD=optimizer RECOMPUTE=block
gpt2 2 1 BACKEND=tcp SHARD=gradients
gpt2 3 2
gpt2 1 5 SHARD=full BALANCE=auto
gpt2 1 2 PP=2
gpt2 2 2 PP=2 BACKEND=tcp SHARD=full
begins llama
llama 1 2 PP=2
llama 1 4 PP=2 SHARD=full
begins qa
qa 1 3
begins llama 2 TP=2
llama 2 2 TP=2 BACKEND=tcp SHARD=full
llama 4 1 TP=2 TP_ACROSS_NODES=1 BACKEND=ucx
llama 1 4 TP=2 PP=2
llama 2 4 TP=2 PP=2 SHARD=full
begins gpt2 2 TP=2
gpt2 1 4 TP=2 PP=2
begins qa 2 TP=2
qa 2 2 TP=2 PP=2 BACKEND=tcp
begins gpt2 2 CP=2
gpt2 1 4 CP=2 SHARD=gradients
LIST
else
    layouts() { # layouts FAMILY: 13 of each
        cat <<LIST
begins $1
$1 1 1 RECOMPUTE=none
$1 1 1 RECOMPUTE=attention
$1 1 2
$1 2 1 BACKEND=tcp SHARD=full
$1 1 3 SHARD=optimizer
$1 3 1 SHARD=gradients
$1 1 4 SHARD=full
$1 2 2 BACKEND=ucx
$1 4 1 SHARD=optimizer RECOMPUTE=block
$1 1 6
$1 1 5 SHARD=full BALANCE=auto
$1 2 3 SHARD=gradients
$1 3 2 SHARD=full RECOMPUTE=block
$1 6 1
LIST
    }
    groups() { # groups FAMILY AXIS: on 1 to 6 groups of two workers, and of four
        cat <<LIST
begins $1 2 $2=2
$1 2 1 $2=2 TP_ACROSS_NODES=1 BACKEND=tcp
$1 1 4 $2=2 SHARD=full RECOMPUTE=block
$1 2 2 $2=2 SHARD=gradients BACKEND=ucx
$1 4 1 $2=2 TP_ACROSS_NODES=1 SHARD=optimizer
$1 1 6 $2=2 SHARD=full
$1 3 2 $2=2
$1 2 3 $2=2 TP_ACROSS_NODES=1 SHARD=full
$1 1 10 $2=2 BALANCE=auto
begins $1 4 $2=4
$1 2 2 $2=4 TP_ACROSS_NODES=1 SHARD=full
$1 4 1 $2=4 TP_ACROSS_NODES=1 BACKEND=ucx
$1 2 4 $2=4 SHARD=optimizer
LIST
    }
    piped() { # piped FAMILY AXIS: stages of groups
        cat <<LIST
begins $1 2 $2=2
$1 1 4 PP=2 $2=2 SHARD=full
$1 2 4 PP=2 $2=2
LIST
    }
    stages() { # stages FAMILY
        cat <<LIST
begins $1
$1 1 2 PP=2
$1 1 4 PP=2
$1 2 1 PP=2 BACKEND=ucx
$1 3 2 PP=2 SHARD=full RECOMPUTE=block
$1 1 8 PP=2 SHARD=gradients
LIST
    }
    list < <(layouts gpt2; layouts llama; layouts qa; stages gpt2; stages llama; stages qa)
    if [ "${EMULATED:-0}" != 0 ]; then
        echo "# $same of $all layouts have the bits of one worker"
        done_testing
        exit
    fi
    family[gpt2]+=" HEADS=4"
    list < <(groups gpt2 CP; groups gpt2 TP; groups llama TP; groups llama CP; groups qa CP; piped llama TP; piped llama CP; piped gpt2 TP; piped gpt2 CP)
    list < <(echo "begins llama 4 TP=2 CP=2"; echo "llama 2 2 TP=2 CP=2 SHARD=full"; echo "llama 2 4 TP=2 CP=2")
fi

# ---- what else may happen to a run ----

# CP and TP are in the bits. The last run goes on without them, and the log says so.
run ${family[$last]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$steps STEPS=$((steps + 1))
ok "CP=2, then CP=1: the log names it" grep -qE "settings differ from .*CP .*its losses differ" err
# A run goes on with another PP and the same TP: nothing differs. With another TP its losses do, and the log says so.
begins llama 2 TP=2
rm -rf got
run ${family[llama]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$((steps / 4)) N_GPU_EACH_NODE=4 PP=2 TP=2
rm -rf got/step-*"$steps"
run ${family[llama]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$((steps / 4)) N_GPU_EACH_NODE=2 TP=2
ok "PP=2 TP=2, then TP=2: resumed" grep -qE "resuming from .*: step [1-9][0-9]* of $steps" err
ok "PP=2 TP=2, then TP=2: no difference is logged" is "$(grep -c 'settings differ' err)" 0
ok "PP=2 TP=2, then TP=2: the same sha256" is "$(sum_of got)" "$want"
run ${family[llama]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$steps STEPS=$((steps + 1))
ok "TP=2, then TP=1: the log names it" grep -qE "settings differ from .*TP was 2, is not set.*its losses differ" err
# A restart on other workers.
begins gpt2
rm -rf got
run ${family[gpt2]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$((steps / 2)) N_GPU_EACH_NODE=3
rm -rf got/step-*"$steps"
run ${family[gpt2]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$steps N_GPU_EACH_NODE=4 SHARD=full
ok "three workers, then four from step $((steps / 2)): resumed" grep -qE "resuming from .*: step $((steps / 2)) of $steps" err
ok "three workers, then four: the same sha256" is "$(sum_of got)" "$want"
# A worker dies.
rm -rf got
run ${family[gpt2]} $common CHECKPOINT_DIR=got CHECKPOINT_EVERY=$((steps / 4)) N_GPU_EACH_NODE=2 FAULT=kill@step=$((steps / 2 + 1)):rank=1
ok "a killed worker: healed" says "restart 1 of"
ok "a killed worker: the same sha256" is "$(sum_of got)" "$want"
# Without it the layout is in the bits, or the points above could not fail.
rm -rf got
run ${family[gpt2]} $common EXACT=off N_GPU_EACH_NODE=3 CHECKPOINT_DIR=got CHECKPOINT_EVERY=$steps
differs() { [ "${#1}" = 64 ] && [ "$1" != "$2" ]; }
ok "EXACT=off on three workers: another sha256" differs "$(sum_of got)" "$want"

# ---- refused, each with what to do ----

refused() { run ${family[gpt2]} $common "${@:2}"; ok "refused: ${*:2}" is "$rc $(grep -cF -- "$1" err)" "78 1"; }
refused "set COMPRESS=none" COMPRESS=int8
refused "set COMPRESS=none" COMPRESS=bf16
refused "set LOCAL_STEPS=0" LOCAL_STEPS=2
refused "set BATCH_WARMUP=0" BATCH_WARMUP=4
refused "set GLOBAL_BATCH" GLOBAL_BATCH=0
refused "set VIRTUAL_SHARDS=12" PP=2 N_GPU_EACH_NODE=2 VIRTUAL_SHARDS=6
refused "are fewer than 3 data-parallel workers" VIRTUAL_SHARDS=2 N_GPU_EACH_NODE=3
refused "change VIRTUAL_SHARDS" MODEL=llama-2-7b TOKENIZER=gpt2 VOCAB=50257 HEADS=4 KV_HEADS=2 HEAD_DIM=8 PP=2 N_GPU_EACH_NODE=10
refused "VIRTUAL_SHARDS=7" VIRTUAL_SHARDS=7
refused "set EXACT=layout" EXACT=off VIRTUAL_SHARDS=4
refused "this setting was removed; set TP to this number" VIRTUAL_TP=2
echo "# $same of $all layouts have the bits of one worker, or of one group"
done_testing
