#!/bin/bash
# test_any_mesh — checkpoints and exports do not depend on the mesh: each mesh reads those of each other and writes the same
# bytes; commands that run in one process ignore a job's mesh in the environment.
. "$(dirname "$0")/lib.sh"
model="MODEL=llama-2-7b TOKENIZER=gpt2 LAYERS=4 HEADS=4 KV_HEADS=4 HEAD_DIM=4 EMBED=16 FFN=32 VOCAB=50257 CONTEXT=32 SEQ_LEN=16"
job="$model BATCH_SIZE=1 GLOBAL_BATCH=4"
same_folder() { diff -r "$1" "$2" >diff.out || { sed 's/^/# /' diff.out; false; }; }
sums() { (cd "$1" && cksum $(ls | grep safetensors)); }
export_of() { "$convoy" export FROM="$1" TO="$2" >out 2>err; rc=$?; }

# 1. What computes the same bits writes the same files.
run $job STEPS=4 CHECKPOINT_DIR=one
export_of one one-hf
ok "a checkpoint of one worker is exported" is $rc 0
run $job STEPS=4 CHECKPOINT_DIR=pp N_GPU_EACH_NODE=4 PP=4
ok "PP=4: the same files as one worker" is "$(sums pp/step-00000004)" "$(sums one/step-00000004)"
export_of pp pp-hf
ok "and the same export, byte for byte" same_folder one-hf pp-hf
run $job STEPS=4 CHECKPOINT_DIR=two N_GPU_EACH_NODE=2
run $job STEPS=4 CHECKPOINT_DIR=full N_GPU_EACH_NODE=2 SHARD=full
export_of two two-hf
export_of full full-hf
ok "SHARD=full: the same export as SHARD=none" same_folder two-hf full-hf

# 2. One checkpoint through all meshes: steps with LR=0 leave the weights as they are.
rm -rf chain && cp -r one chain
step=4
for to in "4 PP=2 TP=2" "4 TP=2 SHARD=full" "4 TP=4" "2 PP=2 PP_CHUNKS=2" "3 SHARD=gradients GLOBAL_BATCH=3" "1 PP=1"; do
    set -- $to
    step=$((step + 1))
    run $job STEPS=$step LR=0 CHECKPOINT_KEEP=9 CHECKPOINT_DIR=chain RESUME=required N_GPU_EACH_NODE="$@"
    name=step-$(printf %08d $step)
    ok "$to workers: read the last one's, and write the same weights" is "$rc $(cksum <chain/$name/model.safetensors)" \
        "0 $(cksum <one/step-00000004/model.safetensors)"
    [ $step != 5 ] || export_of chain/step-00000005 tp-hf
done
ok "the export of PP=2 x TP=2 is that of one worker, byte for byte" same_folder one-hf tp-hf
export_of chain chain-hf
ok "and so is the last one's" same_folder one-hf chain-hf

# 3. The environment of a container that trains, in other commands.
in_job() { env N_NODES=2 NODE_ID=1 N_GPU_EACH_NODE=8 PP=2 TP=4 SHARD=full GLOBAL_BATCH=6 RECOMPUTE=block:30 FAULT=kill@step=3:rank=9 BACKEND=nccl DEVICE=cpu "$@" >out 2>err; }
DEVICE=cpu "$convoy" eval CHECKPOINT_DIR=one VAL_DATA=synthetic JSON=1 >plain 2>err
in_job "$convoy" eval CHECKPOINT_DIR=chain/step-00000005 VAL_DATA=synthetic JSON=1
ok "eval: the loss of one worker's checkpoint, in one process" is "$(jq .loss out)" "$(jq .loss plain)"
ok "it says once what it does not use" is "$(grep -c 'eval does not use N_NODES=2 (environment), .* TP=4 (environment), PP=2' err) $(wc -l <err)" "1 2"
"$convoy" generate CHECKPOINT_DIR=one PROMPT=The TOKENS=8 TEMPERATURE=0 >plain 2>err
in_job "$convoy" generate CHECKPOINT_DIR=chain PROMPT=The TOKENS=8 TEMPERATURE=0
ok "generate: the same text" cmp out plain
in_job "$convoy" export FROM=chain TO=env-hf
ok "export: the same folder" same_folder one-hf env-hf
in_job "$convoy" import FROM=env-hf TO=env
ok "import: the same weights" is "$(cksum <env/step-00000000/model.safetensors)" "$(cksum <one/step-00000004/model.safetensors)"
in_job "$convoy" status env
ok "status of a folder" shows 'step +0'
in_job "$convoy" train $job DATA=synthetic STEPS=1 STATUS_PORT=0 FAULT=
ok "train uses them all" says 'BACKEND=nccl (environment) does not go with DEVICE=cpu (environment)'
done_testing
