#!/bin/bash
# test_tokenize — tokenizers as a user runs them: `convoy tokenize`, DATA → OUT; `convoy train-tokenizer`, a tokenizer for a text and a run with it;
# a run with a tokenizer of its own keeps it with the checkpoints, where commands and later runs find it, and another one is refused. And the
# messages of each.
. "$(dirname "$0")/lib.sh"
unset DATA

# tokenize CODE TEXT NAME=VALUE...: run, compare the exit code, look for the text in its output; nothing half-written stays.
tokenize() {
    want=$1
    words=$2
    shift 2
    env -i PATH="$PATH" HOME="$tmp" "$convoy" tokenize "$@" >out 2>err
    [ $? = "$want" ] && cat out err | grep -qF -- "$words" && [ -z "$(find . -name '*.tmp')" ]
}
ids() { tail -c +1025 "$1" | od -An -v -tu2 -w2 | tr -d ' ' | tr '\n' ' '; }

printf 'Hello, world!' >a.txt
mkdir -p d/e
printf 'a' >d/1.txt
printf 'b' >d/e/2.txt
ok 'a text file' tokenize 0 '4 tokens' DATA=a.txt OUT=a.bin
ok 'the ids are GPT-2'\''s' test "$(ids a.bin)" = '15496 11 995 0 '
ok 'the header is llm.c'\''s' test "$(od -An -td4 -N12 a.bin | tr -s ' ')" = ' 20240520 1 4'
tokenize 0 tokens DATA=d OUT=d.bin
ok 'files of a folder are joined with <|endoftext|>' test "$(ids d.bin)" = '64 50256 65 '
tokenize 0 '' DATA=d OUT=d/ids.bin
ok 'the file that is written, in the folder that is read, is no data' test "$(grep -c skipping err)" = 0
rm -f d/ids.bin
ok 'no DATA' tokenize 78 'set DATA' OUT=x.bin
ok 'no OUT' tokenize 78 'set OUT' DATA=a.txt
ok 'DATA is missing' tokenize 66 'nowhere.txt' DATA=nowhere.txt OUT=x.bin
ok 'a small VOCAB' tokenize 65 'VOCAB=50257' DATA=a.txt OUT=x.bin VOCAB=256
ok 'OUT in a folder that is not there' tokenize 74 'no/x.bin' DATA=a.txt OUT=no/x.bin

# OUT replaces an earlier token file, and nothing else.
stays() { cmp -s "$1" "$1.kept"; }
printf 'dear diary\n' >diary && cp diary diary.kept
cp a.txt a.txt.kept
ok 'an earlier output is replaced' tokenize 0 '4 tokens' DATA=a.txt OUT=a.bin
ok 'a file that is not a token file is not replaced' tokenize 78 'OUT=diary exists and is not a token file' DATA=a.txt OUT=diary
ok '... and stays' stays diary
ok 'the input is not replaced' tokenize 78 'one of the files of DATA' DATA=a.txt OUT=a.txt
ok '... nor by another name' eval 'ln a.txt link.bin && tokenize 78 "one of the files of DATA" DATA=a.txt OUT=link.bin && stays a.txt'
ok 'a token file of DATA is not replaced' tokenize 78 'one of the files of DATA' DATA=a.bin,a.txt OUT=a.bin
printf '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >t.json && cp t.json t.json.kept
ok 'the tokenizer is not replaced' tokenize 78 'OUT=t.json exists' DATA=a.txt TOKENIZER=t.json OUT=t.json
ok '... and stays' stays t.json
ok 'both files of Megatron are written again' eval 'tokenize 0 "4 tokens" DATA=a.txt OUT=m.idx && tokenize 0 "4 tokens" DATA=a.txt OUT=m.idx'
cp diary n.bin
ok 'the .bin beside an index is not replaced' tokenize 78 'would also write n.bin' DATA=a.txt OUT=n.idx
: >empty.bin
ok 'an empty file is replaced' tokenize 0 '4 tokens' DATA=a.txt OUT=empty.bin

