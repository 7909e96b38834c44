#!/bin/bash
# test_first_run — what `make run` does after the build: it measures the speed and derives the steps from it, the sample is
# text, and the hint can be pasted. FIRST_RUN=1: for a minute, as a user has it, with limits of time and of how much the
# sample is like the book (needs a quiet machine).
. "$(dirname "$0")/lib.sh"
book=$root/assets/alice.txt
settings=$(sed -n 's/^RUN_SETTINGS := //p' "$root/Makefile")
vocab=$(sed -n 's/^RUN_VOCAB := //p' "$root/Makefile")
seconds=1 least=20
[ "${FIRST_RUN:-}" = 1 ] && seconds=$(sed -n 's/^RUN_SECONDS := //p' "$root/Makefile")
first_run() { # SECONDS SETTING…
    rc=0
    # shellcheck disable=SC2086
    (cd "$root" && DATA=$book PROMPT=Alice VOCAB=$vocab STEPS=${fixed:-} "$root/.ci/first-run" "$convoy" "$tmp/run" "$1" $settings STATUS_PORT=0 "${@:2}") >out 2>err || rc=$?
}
begin_s=$(date +%s)
first_run "$seconds"
took=$(($(date +%s) - begin_s))
steps=$(cat run.steps)
ok "it makes a tokenizer" is "$(head -n 1 out | grep -c "^$tmp/run.tokenizer  $vocab tokens ")" 1
ok "it measures, trains, and ends well" is "$rc $(sed -n 2p out) $(newest_step run)" "0 measuring how fast this machine is $steps"
ok "it shows what the model writes at first and at each quarter of the run" is "$(grep -c '^what the model writes after 8 steps: ' out) $(grep -c '^step [0-9/]*  sample ' out)" "1 4"
ok "and says how many steps a minute is: $steps" grep -qx "a step takes [0-9]* ms: $steps steps" out

ok "no fewer than $least" test "$steps" -ge $least
want=20
if [ "${FIRST_RUN:-}" != 1 ]; then # a tenth of a run teaches the commonest words; they repeat
    fixed=100 want=8
    first_run 1
    ok "STEPS= instead of a minute" is "$rc $(newest_step run)" "0 100"
fi

# The words of the sample, and those of the book, small and without signs.
words() { tr 'A-Z' 'a-z' | grep -oE "[a-z]+('[a-z]+)?"; }
words <"$book" | sort -u >english
sample() { tac out | sed '/^a sample, behind the prompt/Q' | tac; }
sample | words | head -n 40 >sample
grep -Fx -f english sample | sort -u >known
ok "of 40 words of the sample $(wc -l <known) are different English words" test "$(wc -l <sample)" -eq 40 -a "$(wc -l <known)" -ge $want
sample | sed 's/^/# /'
# Pairs of words that follow each other in the book, too.
pairs() { awk 'NR > 1 { print last, $1 } { last = $1 }' "$1"; }
words <"$book" >all && pairs all | sort -u >book.pairs
share=$(pairs sample | grep -cFx -f book.pairs)
echo "# $share of 39 pairs of its words are pairs of the book; $took s"
if [ "${FIRST_RUN:-}" = 1 ]; then
    ok "it takes about a minute" test "$took" -ge 40 -a "$took" -le 90
    ok "half of its pairs of words stand in the book" test "$share" -ge 20
fi

hint=$(sed -n 's/^to write text: //p' out)
ok "the hint for more can be pasted" is "$(bash -c "$hint" 2>err | wc -c | awk '{ print ($1 > 100) }')" 1
ok "it names the program as it was called" is "${hint%% *}" "$convoy"

echo 100000 >run.steps
before=$(newest_step run) fixed=
first_run 1 STEPS=$((before + 1))
ok "an interrupted run goes on" is "$rc $(sed -n 1p out) $(newest_step run)" "0 going on with the run in $tmp/run: 100000 steps in all $((before + 1))"
first_run 1 LR=fast
ok "a refused setting: its own words and code" is "$rc $(grep -c 'LR=fast' err)" "78 1"
done_testing
