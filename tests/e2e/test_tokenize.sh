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
echo '1..24'
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

# OUT replaces an earlier token file, and nothing else.
stays() { cmp -s "$1" "$1.kept"; }
printf 'dear diary\n' >diary && cp diary diary.kept
cp a.txt a.txt.kept
check 'an earlier output is replaced' tokenize 0 '4 tokens' DATA=a.txt OUT=a.bin
check 'a file that is not a token file is not replaced' tokenize 78 'OUT=diary exists and is not a token file' DATA=a.txt OUT=diary
check '... and stays' stays diary
check 'the input is not replaced' tokenize 78 'one of the files of DATA' DATA=a.txt OUT=a.txt
check '... nor by another name' eval 'ln a.txt link.bin && tokenize 78 "one of the files of DATA" DATA=a.txt OUT=link.bin && stays a.txt'
check 'a token file of DATA is not replaced' tokenize 78 'one of the files of DATA' DATA=a.bin,a.txt OUT=a.bin
printf '{"model":{"type":"BPE","vocab":{"a":0},"merges":[]}}' >t.json && cp t.json t.json.kept
check 'the tokenizer is not replaced' tokenize 78 'OUT=t.json exists' DATA=a.txt TOKENIZER=t.json OUT=t.json
check '... and stays' stays t.json
check 'both files of Megatron are written again' eval 'tokenize 0 "4 tokens" DATA=a.txt OUT=m.idx && tokenize 0 "4 tokens" DATA=a.txt OUT=m.idx'
cp diary n.bin
check 'the .bin beside an index is not replaced' tokenize 78 'would also write n.bin' DATA=a.txt OUT=n.idx
: >empty.bin
check 'an empty file is replaced' tokenize 0 '4 tokens' DATA=a.txt OUT=empty.bin

# A signal within one word of 60 MiB.
head -c 62914560 /dev/zero | tr '\0' '\n' >run.txt
env -i PATH="$PATH" HOME="$work" "$convoy" tokenize DATA=run.txt OUT=run.bin >out 2>err &
pid=$!
sleep 1
before=$(date +%s%N)
kill -TERM $pid
wait $pid
code=$? took_ms=$((($(date +%s%N) - before) / 1000000))
most_ms=$(awk -v cores="$(nproc)" '{ load = $1 / cores; print int(1000 * (load > 1 ? 1 + load : 1)) }' /proc/loadavg)
echo "# stopped after $took_ms ms, at most $most_ms at this load"
check 'a signal ends it with 143' test "$code" = 143
check '... within a second' test "$took_ms" -le "$most_ms"
check '... and nothing half-written stays' test -z "$(find . -name 'run.bin*')"
