# shellcheck shell=bash
# gpu_test — the mode `test` of gpu.sh: every kernel against the CPU's plain truth, and runs of the program against the CPU's.
# Sourced by gpu.sh after gpu_lib.sh.

# two — two nodes of one worker each on this machine, the same GPU for both.
two() { # name, settings...
    local name=$1 port=$((20000 + RANDOM % 20000)) rc
    shift
    rm -f "$work/$name.jsonl"
    # shellcheck disable=SC2086 # all: UCX over TCP too, which BACKEND=ucx takes only when it is asked to
    UCX_TLS="${UCX_TLS-all}" JOB_TOKEN=a-secret-for-these-tests-only NCCL_HOSTID=convoy-b NODE_ID=1 within "${two_seconds:-300}" "$GPU/convoy" train $nano DATA="$work/text" N_NODES=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port "$@" >"$work/$name.1" 2>&1 &
    # shellcheck disable=SC2086
    UCX_TLS="${UCX_TLS-all}" JOB_TOKEN=a-secret-for-these-tests-only NCCL_HOSTID=convoy-a NODE_ID=0 within "${two_seconds:-300}" "$GPU/convoy" train $nano DATA="$work/text" N_NODES=2 MASTER_ADDR=127.0.0.1 \
        MASTER_PORT=$port METRICS_FILE="$work/$name.jsonl" "$@"
    rc=$?
    wait $! || rc=$?
    cat "$work/$name.1"
    [ $rc = 0 ] || return $rc
    sed -n 's/.*"loss":\([^,]*\),.*/\1/p' "$work/$name.jsonl" >"$work/$name.losses"
}

# What others are compared with, where ONLY has left that step out.
base() { [ -s "$work/gpu.losses" ] || train gpu DEVICE=$device; }
two_graphs() { two ucx_eager DEVICE=$device BACKEND=ucx CUDA_GRAPH=off && cmp "$work/ucx.losses" "$work/ucx_eager.losses"; }
over_ucx() { base && two ucx DEVICE=$device BACKEND=ucx && near ucx gpu; }
# NCCL's manual: two ranks on one device are "not supported and may lead to hangs". So neither a refusal nor a hang is ours.
over_nccl() {
    local rc
    [ "$DRY" = 1 ] && return 77
    base || return
    two_seconds=90 two nccl DEVICE=cuda BACKEND=nccl
    rc=$?
    [ $rc = 0 ] && { near nccl gpu; return; }
    if grep -hiqE 'duplicate gpu|NCCL refuses' "$work"/*nccl*; then
        echo "NCCL refuses two ranks on one GPU here" >"$work/note"
        return 77
    fi
    [ $rc = 124 ] || [ $rc = 137 ] || return 1
    echo "two ranks on one GPU came to no end within 90 s, which NCCL's manual foresees" >"$work/note"
    return 77
}
sharded() { base && two full DEVICE=$device BACKEND=ucx SHARD=full && near full gpu; }
squeezed() { two int8 DEVICE=$device BACKEND=ucx COMPRESS=int8 && tail -1 "$work/int8.losses" >"$work/note"; }
checkpoint() {
    rm -rf "$work/ckpt"
    train half DEVICE=$device STEPS=10 CHECKPOINT_DIR="$work/ckpt" CHECKPOINT_EVERY=5 || return
    rm -rf "$work/ckpt/step-00000010"
    train rest DEVICE=cpu STEPS=10 CHECKPOINT_DIR="$work/ckpt" RESUME=required || return
    tail -5 "$work/cpu.losses" >"$work/tail.losses"
    near rest tail
}
# Passes in 16 bits: losses beside those of fp32, and the same bits when the model is shared out. A CPU has fp32 alone.
narrow() { # precision
    local as=$1
    [ "$DRY" = 1 ] && as=fp32
    base && train narrow DEVICE=$device PRECISION="$as" && near narrow gpu 1e-2 &&
        two narrow_two DEVICE=$device PRECISION="$as" BACKEND=ucx && two narrow_full DEVICE=$device PRECISION="$as" BACKEND=ucx SHARD=full &&
        cmp "$work/narrow_two.losses" "$work/narrow_full.losses"
}
# questions — a SQuAD file in which each answer can be read off.
questions() {
    awk 'BEGIN {
        printf "{\"version\":\"v2.0\",\"data\":[{\"title\":\"boxes\",\"paragraphs\":["
        split("red blue green white black", colour, " ")
        for (i = 1; i <= 24; i++) {
            text = "Box " i " is " colour[i % 5 + 1] " and weighs " i * 3 " grams."
            printf "%s{\"context\":\"%s\",\"qas\":[{\"id\":\"q%d\",\"question\":\"What colour is box %d?\",\"is_impossible\":false,", \
                (i > 1 ? "," : ""), text, i, i
            printf "\"answers\":[{\"text\":\"%s\",\"answer_start\":%d}]}]}", colour[i % 5 + 1], index(text, colour[i % 5 + 1]) - 1
        }
        print "]}]}"
    }'
}
answers() {
    questions >"$work/boxes.json" && rm -rf "$work/qa" || return
    train qa DEVICE=cpu TASK=qa DATA="$work/boxes.json" && train qa_gpu DEVICE=$device TASK=qa DATA="$work/boxes.json" \
        CHECKPOINT_DIR="$work/qa" && near qa_gpu qa || return
    evaluated qa boxes.json '"f1":'
}
# evaluated — the same number from a checkpoint on the GPU and on the CPU, in fp32.
evaluated() { # folder, data, name
    local where
    for where in $device cpu; do
        within 120 "$GPU/convoy" eval DEVICE="$where" PRECISION=fp32 CHECKPOINT_DIR="$work/$1" VAL_DATA="$work/$2" JSON=1 >"$work/eval.$where" || return
        sed -n "s/.*$3\([^,}]*\).*/\1/p" "$work/eval.$where" >"$work/eval_$where.losses"
    done
    near "eval_$device" eval_cpu
}
# curve — gpt2, 200 steps, on tinyshakespeare where that was carried along: bf16 beside fp32, step by step, within 1 %.
curve() {
    local text=$GPU/tinyshakespeare.txt of="MODEL=gpt2 SEQ_LEN=256 BATCH_SIZE=8 GLOBAL_BATCH=8 STEPS=200 LR=3e-4" what=tinyshakespeare
    [ -s "$text" ] || text=$work/text what="the book that ships"
    [ "$DRY" = 1 ] && of=STEPS=20
    # shellcheck disable=SC2086 # words
    train curve_fp32 DEVICE=$device DATA="$text" $of &&
        train curve DEVICE=$device DATA="$text" $of PRECISION="$([ "$DRY" = 1 ] && echo fp32 || echo bf16)" && near curve curve_fp32 1e-2
    local rc=$?
    [ -s "$work/note" ] && echo "on $what" >>"$work/note"
    return $rc
}
# collectives — nothing wrong in any; between one GPU and itself nothing moves, but all the rest is as between several.
collectives() {
    local n
    n=$(gpus)
    within 300 "$GPU/convoy" bench DEVICE=$device N_GPU_EACH_NODE="$n" BENCH_SIZES=4-4Mi JSON=1 >"$work/collectives" &&
        grep -q '"wrong":' "$work/collectives" && echo "$n GPUs, $(sed -n 's/.*"transport":[^"]*"\([^"]*\)".*/\1/p' "$work/collectives")" >"$work/note"
}
generates() { within 120 "$GPU/convoy" generate DEVICE=$device CHECKPOINT_DIR="$work/ckpt" PROMPT=The TOKENS=8 SEED=1; }

