#!/bin/sh
# test_generate — text from the small model of tests/golden/lm: as many tokens as requested, the same text for the same SEED,
# and a sentence for what is impossible.
convoy=${BUILD:-build}/convoy
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-generate-XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
n=0
check() { # check WHAT CONDITION...
    n=$((n + 1))
    what=$1
    shift
    if "$@"; then echo "ok $n - $what"; else echo "not ok $n - $what"; sed 's/^/# /' "$work/err"; fi
}
run() { "$convoy" generate "$@" 2>"$work/err"; }
refused() { # refused CODE WORDS ARGUMENT...
    code=$1
    words=$2
    shift 2
    run "$@" >"$work/out"
    [ $? = "$code" ] && grep -qF -- "$words" "$work/err" && [ ! -s "$work/out" ]
}
same() { run MODEL=tests/golden/lm 'PROMPT=a!b' TOKENS=70 "$@" >"$work/b" && cmp -s "$work/a" "$work/b"; }

echo 1..15
run MODEL=tests/golden/lm 'PROMPT=a!b' TOKENS=70 SEED=5 >"$work/a"
check 'text comes, beyond the context of 48 tokens' [ "$(wc -c <"$work/a")" -gt 70 ]
check 'it begins with the prompt' [ "$(head -c 3 "$work/a")" = 'a!b' ]
check 'the same seed gives the same text' same SEED=5
different() { ! same SEED=6; }
check 'another seed gives another' different
greedy() { run MODEL=tests/golden/lm PROMPT=a TEMPERATURE=0 SEED=1 >"$work/a" && run MODEL=tests/golden/lm PROMPT=a TEMPERATURE=0 SEED=2 | cmp -s - "$work/a"; }
check 'TEMPERATURE=0 does not look at the seed' greedy
check 'no weights named' refused 66 'CHECKPOINT_DIR is empty'
mkdir "$work/empty"
check 'a folder without a checkpoint' refused 66 'no valid checkpoint' MODEL="$work/empty"
check 'a prompt beyond the vocabulary' refused 78 'the model knows 311' MODEL=tests/golden/lm PROMPT=Hello
long=$(printf 'a!%.0s' 1 2 3 4 5 6 7 8 9 10)
cut_is_told() { run MODEL=tests/golden/lm "PROMPT=$long$1" TOKENS=1 >"$work/b" && [ "$(grep -c 'PROMPT has .* context 48: only the last 48 count' "$work/err")" = "$2" ]; }
check 'a prompt longer than the context: a warning' cut_is_told "$long$long$long" 1
long=a
check 'one that fits: none' cut_is_told '' 0
check 'a question-answering model' refused 78 'writes no text' MODEL=tests/golden/qa PROMPT=a

# Without a random choice the model writes the tokens 107 and then 130, forever.
ends_with() { run MODEL="$1" PROMPT=a TEMPERATURE=0 TOKENS=8 | od -An -tx1 | tr -d ' \n' | grep -qx "$2"; }
cp -r tests/golden/lm "$work/lm"
check 'it writes to the end where no token ends a text' ends_with "$work/lm" '61afc6c6c6c6c6c6c60a'
echo '{"eos_token_id": [5, 130]}' >"$work/lm/generation_config.json"
check 'the second token of a list in generation_config.json ends it' ends_with "$work/lm" 61af0a
sed -i 's/"n_ctx"/"eos_token_id": [107, 6], "n_ctx"/' "$work/lm/config.json" && mv "$work/lm/generation_config.json" "$work/"
check 'the first of a list in config.json does' ends_with "$work/lm" 610a
mv "$work/generation_config.json" "$work/lm" && "$convoy" import FROM="$work/lm" TO="$work/ck" >/dev/null 2>"$work/err"
check 'a checkpoint keeps the list' ends_with "$work/ck" 61af0a
