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
    head -n 20 one.jsonl >first.jsonl
    losses_near first.jsonl 1e-5 "$mesh: losses within 1e-5 of one worker's" $docs STEPS=20 $mesh
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
    losses_near first.jsonl 1e-5 "packed, $mesh: losses within 1e-5 of one worker's" $packed STEPS=20 $mesh
done
rm -r packed/step-00000030
run $packed STEPS=30 METRICS_FILE=again.jsonl CHECKPOINT_DIR=packed
tail -n 10 packed.jsonl >last.jsonl
ok "packed and resumed: the same losses, bit for bit" is "$(losses again.jsonl)" "$(losses last.jsonl)"
run $docs STEPS=31 CHECKPOINT_DIR=packed
ok "to go on without it is said" says "PACK_DOCUMENTS was 1, is not set"

# 6. Conversations: the end of text ends every turn, and a record is one document.
mkdir chat-tokenizer
jq -n '["Ġ", "Ċ", ".", ","] + ("abcdefghijklmnopqrstuvwxyz" | split("")) | to_entries | map({(.value): .key}) | add |
    {pre_tokenizer: {type: "ByteLevel", add_prefix_space: false}, model: {type: "BPE", vocab: ., merges: []},
     added_tokens: [{id: 40, content: "<|im_start|>", special: true}, {id: 41, content: "<|im_end|>", special: true}]}' >chat-tokenizer/tokenizer.json
echo '{"eos_token": "<|im_end|>"}' >chat-tokenizer/tokenizer_config.json
perl -e 'for my $d (0 .. 31) { my $t = join "", map { my $w = chr(97 + ($d * 5 + $_ * 3) % 26) x (1 + ($d + $_) % 3);
    "<|im_start|>" . ($_ % 2 ? "assistant" : "user") . "\\n$w, $w.<|im_end|>\\n" } 0 .. 1 + $d % 3; print "{\"text\": \"$t\"}\n" }' >chat.jsonl
chat="MODEL=gpt2-nano LAYERS=2 HEADS=2 EMBED=32 VOCAB=64 CONTEXT=256 BATCH_SIZE=2 GLOBAL_BATCH=4 SEQ_LEN=128 LR=3e-3 LR_SCHEDULE=constant TOKENIZER=chat-tokenizer $mask"
convert() { env -u DATA "$convoy" tokenize TOKENIZER=chat-tokenizer DATA="$1" OUT="$2" VOCAB=64 >out 2>err; }
run $chat DATA=chat.jsonl PACK_DOCUMENTS=1 STEPS=10 METRICS_FILE=chat.m LOG_LEVEL=info CHECKPOINT_DIR=chat
ok "32 conversations are 32 documents" is "$rc $(grep -c 'packed: 32 documents, 0 of them cut' err)" "0 1"
convert chat.jsonl chat.idx
ok "tokenised for Megatron, its index has 32 documents" is "$? $(od -An -tu8 -j18 -N16 chat.idx | xargs)" "0 32 33"
run $chat DATA=chat.idx PACK_DOCUMENTS=1 STEPS=10 METRICS_FILE=chat.idx.m LOG_LEVEL=info
ok "and trains the same" is "$(grep -c 'packed: 32 documents' err) $(losses chat.idx.m)" "1 $(losses chat.m)"
convert chat.idx again.idx
ok "tokenised again from there, the index is the same" cmp chat.idx again.idx
convert chat.jsonl turns.bin
ok "a file of llm.c keeps no records: a warning says what does" is "$? $(grep -c 'its 32 records hold 12[0-9] ends of text (id 41).*OUT=NAME.idx' err)" "0 1"
convert docs.jsonl docs.bin
ok "records without one inside need no warning" is "$? $(grep -c 'ends of text' err)" "0 0"
# One conversation has the loss of its tokens as one document, in any company.
head -n 3 chat.jsonl | tail -n 1 >one.jsonl
eval_chat() { "$convoy" eval CHECKPOINT_DIR=chat SEQ_LEN="$1" BATCH_SIZE=1 JSON=1 VAL_DATA="$2" $3 2>err | jq .loss; }
ids=$(convert one.jsonl one.bin; od -An -td4 -j8 -N4 one.bin)
whole=$(eval_chat $((ids - 1)) one.jsonl ATTENTION_MASK=causal)
ok "the loss of a conversation is that of one document" is "$(eval_chat $((ids - 1)) one.jsonl $mask)" "$whole"
ok "in which the ends of turns would matter" test "$(eval_chat $((ids - 1)) one.bin $mask)" != "$whole"

# 7. Refused.
try "TASK=qa: refused" 78 'is not for TASK=qa' -- train TASK=qa MODEL=gpt2-nano DATA=synthetic STEPS=1 $mask
try "TASK=qa, packed: refused" 78 'PACK_DOCUMENTS=1 (argument) is not for TASK=qa' -- train TASK=qa MODEL=gpt2-nano DATA=synthetic STEPS=1 PACK_DOCUMENTS=1
try "packed, without the end of text: refused" 78 'documents cannot be separated.*PACK_DOCUMENTS=0' -- train $tiny DATA=ab.bin STEPS=1 PACK_DOCUMENTS=1
try "a vocabulary without the end of text: refused" 78 'documents cannot be separated' -- train $tiny DATA=ab.bin STEPS=1 $mask
done_testing