# A signal within one word of 60 MiB.
head -c 62914560 /dev/zero | tr '\0' '\n' >run.txt
env -i PATH="$PATH" HOME="$tmp" "$convoy" tokenize DATA=run.txt OUT=run.bin >out 2>err &
pid=$!
sleep 1
before=$(now_ms)
kill -TERM $pid
wait $pid
code=$? elapsed_ms=$(($(now_ms) - before))
ok 'a signal ends it with 143' test "$code" = 143
ok '... within a second' within "$elapsed_ms" 1000
ok '... and nothing half-written stays' test -z "$(find . -name 'run.bin*')"
rm run.txt

# train-tokenizer.
book=$root/assets/alice.txt
make_one() { work train-tokenizer "$@"; }

make_one DATA="$book" VOCAB=700 OUT=mine
ok "a tokenizer for a book" is "$rc $(grep -c '^mine  700 tokens  2\.[0-9]* bytes of the text a token' out)" "0 1"
ok "its size, and the token that ends a text" is "$(jq '.model.vocab | length' mine/tokenizer.json) $(jq -r .eos_token mine/tokenizer_config.json) $(jq '.added_tokens[0].id' mine/tokenizer.json)" "700 <|endoftext|> 699"
work tokenize DATA="$book" TOKENIZER=mine OUT=book.bin
ok "the ids of the book are below 700" is "$(tail -c +1025 book.bin | od -An -v -tu2 -w2 | sort -n | tail -1 | awk '{ print ($1 < 700) }')" 1
make_one DATA="$book" VOCAB=700 OUT=again
ok "the same text makes the same tokenizer" cmp mine/tokenizer.json again/tokenizer.json
jq -cn --rawfile b "$book" '$b[:70000], $b[70000:] | {text: .}' >book.jsonl
make_one DATA=book.jsonl VOCAB=700 OUT=lines
ok "JSON lines are text too" is "$rc $(grep -c '^lines  700 tokens' out)" "0 1"
mkdir words
for i in 1 2 3; do
    printf 'zigzag' >words/$i.txt
    echo '{"text":"zigzag"}'
done >words.jsonl
make_one DATA=words VOCAB=262 OUT=files
make_one DATA=words.jsonl VOCAB=262 OUT=documents
ok "the end of a document ends a word" is "$(jq -c '.model.merges | length' documents/tokenizer.json) $(cmp files/tokenizer.json documents/tokenizer.json)" "5 "

run $tiny DATA="$book" TOKENIZER=mine VOCAB=700 STEPS=2 CHECKPOINT_DIR=trained
trained=$rc
work generate CHECKPOINT_DIR=trained PROMPT=Alice TOKENS=5
ok "a run with it, and a text of the model" is "$trained $rc $(head -c 5 out)" "0 0 Alice"
work export FROM=trained TO=folder
ok "the export has it" cmp mine/tokenizer.json folder/tokenizer.json

try "it writes over none: 78" 78 'OUT=mine has a tokenizer.json already' -- train-tokenizer DATA="$book" VOCAB=700 OUT=mine
try "fewer tokens than bytes: 78" 78 'VOCAB=256: a tokenizer has from 257' -- train-tokenizer DATA="$book" VOCAB=256 OUT=small
try "no OUT: 78" 78 'set OUT' -- train-tokenizer DATA="$book" VOCAB=700
try "no DATA: 78" 78 'set DATA' -- train-tokenizer OUT=x
try "DATA=synthetic has no text: 78" 78 'no text' -- train-tokenizer DATA=synthetic OUT=x
try "ids are no text: 78" 78 'book.bin holds ids, not text' -- train-tokenizer DATA=book.bin OUT=x
try "a file that is not there: 66" 66 nowhere.txt -- train-tokenizer DATA=nowhere.txt OUT=x
printf 'a b c' >few.txt
make_one DATA=few.txt OUT=few
ok "a text too short for VOCAB: a warning with the number there is" is "$rc $(grep -c 'warn .*train with VOCAB=257' err) $(jq '.model.vocab | length' few/tokenizer.json)" "0 1 257"
: >empty.txt
make_one DATA=empty.txt OUT=none
ok "an empty file: 65" is "$rc $(test -e none && echo there)" "65 "
mkdir closed && : >closed/file
try "a folder that cannot be made: 74, and why" 74 'closed/file' -- train-tokenizer DATA="$book" VOCAB=300 OUT=closed/file

