#!/bin/bash
# test_output — what a run prints where there is no terminal: how many lines, which numbers as JSON members, no control
# characters on a dumb terminal, and the run's name wherever it belongs.
. "$(dirname "$0")/lib.sh"
unset LOG_EVERY
run $tiny STEPS=1000
ok "piped: the first step and every hundredth of them" is "$rc $(grep -c '^step ' out) $(grep -cE '^step (1|10|500|1000)/1000  loss ' out)" "0 101 4"
run $tiny STEPS=1000 LOG_EVERY=300
ok "LOG_EVERY=300: with the first and the last" is "$(grep -oE '^step [0-9]+' out | tr '\n' ' ')" "step 1 step 300 step 600 step 900 step 1000 "
run $tiny STEPS=1000 LOG_EVERY=1
ok "LOG_EVERY=1: each" is "$(grep -c '^step ' out)" 1000
head -c 30000 /usr/share/common-licenses/GPL-3 >text.txt
run $tiny VOCAB=0 STEPS=25 LOG_EVERY=1000 DATA=text.txt VAL_DATA=text.txt EVAL_EVERY=7
ok "the step that an evaluation belongs to is shown" is "$(grep -oE '^step [0-9]+/25  (val_)?loss' out | sed -n 2,3p | tr -s ' \n' ' ')" \
    "step 7/25 loss step 7/25 val_loss "
has_more() { [ "$(wc -l <more.jsonl)" -gt 2 ]; }
: >more.jsonl
begin $tiny STEPS=100000000 LOG_EVERY=100000000 METRICS_FILE=more.jsonl
wait_for 20 has_more
stop
ok "so is the last one before a stop" is "$rc $(grep -c '^step ' out) $(tail -n 1 out | sed 's,^step \([0-9]*\)/.*,\1,')" \
    "143 2 $(grep -oE 'after step [0-9]+' err | head -n 1 | cut -c12-)"

run $tiny STEPS=3 LOG_FORMAT=json RUN_NAME='first "try"' LOG_EVERY=1
ok "JSON: each line is an object with the run's name" is "$(jq -r .run err | sort -u) $(jq -s length err) $(wc -c <out)" "first \"try\" $(wc -l <err) 0"
ok "numbers are members" is \
    "$(jq -s -c '[.[] | select(.module == "console" and .step) | [.step, .steps, (.loss | type), (.lr | type), (.norm | type), (.step_ms | type), (.tokens_per_second | type), (.mfu | type)]] | .[0], length' err | tr '\n' ' ')" \
    '[1,3,"number","number","number","number","number","number"] 3 '
ok "and not in the message" is "$(jq -r 'select(.module == "console" and .step) | .message' err | tr '\n' ' ')" "step 1/3 step 2/3 step 3/3 "

run $tiny STEPS=3 RUN_NAME=first TENSORBOARD_DIR=tb
ok "RUN_NAME is TensorBoard's name of the run" is "$rc $(ls tb) $(ls tb/first | wc -l) $(grep -c 'run first$' err)" "0 first 1 1"
try "one that is no folder's is refused" 78 'RUN_NAME=../up (argument) begins with a dot' -- train $tiny STEPS=3 RUN_NAME=../up
port=$(free_port)
begin_served $tiny STEPS=100000000 RUN_NAME='a "b"'
wait_for 20 status_has '.step > 0'
get /metrics >metrics
ok "/status names the run" is "$(jq -r .run status.json)" 'a "b"'
ok "every metric has it as a label" is "$(grep -v '^#' metrics | grep -vc '^convoy_[a-z0-9_]*{run="a \\"b\\""')" 0
"$convoy" status "http://127.0.0.1:$port" >out 2>err
ok "convoy status shows it, and times in one unit" is "$(grep -c '^run  *a "b"$' out) $(grep -cE 'tok/s  [0-9.]+ m?s a step' out)" "1 1"
stop

TERM=dumb script -qec "$convoy train $quiet $tiny STEPS=200" typescript >out 2>err </dev/null
ok "a dumb terminal gets lines alone" is \
    "$(sed '1d;$d' typescript | tr -d '\r\n' | LC_ALL=C tr -d '[:print:]' | wc -c) $(grep -c '^step ' typescript) $(tr '\r' '\n' <typescript | grep -c '%  step ')" "0 101 0"
TERM=xterm script -qec "$convoy train $quiet $tiny STEPS=2000" typescript >out 2>err </dev/null
ok "another a bar" is "$(tr '\r' '\n' <typescript | grep -qE '^\[#*-+\] +[0-9]+%  step ' && echo yes)" yes
done_testing
