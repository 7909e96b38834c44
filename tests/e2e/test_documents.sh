#!/bin/bash
# test_documents — ATTENTION_MASK=document: documents of a sample do not know each other, in training and evaluation, on every mesh, and
# after a restart; what has no documents is refused.
. "$(dirname "$0")/lib.sh"
model="MODEL=gpt2-nano POSITIONS=rope LAYERS=2 HEADS=2 EMBED=32 VOCAB=50257 CONTEXT=64 BATCH_SIZE=2 GLOBAL_BATCH=8 SEQ_LEN=32 LR=3e-3 LR_SCHEDULE=constant"
mask=ATTENTION_MASK=document
# Documents of 7 ids behind an end of text, in pairs, and the same with each pair turned round.
pairs() {
    perl -e 'my @all; for my $n (0 .. 159) { my @pair = map { my $d = 2 * $n + $_; [50256, map { ($d * 7 + $_ * $_ * 13) % 61 } 1 .. 7] } 0, 1;
        push @all, map { @$_ } $ARGV[0] ? reverse @pair : @pair } push @all, 50256;
        print pack("l<256 v*", 20240520, 1, scalar @all, (0) x 253, @all)' "$1"
}
pairs 0 >ab.bin
pairs 1 >ba.bin
perl -e 'for my $d (1 .. 300) { print "{\"text\": \"", join(" ", map { "word" . ($d * $_ % 17) } 1 .. 3 + $d * 5 % 23), "\"}\n" }' >docs.jsonl

# 1. A sample is a pair: which document is first makes no difference.
short="$model SEQ_LEN=16 SHUFFLE=0 STEPS=20"
for order in ab ba; do
    run $short DATA=$order.bin $mask METRICS_FILE=$order.jsonl
    run $short DATA=$order.bin METRICS_FILE=$order.causal.jsonl
done
ok "the order of two documents in a sample does not matter" near ab.jsonl ba.jsonl 2e-5
apart() { ! near "$@"; }
ok "with causal attention it does" apart ab.causal.jsonl ba.causal.jsonl 1e-3

# 2. JSON lines, whose ends of text cut samples anywhere: learned, and the same on every mesh.
docs="$model DATA=docs.jsonl $mask"
run $docs STEPS=60 METRICS_FILE=one.jsonl CHECKPOINT_DIR=one CHECKPOINT_EVERY=30
ok "it learns" holds one.jsonl 'length == 60 and .[59].loss < 0.7 * .[0].loss'
for mesh in "N_GPU_EACH_NODE=2" "N_GPU_EACH_NODE=2 TP=2" "N_GPU_EACH_NODE=2 PP=2" "N_GPU_EACH_NODE=2 CP=2" \
    "N_GPU_EACH_NODE=2 SHARD=full RECOMPUTE=attention" "RECOMPUTE=block"; do
    run $docs STEPS=20 $mesh METRICS_FILE=many.jsonl
    head -n 20 one.jsonl >first.jsonl
    ok "$mesh: losses within 1e-5 of one worker's" near first.jsonl many.jsonl 1e-5
    rm -f many.jsonl
done

# 3. Resumed; another value is named.
cp -r one half && rm -r half/step-00000060
run $docs STEPS=60 METRICS_FILE=two.jsonl CHECKPOINT_DIR=half
tail -n 30 one.jsonl >last.jsonl
ok "a resumed run has the same losses, bit for bit" is "$(losses two.jsonl)" "$(losses last.jsonl)"
run $model DATA=docs.jsonl STEPS=61 CHECKPOINT_DIR=half
ok "to go on without it is said" says "ATTENTION_MASK was document, is not set"

# 4. Evaluation has the same mask.
loss_of() { "$convoy" eval CHECKPOINT_DIR=one VAL_DATA=docs.jsonl SEQ_LEN=32 JSON=1 "$@" 2>err | jq .loss; }
with=$(loss_of $mask) without=$(loss_of)
ok "eval: other losses with and without it" test -n "$with" -a -n "$without" -a "$with" != "$without"
ok "eval: with it less than without, as the model was trained" test "$(jq -n "$with < $without")" = true

# 5. Packed: whole documents in each sample, the same on every mesh and after a restart.
packed="$docs PACK_DOCUMENTS=1"
run $packed STEPS=30 METRICS_FILE=packed.jsonl CHECKPOINT_DIR=packed CHECKPOINT_EVERY=10 LOG_LEVEL=info
ok "its line says how full samples are" grep -q 'packed: 300 documents, [0-9]* of them cut, 9[0-9]\.[0-9] % full' err
ok "it learns" holds packed.jsonl 'length == 30 and .[29].loss < 0.8 * .[0].loss'
head -n 20 packed.jsonl >first.jsonl
for mesh in "N_GPU_EACH_NODE=2" "N_GPU_EACH_NODE=2 CP=2" "BATCH_SIZE=1"; do
    run $packed STEPS=20 $mesh METRICS_FILE=many.jsonl
    ok "packed, $mesh: losses within 1e-5 of one worker's" near first.jsonl many.jsonl 1e-5
    rm -f many.jsonl
done
rm -r packed/step-00000030
run $packed STEPS=30 METRICS_FILE=again.jsonl CHECKPOINT_DIR=packed
tail -n 10 packed.jsonl >last.jsonl
ok "packed and resumed: the same losses, bit for bit" is "$(losses again.jsonl)" "$(losses last.jsonl)"
run $docs STEPS=31 CHECKPOINT_DIR=packed
ok "to go on without it is said" says "PACK_DOCUMENTS was 1, is not set"

# 6. Refused.
run TASK=qa MODEL=gpt2-nano DATA=synthetic STEPS=1 $mask
ok "TASK=qa: refused" is "$rc $(grep -c 'is for TASK=lm' err)" "78 1"
run TASK=qa MODEL=gpt2-nano DATA=synthetic STEPS=1 PACK_DOCUMENTS=1
ok "TASK=qa, packed: refused" is "$rc $(grep -c 'PACK_DOCUMENTS=1 (argument) is for TASK=lm' err)" "78 1"
run $tiny DATA=ab.bin STEPS=1 PACK_DOCUMENTS=1
ok "packed, without the end of text: refused" is "$rc $(grep -c 'documents cannot be told apart.*PACK_DOCUMENTS=0' err)" "78 1"
run $tiny DATA=ab.bin STEPS=1 $mask
ok "a vocabulary without the end of text: refused" is "$rc $(grep -c 'documents cannot be told apart' err)" "78 1"
done_testing
