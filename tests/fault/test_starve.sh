#!/bin/bash
# test_starve — too little memory while `convoy train` starts: allocation N of the worker, then of the supervisor, fails, for
# N spread over all allocations of a short run. The run ends with an exit code of the list and a sentence, or does without; it
# never crashes. The suite tries ${STARVED:-24} points of each; STARVED=100000 all.
. "$(dirname "$0")/../e2e/lib.sh"
[ -n "${SAN:-}" ] && give_up "memory that is short" "sanitizers have their own malloc"
${CC:-cc} -O1 -fPIC -shared -o starve.so "$root/tests/fault/starve.c" 2>cc.log || give_up "memory that is short" "no compiler here"
words="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 VOCAB=64 CONTEXT=32 SEQ_LEN=32 BATCH_SIZE=2 DATA=t.bin STEPS=4 MAX_RESTARTS=0 CHECKPOINT_DIR=run METRICS_FILE=m.jsonl"
perl -e 'binmode STDOUT; print pack("l<256", 20240520, 1, 1000, (0) x 253), pack("v*", map { $_ * 7 % 64 } 1 .. 1000)' >t.bin
starve() { # starve WHO N
    rm -rf run m.jsonl
    rc=0
    LD_PRELOAD=$tmp/starve.so STARVE_WHO=$1 STARVE=$2 STARVE_COUNT=$tmp/count timeout $((60 * $(slow))) "$convoy" train $quiet $words >out 2>err || rc=$?
}
for who in worker train; do
    rm -f count
    starve $who 0
    all=$(cat count 2>/dev/null || echo 0)
    ok "$who: counted" [ "$rc" = 0 -a "$all" -gt 100 ]
    bad=0 tried=0 done=0 codes=
    stride=$((all / ${STARVED:-24} + 1))
    for ((i = 1 + RANDOM % stride; i <= all; i += stride)); do
        starve $who $i
        tried=$((tried + 1))
        codes="$codes$rc "
        case $rc in
        0) done=$((done + 1)) ;;
        75) grep -qE ' error .*(emory|limit of)' err || { bad=$((bad + 1)); echo "# $who, allocation $i of $all: 75 without a word of memory"; tail -n 2 err | sed 's/^/# /'; } ;;
        *) bad=$((bad + 1)); echo "# $who, allocation $i of $all: exit code $rc"; tail -n 4 err | sed 's/^/# /' ;;
        esac
    done
    echo "# $who: $all allocations, $tried failed, $done runs did without; codes $(tr ' ' '\n' <<<"$codes" | sort | uniq -c | tr -s '\n ' ' ')"
    ok "$who: each failure ends with 75 and a sentence, or is survived" is $bad 0
done
done_testing
