#!/bin/bash
# test_lora — LORA: adapters on frozen weights, on every mesh, exact, resumed, killed, with copies in memory; evaluated, and refused
# where it does not fit. tests/golden/test_lora compares its numbers with those of PEFT.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
small="LAYERS=2 HEADS=4 KV_HEADS=2 EMBED=32 FFN=48 VOCAB=50257 CONTEXT=128"
shape="BATCH_SIZE=2 GLOBAL_BATCH=8 SEQ_LEN=64 LR_SCHEDULE=constant TASK=chat CHAT_TEMPLATE=zephyr TOKENIZER=gpt2"
# Two subjects: the model learns one, and its adapters the other.
perl -e '
    for my $subject ("word", "thing") {
        open my $out, ">", "$subject.jsonl";
        for my $i (0 .. 119) {
            my $answer = join " ", map { $subject . ($i * $_ % 17) } 1 .. 2 + $i % 9;
            print $out qq({"prompt":"what is @{[$i % 13]}","completion":"$answer"}\n);
        }
    }'
run MODEL=llama-toy $small $shape DATA=word.jsonl LR=1e-2 STEPS=40 CHECKPOINT_DIR=whole
lora="MODEL=whole $shape DATA=thing.jsonl LR=1e-2 LORA=4"

# 1. An adapter learns, and the weights stay as they are.
sum() { sha256sum "$1"/model.safetensors; }
before=$(sum whole/step-00000040)
run $lora STEPS=20 METRICS_FILE=one.jsonl CHECKPOINT_DIR=one CHECKPOINT_EVERY=10 EVAL_EVERY=20 VAL_DATA=thing.jsonl LOG_LEVEL=info
ok "it learns" holds one.jsonl '[.[] | select(.loss)] | length == 20 and .[19].loss < 0.9 * .[0].loss'
ok "the log says what trains" says "3.23M parameters are frozen, and an adapter of 3.71k trains"
ok "the model's checkpoint does not change" is "$(sum whole/step-00000040)" "$before"
ok "a checkpoint holds the adapter alone" test "$(stat -c %s one/step-00000020/model.safetensors)" -lt 30000
ok "the end says how to talk to it" shows "^to talk: .* chat MODEL='whole' ADAPTER='one'"
grep -v val_loss one.jsonl >steps.jsonl

port=$(free_port)
begin_served $lora STEPS=100000 CHECKPOINT_EVERY=0
ok "/status has the adapter" wait_for 30 status_has '.model.adapter == {rank: 4, alpha: 8, targets: "all", trained: 3712, frozen: (.model.parameters - 3712)}'
"$convoy" status "http://127.0.0.1:$port" >out 2>err
ok "and status prints it" shows '^adapter +LoRA rank 4, alpha 8, targets all  3\.71k train, 3\.23M frozen$'
stop

# 2. The loss does not depend on the mesh, nor on the division into micro-batches.
for mesh in N_GPU_EACH_NODE=2 "N_GPU_EACH_NODE=2 TP=2 RECOMPUTE=block" "N_GPU_EACH_NODE=4 TP=4" "N_GPU_EACH_NODE=2 PP=2" "N_GPU_EACH_NODE=2 CP=2" \
    "N_GPU_EACH_NODE=2 SHARD=optimizer" "N_GPU_EACH_NODE=2 SHARD=gradients" "N_GPU_EACH_NODE=2 SHARD=full RECOMPUTE=attention" \
    "N_GPU_EACH_NODE=4 TP=2 PP=2 SHARD=full" BATCH_SIZE=1 BATCH_SIZE=8; do
    losses_near steps.jsonl 1e-5 "$mesh: losses within 1e-5 of one worker's" $lora STEPS=20 $mesh
done
for ranks in 1 2 4; do
    run $lora STEPS=10 EXACT=layout VIRTUAL_SHARDS=4 N_GPU_EACH_NODE=$ranks METRICS_FILE=exact$ranks.out
