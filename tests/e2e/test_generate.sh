#!/bin/bash
# test_generate — text from the small model of tests/golden/lm: as many tokens as requested, the same text for the same SEED,
# and a sentence for what is impossible.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden
generate() { "$convoy" generate "$@" 2>err; }
refused() { # refused CODE WORDS ARGUMENT...
    code=$1
    words=$2
    shift 2
    generate "$@" >out
    [ $? = "$code" ] && grep -qF -- "$words" err && [ ! -s out ]
}
same() { generate MODEL=$golden/lm 'PROMPT=a!b' TOKENS=70 "$@" >b && cmp -s a b; }

generate MODEL=$golden/lm 'PROMPT=a!b' TOKENS=70 SEED=5 >a
ok 'text comes, beyond the context of 48 tokens' [ "$(wc -c <a)" -gt 70 ]
ok 'it begins with the prompt' [ "$(head -c 3 a)" = 'a!b' ]
ok 'the same seed gives the same text' same SEED=5
different() { ! same SEED=6; }
ok 'another seed gives another' different
greedy() { generate MODEL=$golden/lm PROMPT=a TEMPERATURE=0 SEED=1 >a && generate MODEL=$golden/lm PROMPT=a TEMPERATURE=0 SEED=2 | cmp -s - a; }
ok 'TEMPERATURE=0 does not look at the seed' greedy
ok 'no weights named' refused 66 'CHECKPOINT_DIR is empty'
mkdir "$tmp/empty"
ok 'a folder without a checkpoint' refused 66 'no valid checkpoint' MODEL="$tmp/empty"
ok 'a prompt beyond the vocabulary' refused 78 'the model has 311 tokens' MODEL=$golden/lm PROMPT=Hello
long=$(printf 'a!%.0s' 1 2 3 4 5 6 7 8 9 10)
cut_is_told() { generate MODEL=$golden/lm "PROMPT=$long$1" TOKENS=1 >b && [ "$(grep -c 'PROMPT has .* context of the model has 48: only the last 48 count' err)" = "$2" ]; }
ok 'a prompt longer than the context: a warning' cut_is_told "$long$long$long" 1
long=a
ok 'one that fits: none' cut_is_told '' 0
ok 'a question-answering model' refused 78 'writes no text' MODEL=$golden/qa PROMPT=a

# Without a random choice the model writes the tokens 107 and then 130, forever.
ends_with() { generate MODEL="$1" PROMPT=a TEMPERATURE=0 TOKENS=8 | od -An -tx1 | tr -d ' \n' | grep -qx "$2"; }
cp -r $golden/lm "$tmp/lm"
ok 'it writes to the end where no token ends a text' ends_with "$tmp/lm" '61afc6c6c6c6c6c6c60a'
echo '{"eos_token_id": [5, 130]}' >"$tmp/lm/generation_config.json"
ok 'the second token of a list in generation_config.json ends it' ends_with "$tmp/lm" 61af0a
sed -i 's/"n_ctx"/"eos_token_id": [107, 6], "n_ctx"/' "$tmp/lm/config.json" && mv "$tmp/lm/generation_config.json" "$tmp/"
ok 'the first of a list in config.json does' ends_with "$tmp/lm" 610a
mv "$tmp/generation_config.json" "$tmp/lm" && "$convoy" import FROM="$tmp/lm" TO="$tmp/ck" >/dev/null 2>err
ok 'a checkpoint keeps the list' ends_with "$tmp/ck" 61af0a
done_testing