run_test() {
    local family
    # Every family of kernels; a dry run takes two.
    for family in $(families); do
        [ "$DRY" = 1 ] && case $family in norm | reduce) ;; *) continue ;; esac
        step "kernels $family" kernels "$family"
    done
    text_for_training
    step "what we lean on of CUDA's runtime" runtime
    step "golden cases within 1e-4" golden
    step "losses as on the CPU" as_on_cpu
    step "CUDA_GRAPH=off: the same bits" graphs
    step "two ranks over UCX" over_ucx
    step "two ranks, CUDA_GRAPH=off: the same bits" two_graphs
    step "two ranks over NCCL" over_nccl
    step "SHARD=full over UCX" sharded
    step "COMPRESS=int8 over UCX" squeezed
    step "bf16: losses within 1 %, the same bits with SHARD=full" narrow bf16
    step "fp16: losses within 1 %, the same bits with SHARD=full" narrow fp16
    step "a checkpoint of the GPU on the CPU" checkpoint
    step "eval as on the CPU" evaluated ckpt text '"loss":'
    step "questions: losses and f1 as on the CPU" answers
    step "gpt2, 200 steps: bf16 within 1 % of fp32" curve
    step "generate" generates
    step "collectives" collectives
    # shellcheck disable=SC2086
    step "compute-sanitizer memcheck, training" sanitizer memcheck "$GPU/convoy" train $nano STEPS=2 DATA="$work/text" DEVICE=cuda
    step "compute-sanitizer memcheck, kernels norm" sanitizer memcheck "$GPU/gpu_tests" norm
    for family in norm matmul attention; do
        step "compute-sanitizer racecheck, kernels $family" sanitizer racecheck "$GPU/gpu_tests" "$family"
    done
    write_last
    [ $failures = 0 ]
}
