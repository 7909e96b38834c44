#!/bin/bash
# test_curves — the curves of a run outlive its process. They are kept beside the checkpoints and resume at the checkpoint's
# step, so points after it are dropped. A file that is not a history is refused and training goes on.
. "$(dirname "$0")/lib.sh"
port=$(free_port)
url=http://127.0.0.1:$port
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
run_it="$tiny VOCAB=50257 STEPS=100000000 CHECKPOINT_DIR=ck SAMPLE_EVERY=20"
history() { curl -s --max-time 5 "$url/history" >history.json; }
has() { history && jq -e "$1" history.json >/dev/null 2>&1; }
has_step() { has ".points.step | map(select(. != null)) | (max // 0) >= $1"; }
stop() { kill -TERM "$pid"; finish; }

# 1. Stopped, and started again.
begin $run_it
wait_for 30 has_step 100
wait_for 30 has '.samples | length > 0'
stop
at=$(newest_step ck)
ok "the file is beside the checkpoints, as GET /history answers" holds ck/history.json '.[0] | .schema == 1 and (.points.loss | length) > 1'
ok "up to the last step" holds ck/history.json ".[0].points.step | map(select(. != null)) | max <= $at and max > 0"
cp ck/history.json before.json
begin $run_it
wait_for 30 has_step $((at + 5))
ok "resumed: the earlier points are there" is "$(jq -c '[.points.step[] | select(. != null)][0:3]' history.json)" "$(jq -c '[.points.step[] | select(. != null)][0:3]' before.json)"
ok "then the new ones, in the order of time" holds history.json '.[0] | (.points.seconds == (.points.seconds | sort)) and .offset_seconds > 0 and ([.points.step[] | select(. != null)] | . == sort)'
ok "with an event between them" holds history.json ".[0].events | any(.kind == \"resume\" and (.text | test(\"resumed from step $at\")))"
ok "and the earlier samples" holds history.json ".[0].samples | any(.step <= $at)"

# 2. Killed: what was beyond the last checkpoint is lost, and so is its part of the curves.
kill -USR1 "$pid"
finish
at=$(newest_step ck)
jq -c --argjson at "$at" '.points |= (.seconds += [(.seconds | last) + .[ "seconds" ][0] + 1024] | .phase += ["training"] | .step += [$at + 5000] |
    with_entries(if .key == "seconds" or .key == "phase" or .key == "step" then . else .value += [7.5] end)) | .period_seconds as $p | .points.seconds |= [.[] | . - . % $p] | .samples += [{"seconds": 1, "step": ($at + 5000), "text": "of the future"}]' ck/history.json >future.json
cp future.json ck/history.json
begin $run_it
wait_for 30 has_step $((at + 5))
ok "points and samples beyond the checkpoint are dropped" holds history.json ".[0] | ([.points.step[] | select(. != null)] | . == sort and max < $at + 5000) and (.samples | any(.text == \"of the future\") | not) and .offset_seconds > 0"
stop

# 3. RESUME=never starts new curves.
begin $run_it RESUME=never
wait_for 30 has_step 5
ok "RESUME=never: curves begin anew" holds history.json '.[0] | .offset_seconds == 0 and (.events | any(.kind == "resume") | not)'
stop

# 4. No history at all.
for bad in empty cut text deep large; do
    case $bad in
    empty) : >ck/history.json ;;
    cut) head -c 300 before.json >ck/history.json ;;
    text) echo '<html>' >ck/history.json ;;
    deep) perl -e 'print "[" x 100000' >ck/history.json ;;
    large) perl -e 'print "{\"schema\":1,\"x\":\"", "x" x 3000000, "\"}"' >ck/history.json ;;
    esac
    begin $run_it
    wait_for 30 has_step 5
    ok "a file that is $bad: curves begin anew, training goes on" holds history.json '.[0] | .offset_seconds == 0 and (.points.step | length) > 0'
    [ $bad = empty ] || ok "$bad: said" grep -qE ' warn .*(history.json|curves of an earlier run)' err
    stop
    ok "$bad: replaced by this run's" holds ck/history.json '.[0].schema == 1'
done

# 5. A folder that cannot be written to costs the curves, not the run.
rm -rf ck/history.json && mkdir ck/history.json
begin $run_it CHECKPOINT_EVERY=50
wait_for 30 has_step 5
wait_for 30 has '.points.step | length > 2'
stop
ok "curves that cannot be kept: a warning, and the run ends normally" is "$rc $(grep -c ' warn .*curves of this run are not kept' err)" "143 1"
done_testing