done
ok "EXACT=layout: 1, 2 and 4 workers have the same bits" is "$(losses exact2.out) $(losses exact4.out)" "$(losses exact1.out) $(losses exact1.out)"
for how in COMPRESS=bf16 COMPRESS=int8; do
    losses_near steps.jsonl 1e-2 "$how: near" $lora STEPS=20 N_GPU_EACH_NODE=2 $how
done
for how in "OPTIMIZER=muon N_GPU_EACH_NODE=2" "LORA_TARGETS=attention LORA_ALPHA=16" "LORA_TARGETS=mlp N_GPU_EACH_NODE=2 PP=2" "LORA_TARGETS=q_proj,v_proj N_GPU_EACH_NODE=2 TP=2" DROPOUT=0.1; do
    run $lora STEPS=20 $how METRICS_FILE=how.jsonl
    ok "$how: it learns" holds how.jsonl 'length == 20 and .[19].loss < .[0].loss'
    rm how.jsonl
done
train_nodes 2 $lora STEPS=10 LOCAL_STEPS=5 METRICS_FILE=local.jsonl
ok "LOCAL_STEPS: two nodes learn" holds local.jsonl 'length == 10 and .[9].loss < .[0].loss'

# 3. Resumed, killed, and copied.
run $lora STEPS=30 CHECKPOINT_DIR=one METRICS_FILE=two.jsonl
run $lora STEPS=30 METRICS_FILE=three.jsonl
ok "a resumed run has the same losses, bit for bit" is "$(losses two.jsonl)" "$(losses three.jsonl | tail -n 10)"
heals "$lora" kill nan
rc=0
limit 200 "$convoy" rehearse $lora EPOCHS=100000 N_NODES=2 JOIN_TIMEOUT=60s CHECKPOINT_EVERY=20 CHECKPOINT_DIR="$tmp/rehearsed" FAULT_MIX=kill,node FAULT_EVERY=1s \
    DURATION=3s SEED=$RANDOM JSON=1 >out 2>err || rc=$?
