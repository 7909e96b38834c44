#!/bin/sh
# test_tokenize — `convoy tokenize` as a user runs it: DATA → OUT, and its messages when it cannot.
top=$(pwd)
convoy=$(cd "$top" && realpath "${BUILD:-build}")/convoy
work=$(mktemp -d "${TMPDIR:-/tmp}/convoy-tokenize-XXXXXX") || exit 99
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 99
n=0

# check WHAT COMMAND...: one line of TAP.
check() {
    what=$1
    shift
    n=$((n + 1))
    if "$@"; then printf 'ok %d - %s\n' "$n" "$what"; else
        printf 'not ok %d - %s\n' "$n" "$what"
        sed 's/^/# /' out err
    fi
}
# tokenize CODE TEXT NAME=VALUE...: run, compare the exit code, look for the text in its output; nothing half-written stays.
tokenize() {
    want=$1
    words=$2
    shift 2
    env -i PATH="$PATH" HOME="$work" "$convoy" tokenize "$@" >out 2>err
    [ $? = "$want" ] && cat out err | grep -qF -- "$words" && [ -z "$(find . -name '*.tmp')" ]
}
ids() { tail -c +1025 "$1" | od -An -v -tu2 -w2 | tr -d ' ' | tr '\n' ' '; }

printf 'Hello, world!' >a.txt
mkdir -p d/e
printf 'a' >d/1.txt
printf 'b' >d/e/2.txt
echo '1..10'
check 'a text file' tokenize 0 '4 tokens' DATA=a.txt OUT=a.bin
check 'the ids are GPT-2'\''s' test "$(ids a.bin)" = '15496 11 995 0 '
check 'the header is llm.c'\''s' test "$(od -An -td4 -N12 a.bin | tr -s ' ')" = ' 20240520 1 4'
tokenize 0 tokens DATA=d OUT=d.bin
check 'files of a folder are joined with <|endoftext|>' test "$(ids d.bin)" = '64 50256 65 '
tokenize 0 '' DATA=d OUT=d/ids.bin
check 'the file that is written, in the folder that is read, is no data' test "$(grep -c skipping err)" = 0
rm -f d/ids.bin
check 'no DATA' tokenize 78 'set DATA' OUT=x.bin
check 'no OUT' tokenize 78 'set OUT' DATA=a.txt
check 'DATA is missing' tokenize 66 'nowhere.txt' DATA=nowhere.txt OUT=x.bin
check 'a small VOCAB' tokenize 65 'VOCAB=50257' DATA=a.txt OUT=x.bin VOCAB=256
check 'OUT in a folder that is not there' tokenize 74 'no/x.bin' DATA=a.txt OUT=no/x.bin
