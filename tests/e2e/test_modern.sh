#!/bin/bash
# test_modern — GPT-2 with other features (gpt2-modern, QK_NORM and the rest): learns, is divided, saved, resumed, generates, and
# is refused where a format or a run cannot take it.
. "$(dirname "$0")/lib.sh"
model="MODEL=gpt2-modern-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 LR=3e-3"
perl -e 'print pack("l<256 v*", 20240520, 1, 6000, (0) x 253, map { $_ * ($_ % 7) % 61 } 1 .. 6000)' >tokens.bin
modern="$model DATA=tokens.bin GLOBAL_BATCH=8 STEPS=200 BATCH_SIZE=4"

# 1. It learns; each feature by itself does.
run $modern METRICS_FILE=one.jsonl CHECKPOINT_DIR=one CHECKPOINT_EVERY=100
ok "gpt2-modern: done, and the loss falls by half" holds one.jsonl 'length == 200 and .[199].loss < 0.5 * .[0].loss'
ok "with projections of zero the first loss is that of no knowledge, ln 64" holds one.jsonl '.[0].loss - (64 | log) | fabs < 0.02'
for feature in ACTIVATION=relu2 POSITIONS=rope QK_NORM=1 TIE_EMBEDDINGS=0 LOGIT_CAP=15 ZERO_INIT=1; do
    run $modern MODEL=gpt2-nano $feature METRICS_FILE=feature.jsonl
    ok "GPT-2 with $feature: the loss falls by a fifth" holds feature.jsonl 'length == 200 and .[199].loss < 0.8 * .[0].loss'
    rm -f feature.jsonl
done

# 2. Divided in every way, and with Muon.
run $modern STEPS=40 METRICS_FILE=short.jsonl
for mesh in "N_GPU_EACH_NODE=2 TP=2" "N_GPU_EACH_NODE=2 PP=2" "N_GPU_EACH_NODE=2 CP=2" "N_GPU_EACH_NODE=2 SHARD=full" "RECOMPUTE=block"; do
    losses_near short.jsonl 1e-6 "$mesh: losses within 1e-6 of one worker's" $modern STEPS=40 $mesh
done
run $modern OPTIMIZER=muon METRICS_FILE=muon.jsonl
ok "OPTIMIZER=muon: the loss falls by a quarter" holds muon.jsonl 'length == 200 and .[199].loss < 0.75 * .[0].loss'

# 3. Checkpoints: resumed bit for bit, and what reads them.
cp -r one half && rm -r half/step-00000200
run $modern METRICS_FILE=two.jsonl CHECKPOINT_DIR=half
tail -n 100 one.jsonl >last.jsonl
ok "a resumed run has the same losses, bit for bit" is "$(losses two.jsonl)" "$(losses last.jsonl)"
for other in ACTIVATION=gelu LOGIT_CAP=30 POSITIONS=learned QK_NORM=0 TIE_EMBEDDINGS=1; do
    run $modern CHECKPOINT_DIR=one STEPS=300 $other
    ok "to go on with $other is refused: $rc" test "$rc" = 78 -o "$rc" = 65
done
run $model MODEL=one LR=1e-3 DATA=tokens.bin STEPS=2 METRICS_FILE=from.jsonl
ok "MODEL= takes the checkpoint, features and weights" holds from.jsonl '.[0].loss < 3.5'
try "with another feature it is refused" 78 'LOGIT_CAP=30 (argument) differs from the value with which the weights of MODEL=one' -- train $model MODEL=one DATA=tokens.bin STEPS=2 LOGIT_CAP=30
"$convoy" eval CHECKPOINT_DIR=one VAL_DATA=tokens.bin SEQ_LEN=16 >out 2>err
ok "eval: a loss as in training" is "$? $(grep -cE 'loss [0-3]\.[0-9]+' out)" "0 1"
rc=0
"$convoy" export FROM=one TO=hf >out 2>err || rc=$?
ok "export to Hugging Face is refused, with the feature" is "$rc $(grep -c 'trained with ACTIVATION=relu2, for which' err) $(ls -d hf 2>/dev/null)" "78 1 "
run $modern VOCAB=50257 STEPS=1 CHECKPOINT_DIR=text
"$convoy" generate CHECKPOINT_DIR=text PROMPT=Hello TOKENS=40 SEED=3 >text.a 2>err
rc=$?
"$convoy" generate CHECKPOINT_DIR=text PROMPT=Hello TOKENS=40 SEED=3 >text.b 2>err
ok "generate writes, the same text for the same seed" is "$rc $(cmp text.a text.b && [ "$(wc -c <text.a)" -gt 40 ] && echo same)" "0 same"
done_testing