# A run with a tokenizer of its own.
export DATA=synthetic
jq -n '["Ġ", "Ċ", ".", ","] + ("abcdefghijklmnopqrstuvwxyz" | split("")) | to_entries | map({(.value): .key}) | add + {"th": 30, "the": 31} |
    {pre_tokenizer: {type: "ByteLevel", add_prefix_space: false}, model: {type: "BPE", vocab: ., merges: ["t h", "th e"]}}' >own.json
jq '.model.vocab["he"] = 31 | .model.merges[1] = "h e" | del(.model.vocab.the)' own.json >other.json
head -c 20000 "$root/assets/alice.txt" | tr 'A-Z' 'a-z' >lower.txt

try "a run with a tokenizer of its own" 0 -- train $tiny DATA=lower.txt TOKENIZER=own.json STEPS=2 CHECKPOINT_DIR=owned
ok "it lies with the checkpoints" cmp own.json owned/tokenizer/tokenizer.json
work generate CHECKPOINT_DIR=owned PROMPT='the' TOKENS=3 TEMPERATURE=0
ok "generate finds it" is "$rc $(head -c 3 out)" "0 the"
try "another one is refused: 78" 78 'trained with another tokenizer' -- generate CHECKPOINT_DIR=owned TOKENIZER=other.json PROMPT='the' TOKENS=3
run DATA=lower.txt MODEL=owned TOKENIZER=other.json BATCH_SIZE=2 SEQ_LEN=16 STEPS=1 CHECKPOINT_DIR=second
ok "also for a run that begins with its weights: 78" is "$rc $(grep -c 'trained with another tokenizer' err)" "78 1"
try "without TOKENIZER it takes the one of the weights" 0 -- train DATA=lower.txt MODEL=owned BATCH_SIZE=2 SEQ_LEN=16 STEPS=1 CHECKPOINT_DIR=second
ok "and keeps it" cmp own.json second/tokenizer/tokenizer.json
work export FROM=second TO=own-folder
ok "export gives it back" cmp own.json own-folder/tokenizer.json
cp other.json second/tokenizer/tokenizer.json
work export FROM=second TO=without
ok "but not another one that lies there" is "$rc $(ls without | grep -c tokenizer) $(grep -c 'used another tokenizer' err)" "0 0 1"
jq '.added_tokens = [{id: 40, content: "<|endoftext|>", special: true}]' own.json >ended.json
run $tiny VOCAB=50300 DATA=lower.txt TOKENIZER=ended.json STEPS=1 CHECKPOINT_DIR=ended
work export FROM=ended TO=ended-hf
ok "a text ends with that tokenizer's token, not with GPT-2's" is "$rc $(jq .eos_token_id ended-hf/config.json)" "0 40"
mkdir gpt2-nano && cp other.json gpt2-nano/tokenizer.json
try "a folder with a preset's name gives no tokenizer" 0 '!tokenizer gpt2-nano' -- train $tiny DATA=lower.txt VOCAB=50257 STEPS=1

# A model without one: GPT-2's is used, and that is said.
small="LAYERS=1 HEADS=2 EMBED=32 FFN=32 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=2 STEPS=2"
run MODEL=llama-toy $small SAMPLE_EVERY=1 PROMPT=the CHECKPOINT_DIR=bare VOCAB=50257
ok "samples of a Llama without a tokenizer: a warning" is "$rc $(grep -c 'warn .*no tokenizer of its own: its samples .* set TOKENIZER' err)" "0 1"
try "and generate" 0 'no tokenizer of its own: PROMPT and the text' -- generate CHECKPOINT_DIR=bare PROMPT='the' TOKENS=3
try "TOKENIZER=gpt2 says that it is meant" 0 '!no tokenizer of its own' -- generate CHECKPOINT_DIR=bare TOKENIZER=gpt2 PROMPT='the' TOKENS=3
done_testing
