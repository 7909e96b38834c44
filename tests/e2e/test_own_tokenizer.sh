#!/bin/bash
# test_own_tokenizer — a run with a tokenizer of its own keeps it with the checkpoints; commands and later runs find it there, and
# another one is refused.
. "$(dirname "$0")/lib.sh"

jq -n '["Ġ", "Ċ", ".", ","] + ("abcdefghijklmnopqrstuvwxyz" | split("")) | to_entries | map({(.value): .key}) | add + {"th": 30, "the": 31} |
    {pre_tokenizer: {type: "ByteLevel", add_prefix_space: false}, model: {type: "BPE", vocab: ., merges: ["t h", "th e"]}}' >own.json
jq '.model.vocab["he"] = 31 | .model.merges[1] = "h e" | del(.model.vocab.the)' own.json >other.json
head -c 20000 "$root/assets/alice.txt" | tr 'A-Z' 'a-z' >lower.txt

run $tiny DATA=lower.txt TOKENIZER=own.json STEPS=2 CHECKPOINT_DIR=owned
ok "a run with a tokenizer of its own" is $rc 0
ok "it lies with the checkpoints" cmp own.json owned/tokenizer/tokenizer.json
limit 60 "$convoy" generate CHECKPOINT_DIR=owned PROMPT='the' TOKENS=3 TEMPERATURE=0 >out 2>err
ok "generate finds it" is "$? $(head -c 3 out)" "0 the"
limit 60 "$convoy" generate CHECKPOINT_DIR=owned TOKENIZER=other.json PROMPT='the' TOKENS=3 >out 2>err
ok "another one is refused: 78" is "$? $(grep -c 'trained with another tokenizer' err)" "78 1"
run DATA=lower.txt MODEL=owned TOKENIZER=other.json BATCH_SIZE=2 SEQ_LEN=16 STEPS=1 CHECKPOINT_DIR=again
ok "also for a run that begins with its weights: 78" is "$rc $(grep -c 'trained with another tokenizer' err)" "78 1"
run DATA=lower.txt MODEL=owned BATCH_SIZE=2 SEQ_LEN=16 STEPS=1 CHECKPOINT_DIR=again
ok "without TOKENIZER it takes the one of the weights" is $rc 0
ok "and keeps it" cmp own.json again/tokenizer/tokenizer.json
limit 60 "$convoy" export FROM=again TO=folder >out 2>err
ok "export gives it back" cmp own.json folder/tokenizer.json
cp other.json again/tokenizer/tokenizer.json
limit 60 "$convoy" export FROM=again TO=without >out 2>err
ok "but not another one that lies there" is "$? $(ls without | grep -c tokenizer) $(grep -c 'used another tokenizer' err)" "0 0 1"
jq '.added_tokens = [{id: 40, content: "<|endoftext|>", special: true}]' own.json >ended.json
run $tiny VOCAB=50300 DATA=lower.txt TOKENIZER=ended.json STEPS=1 CHECKPOINT_DIR=ended
limit 60 "$convoy" export FROM=ended TO=ended-hf >out 2>err
ok "a text ends with that tokenizer's token, not with GPT-2's" is "$? $(jq .eos_token_id ended-hf/config.json)" "0 40"
mkdir gpt2-nano && cp other.json gpt2-nano/tokenizer.json
run $tiny DATA=lower.txt VOCAB=50257 STEPS=1
ok "a folder with a preset's name gives no tokenizer" is "$rc $(grep -c 'tokenizer gpt2-nano' err)" "0 0"

# A model without one: GPT-2's is used, and that is said.
small="LAYERS=1 HEADS=2 EMBED=32 FFN=32 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=2 STEPS=2"
run MODEL=llama-toy $small SAMPLE_EVERY=1 PROMPT=the CHECKPOINT_DIR=bare VOCAB=50257
ok "samples of a Llama without a tokenizer: a warning" is "$rc $(grep -c 'warn .*no tokenizer of its own: its samples .* set TOKENIZER' err)" "0 1"
limit 60 "$convoy" generate CHECKPOINT_DIR=bare PROMPT='the' TOKENS=3 >out 2>err
ok "and generate" is "$? $(grep -c 'no tokenizer of its own: PROMPT and the text' err)" "0 1"
limit 60 "$convoy" generate CHECKPOINT_DIR=bare TOKENIZER=gpt2 PROMPT='the' TOKENS=3 >out 2>err
ok "TOKENIZER=gpt2 says that it is meant" is "$? $(grep -c 'no tokenizer of its own' err)" "0 0"
done_testing
