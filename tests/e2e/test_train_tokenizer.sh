#!/bin/bash
# test_train_tokenizer — `convoy train-tokenizer` as a user runs it: a tokenizer for a text, a run with it, and its messages.
. "$(dirname "$0")/lib.sh"
unset DATA
book=$root/assets/alice.txt
make_one() { rc=0; limit 60 "$convoy" train-tokenizer "$@" >out 2>err || rc=$?; }

make_one DATA="$book" VOCAB=700 OUT=mine
ok "a tokenizer for a book" is "$rc $(grep -c '^mine  700 tokens  2\.[0-9]* bytes of the text a token' out)" "0 1"
ok "its size, and the token that ends a text" is "$(jq '.model.vocab | length' mine/tokenizer.json) $(jq -r .eos_token mine/tokenizer_config.json) $(jq '.added_tokens[0].id' mine/tokenizer.json)" "700 <|endoftext|> 699"
limit 60 "$convoy" tokenize DATA="$book" TOKENIZER=mine OUT=book.bin >out 2>err
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
limit 60 "$convoy" generate CHECKPOINT_DIR=trained PROMPT=Alice TOKENS=5 >out 2>err
ok "a run with it, and a text of the model" is "$rc $? $(head -c 5 out)" "0 0 Alice"
limit 60 "$convoy" export FROM=trained TO=folder >out 2>err
ok "the export has it" cmp mine/tokenizer.json folder/tokenizer.json

make_one DATA="$book" VOCAB=700 OUT=mine
ok "it writes over none: 78" is "$rc $(grep -c 'OUT=mine has a tokenizer.json already' err)" "78 1"
make_one DATA="$book" VOCAB=256 OUT=small
ok "fewer tokens than bytes: 78" is "$rc $(grep -c 'VOCAB=256: a tokenizer has from 257' err)" "78 1"
make_one DATA="$book" VOCAB=700
ok "no OUT: 78" is "$rc $(grep -c 'set OUT' err)" "78 1"
make_one OUT=x
ok "no DATA: 78" is "$rc $(grep -c 'set DATA' err)" "78 1"
make_one DATA=synthetic OUT=x
ok "DATA=synthetic has no text: 78" is "$rc $(grep -c 'no text' err)" "78 1"
make_one DATA=book.bin OUT=x
ok "ids are no text: 78" is "$rc $(grep -c 'book.bin holds ids, not text' err)" "78 1"
make_one DATA=nowhere.txt OUT=x
ok "a file that is not there: 66" is "$rc $(grep -c nowhere.txt err)" "66 1"
printf 'a b c' >few.txt
make_one DATA=few.txt OUT=few
ok "a text too short for VOCAB: a warning with the number there is" is "$rc $(grep -c 'warn .*train with VOCAB=257' err) $(jq '.model.vocab | length' few/tokenizer.json)" "0 1 257"
: >empty.txt
make_one DATA=empty.txt OUT=none
ok "an empty file: 65" is "$rc $(test -e none && echo there)" "65 "
mkdir closed && : >closed/file
make_one DATA="$book" VOCAB=300 OUT=closed/file
ok "a folder that cannot be made: 74, and why" is "$rc $(grep -c 'closed/file' err)" "74 1"
done_testing