ok "workers and nodes are killed: healed from memory, with the weights of a calm run" holds out '.[0] | .problem == null and .weights.equal
    and ([.faults[].made] | add) > 0 and all(.faults[]; .made == .healed) and ([.faults[].steps_redone.worst // 0] | max) <= 1'

# 4. With ADAPTER commands add it to the weights.
loss_of() { "$convoy" eval MODEL=whole VAL_DATA=thing.jsonl TASK=chat CHAT_TEMPLATE=zephyr TOKENIZER=gpt2 SEQ_LEN=64 JSON=1 "$@" 2>err | jq .loss; }
rm -r one/step-00000030
with=$(loss_of ADAPTER=one) without=$(loss_of) held=$(jq -s '.[] | select(.val_loss).val_loss' one.jsonl)
ok "eval: merged equals unmerged" test "$(jq -n "($with / $held - 1) | fabs < 1e-6")" = true
ok "eval: without the adapter the loss is the model's" test "$(jq -n "$with < 0.9 * $without")" = true
"$convoy" eval MODEL=whole ADAPTER=one VAL_DATA=thing.jsonl TASK=chat CHAT_TEMPLATE=zephyr TOKENIZER=gpt2 SEQ_LEN=64 >out 2>err
ok "eval names the model and the adapter" shows '  model llama-toy step 40  adapter one/step-00000020  data '
run ${lora/LORA=4/} ADAPTER=one STEPS=1 METRICS_FILE=from.jsonl
ok "train: an adapter goes on from ADAPTER" holds from.jsonl ".[0].loss < 0.9 * $without"
"$convoy" chat MODEL=whole ADAPTER=one TOKENIZER=gpt2 PROMPT="what is 5" TEMPERATURE=0 TOKENS=5 >out 2>err
ok "chat: by the template that the adapter's run recorded" is "$? $(wc -w <out)" "0 1"

# An adapter of q and v, as PEFT makes by default: back and forth, and planned.
run $lora LORA_TARGETS=q,v STEPS=20 CHECKPOINT_DIR=qv
some=$(loss_of ADAPTER=qv)
ok "q and v: it learns" test "$(jq -n "$some < 0.95 * $without")" = true
work export FROM=qv TO=qv-peft
ok "its PEFT folder names q_proj and v_proj, and has no other tensors" is "$(jq -c .target_modules qv-peft/adapter_config.json) $(
    tr -d '\0' <qv-peft/adapter_model.safetensors | grep -aoE '[a-z]+_proj\.lora_[AB]' | sort | uniq -c | xargs)" \
    '["q_proj","v_proj"] 2 q_proj.lora_A 2 q_proj.lora_B 2 v_proj.lora_A 2 v_proj.lora_B'
ok "which ADAPTER reads as the same numbers" is "$(loss_of ADAPTER=qv-peft)" "$some"
sed -i 's/\["q_proj", "v_proj"\]/".*\\\\.(q|v)_proj"/' qv-peft/adapter_config.json
ok "target_modules may be a pattern" is "$(jq -r .target_modules qv-peft/adapter_config.json) $(loss_of ADAPTER=qv-peft)" ".*\\.(q|v)_proj $some"
run ${lora/LORA=4/} ADAPTER=qv-peft STEPS=1 METRICS_FILE=on.jsonl CHECKPOINT_DIR=on
ok "train goes on from it, with its targets" is "$(jq -r .model.lora_targets on/step-00000001/manifest.json) $(jq ".loss < 0.95 * $without" on.jsonl)" "q,v true"
run $lora LORA_TARGETS=q,v STEPS=22 CHECKPOINT_DIR=qv
ok "it is resumed" is "$rc $(newest qv)" "0 step-00000022"

# The last line of a run is a command that works, or there is none.
talks() { bash -c "$(sed -n 's/^to talk: //p' out) PROMPT=what TOKENS=3" >answer 2>err; }
"$convoy" train-tokenizer DATA="$root/assets/alice.txt" VOCAB=300 OUT=spoken >out 2>err
tiny_shape="BATCH_SIZE=2 SEQ_LEN=64 STEPS=2"
run MODEL=llama-toy ${small/50257/310} $tiny_shape CHECKPOINT_DIR=mute
ok "a model of token ids: no command" test "$rc $(grep -c '^to ' out)" = "0 0"
run MODEL=mute $tiny_shape LORA=2 CHECKPOINT_DIR=mute1
ok "nor with an adapter" test "$rc $(grep -c '^to ' out)" = "0 0"
run MODEL=mute $tiny_shape LORA=2 TASK=chat DATA=thing.jsonl TOKENIZER=spoken CHAT_TEMPLATE=zephyr CHECKPOINT_DIR=spoken1
ok "TOKENIZER of the adapter's run: the command finds it" talks
run MODEL=whole LORA=2 ${shape/ TOKENIZER=gpt2/} DATA=thing.jsonl STEPS=2 CHECKPOINT_DIR=bare
ok "no TOKENIZER: the command works" talks

run MODEL=llama-toy $small $shape DATA=word.jsonl LR=3e-3 STEPS=2 CHECKPOINT_DIR=other

# 5. Exported: a PEFT folder, and the merged model.
"$convoy" export FROM=one TO=folder >out 2>err
ok "an adapter becomes a PEFT folder" is "$(jq -c '[.peft_type, .r, .lora_alpha, .fan_in_fan_out, .target_modules]' folder/adapter_config.json)" \
    '["LORA",4,8,false,["q_proj","k_proj","v_proj","o_proj","gate_proj","up_proj","down_proj"]]'
ok "which ADAPTER reads as the same numbers" is "$(loss_of ADAPTER=folder)" "$with"
"$convoy" export FROM=one MODEL=whole TO=merged >out 2>err
ok "with MODEL it becomes a model" is "$(loss_of MODEL=merged)" "$with"
"$convoy" export FROM=one MODEL=whole TO=merged-F32.gguf >out 2>err
ok "or a GGUF file" is "$(loss_of MODEL=merged-F32.gguf)" "$with"
try "a GGUF file of an adapter alone" 78 "a GGUF file holds whole models; set MODEL to its model" -- export FROM=one TO=x.gguf
try "MODEL for a whole model" 78 "so MODEL=whole has no use; leave it out" -- export FROM=whole MODEL=whole TO=x
try "an adapter of other weights is not merged" 65 "is an adapter of other weights" -- export FROM=one MODEL=other TO=x
ok "and nothing is written" test ! -e x

# 6. What does not fit is refused.
try "another rank" 78 "an adapter with LORA=4, LORA_ALPHA=8 and LORA_TARGETS=all, and this run has LORA=8, LORA_ALPHA=16 and LORA_TARGETS=all; set" -- train $lora STEPS=30 LORA=8 CHECKPOINT_DIR=one
try "other targets" 78 "LORA_TARGETS=q,v, and this run has LORA=4, LORA_ALPHA=8 and LORA_TARGETS=all; set" -- train $lora STEPS=30 CHECKPOINT_DIR=qv
try "a target that is none" 78 'LORA_TARGETS: "lm_head" is no linear layer of the architecture llama; use all, attention, mlp, or some of q, k,' \
    -- train $lora LORA_TARGETS=q,lm_head STEPS=1
try "a third of a matrix" 78 "LORA_TARGETS: a model of the architecture gpt2 has one matrix, attn.c_attn, for q, k and v; name it as qkv" \
    -- train $lora MODEL="$root/tests/golden/lora_gpt2/base" LORA_TARGETS=q,v STEPS=1
try "all weights on an adapter's run" 78 "holds an adapter (LORA=4), and LORA=0 trains all weights; set LORA=4 .*, or another CHECKPOINT_DIR" \
    -- train ${lora/LORA=4/} STEPS=30 CHECKPOINT_DIR=one
try "an adapter on a run of all weights" 78 "holds a whole model, and LORA=4 trains an adapter; set another CHECKPOINT_DIR .*, or LORA=0" \
    -- train $lora STEPS=60 CHECKPOINT_DIR=whole
peft="is an adapter of PEFT, not a model or a checkpoint; set MODEL to its model (base_model_name_or_path: llama-toy) and ADAPTER=folder"
try "a PEFT folder is exported" 78 "$peft" -- export FROM=folder TO=x
try "imported" 78 "$peft" -- import FROM=folder TO=x
try "MODEL of export" 78 "$peft" -- export FROM=one MODEL=folder TO=x
try "MODEL of train" 78 "$peft" -- train $lora MODEL=folder STEPS=1
try "MODEL of generate" 78 "$peft" -- generate MODEL=folder PROMPT=a TOKENS=1
try "ADAPTER without MODEL" 66 "ADAPTER=one is added to a model, and MODEL=gpt2 (the default) is not a folder or a file; set MODEL" \
    -- generate ADAPTER=one PROMPT=a TOKENS=1
try "export to a preset" 66 "MODEL=llama-toy holds no weights; set MODEL to .* with which the adapter one/step-00000020 was trained" \
    -- export FROM=one MODEL=llama-toy TO=x
try "resumed on other weights: both sums" 78 "an adapter of other weights: of a model with SHA-256 [0-9a-f]*, and MODEL=other has [0-9a-f]*;" \
    -- train $lora STEPS=40 MODEL=other CHECKPOINT_DIR=one
try "ADAPTER of other weights" 65 "is an adapter of other weights" -- train ${lora/LORA=4/} MODEL=other ADAPTER=one STEPS=1
try "the same when it writes" 65 "is an adapter of other weights" -- generate MODEL=other ADAPTER=one PROMPT=a TOKENS=1
try "an adapter as MODEL" 78 "set MODEL to the model with which it was trained, and ADAPTER=one" -- generate MODEL=one PROMPT=a TOKENS=1
try "the same for train" 78 "is a checkpoint of an adapter, not of a model" -- train $lora MODEL=one STEPS=1
try "a whole model as ADAPTER" 65 "a checkpoint of a whole model, not of an adapter" -- generate MODEL=whole ADAPTER=whole PROMPT=a TOKENS=1
try "an adapter of another model" 65 "lora_A.weight has shape (4, 48), expected (4, 32)" \
    -- generate MODEL=whole ADAPTER="$root/tests/golden/lora_llama/adapter" PROMPT=a TOKENS=1
try "no adapter" 66 "nothing holds no adapter" -- generate MODEL=whole ADAPTER=nothing PROMPT=a TOKENS=1
try "LORA without weights" 78 "MODEL=llama-toy has none" -- train $lora MODEL=llama-toy STEPS=1
try "LORA with another value than ADAPTER's" 78 "ADAPTER=one has LORA=4, LORA_ALPHA=8 and LORA_TARGETS=all" -- train ${lora/LORA=4/LORA=2} ADAPTER=one STEPS=1
try "LORA for question answering" 78 "an adapter trains no head" -- train MODEL=whole TASK=qa LORA=4 DATA=x
try "LORA_TARGETS without LORA" 78 "LORA is 0, so all weights would train" -- train MODEL=whole $shape DATA=thing.jsonl STEPS=1 LORA_TARGETS=mlp
try "LORA=0 with ADAPTER" 78 "ADAPTER=one has LORA=4" -- train ${lora/LORA=4/LORA=0} ADAPTER=one STEPS=1
try "a factor that counts as none" 78 "LORA_ALPHA=1e-60 is outside" -- train $lora LORA_ALPHA=1e-60 STEPS=1
try "an adapter as CHECKPOINT_DIR" 78 "CHECKPOINT_DIR=one holds an adapter, which would not be used; set ADAPTER=one" \
    -- chat MODEL=whole CHECKPOINT_DIR=one TOKENIZER=gpt2 PROMPT=a
try "export with ADAPTER" 78 "export does not use ADAPTER=one" -- export FROM=whole ADAPTER=one TO=x
cp -r other own
try "RESUME=never beside MODEL" 78 "CHECKPOINT_DIR=own holds MODEL=own, and RESUME=never would move it aside" \
    -- train $lora MODEL=own CHECKPOINT_DIR=own RESUME=never STEPS=1
ok "it is still there" test -d own/step-00000002
mkdir peft
cp "$root"/tests/golden/lora_llama/adapter/adapter_model.safetensors peft
while IFS='|' read -r change word; do
    sed "$change" "$root"/tests/golden/lora_llama/adapter/adapter_config.json >peft/adapter_config.json
    try "PEFT with $word" 65 "$word" -- generate MODEL="$root/tests/golden/lora_llama/base" TOKENIZER=gpt2 ADAPTER=peft PROMPT=a TOKENS=1
done <<'TABLE'
s/"use_dora": false/"use_dora": true/|"use_dora" is set
s/"bias": "none"/"bias": "all"/|"bias" is "all"
s/"LORA"/"IA3"/|"peft_type" is "IA3"
s/"modules_to_save": null/"modules_to_save": ["lm_head"]/|"modules_to_save" is set
s/"rank_pattern": {}/"rank_pattern": {"q": 2}/|"rank_pattern" is set
s/"r": 4/"r": 0/|r
TABLE
head -c 5000 "$root"/tests/golden/lora_llama/adapter/adapter_model.safetensors >peft/adapter_model.safetensors
cp "$root"/tests/golden/lora_llama/adapter/adapter_config.json peft
try "PEFT, cut" 65 "adapter_model.safetensors" -- generate MODEL="$root/tests/golden/lora_llama/base" TOKENIZER=gpt2 ADAPTER=peft PROMPT=a TOKENS=1
done_testing
