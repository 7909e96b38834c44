#!/bin/bash
# test_curves — the curves of a run outlive its process. They are kept beside the checkpoints and resume at the checkpoint's
# step, so points after it are dropped. A file that is not a history is refused and training goes on. With the last status,
# settings and log they are what `convoy view` shows.
. "$(dirname "$0")/lib.sh"
port=$(free_port)
url=http://127.0.0.1:$port
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
run_it="$tiny VOCAB=50257 STEPS=100000000 CHECKPOINT_DIR=ck SAMPLE_EVERY=20"
has() { get /history >history.json && jq -e "$1" history.json >/dev/null 2>&1; }
has_step() { has ".points.step | map(select(. != null)) | (max // 0) >= $1"; }

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
stop USR1
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

# 5. How the run ended is kept beside the curves, and `convoy view` shows it.
view_port=$(free_port)
view=http://127.0.0.1:$view_port
# view DIR… — begins it: $viewer.
view() {
    "$convoy" view "$@" STATUS_PORT="$view_port" >view.out 2>view.err &
    viewer=$!
    started+=("$viewer")
    wait_for 20 curl -s -o /dev/null --max-time 2 "$view/livez"
}
# end_view — $rc.
end_view() {
    kill -TERM "$viewer"
    rc=0
    wait "$viewer" 2>/dev/null || rc=$?
}
gets() { curl -s --max-time 5 "$view$1"; }
begin $run_it RUN_NAME="a run" CONVOY_LIB_DIR=https://me:hunter2@host/
wait_for 30 has_step 5
stop
ok "how it ended, its settings and its log are in the file" holds ck/history.json '.[0].record | .status.phase == "failed" and .status.error.code == 143 and .written > 1e9 and (.settings.settings | any(.name == "RUN_NAME")) and (.log | test("checkpoint/async"))'
ok "no secret" is "$(grep -c hunter2 ck/history.json)" 0
cp -r ck copied
view copied ck
ok "convoy view: the page's address" grep -qx "page $view/" view.out
ok "the status of the run, and when it was written" is "$(gets /status | jq -c '[.phase, .error.code, .run, .recorded > 1e9]')" '["failed",143,"a run",true]'
ok "the same curves as in the file" is "$(gets /runs/1/history | jq -c '[.points, .events, .samples]')" "$(jq -c '[.points, .events, .samples]' ck/history.json)"
ok "both folders" is "$(gets /runs | jq -c '[.runs[] | [.path, .folder]]')" '[["/runs/0","copied"],["/runs/1","ck"]]'
ok "log, settings, CSV, page" is "$(gets /log | grep -c checkpoint/async) $(gets /settings | jq '.settings | length > 3') $(gets /history.csv | grep -c ^seconds) $(gets / | grep -c '<!doctype')" "1 true 1 1"
ok "it is read-only" is "$(curl -s -o /dev/null -w '%{http_code}' -X POST --max-time 5 "$view/status")" 405
ok "other hosts are refused" is "$(curl -s -o /dev/null -w '%{http_code}' -H 'Host: evil.example' --max-time 5 "$view/status")" 421
ok "it listens on 127.0.0.1 alone" is "$(ss -Hltn "sport = :$view_port" | awk '{ print $4 }')" "127.0.0.1:$view_port"
"$convoy" status "$view" >shown 2>said
ok "convoy status reads it: 1, and why" is "$? $(grep -c 'error 143' said)" "1 1"
begin $run_it RUN_NAME="a run"
wait_for 30 has_step 5
stop
begin $run_it RUN_NAME="another run"
wait_for 30 has_step 5
stop
ok "a folder that changes is read again" wait_for 20 sh -c "curl -s --max-time 5 '$view/runs/1/status' | grep -q 'another run'"
end_view
ok "SIGTERM ends it: 0" is $rc 0
jq -c '[.points.step, .samples]' ck/history.json >before
run $run_it DATA=/nowhere.txt STATUS_ADDR=127.0.0.1 STATUS_PORT="$port"
ok "a run that fails before it resumes: its end is there, and no curve is lost" is "$rc $(jq -c '[(.points.step | length) >= ($old[0] | length), .samples == $old[1], .record.status.error.code]' --argjson old "$(cat before)" ck/history.json)" "66 [true,true,66]"
begin $run_it
wait_for 30 sh -c "jq -e '.record.status.error == null' ck/history.json"
first=$pid
rc=0
"$convoy" train STATUS_ADDR=127.0.0.1 STATUS_PORT="$view_port" $run_it >out5 2>err5 || rc=$?
ok "a second run in a folder that is in use leaves its file alone" is "$rc $(jq -c '.record.status.error' ck/history.json)" "78 null"
pid=$first
stop
run $run_it DATA=/nowhere.txt CHECKPOINT_DIR=never STATUS_ADDR=127.0.0.1 STATUS_PORT="$port"
ok "without a folder nothing is kept, and nothing said of it" is "$rc $(ls -d never 2>/dev/null) $(grep -c 'not kept' err)" "66  0"
# What is no run; the rest is in tests/unit/serve/stored_runs.c.
refuses() { # CODE TEXT DIR…
    local want=$1 text=$2
    shift 2
    rc=0
    "$convoy" view "$@" STATUS_PORT="$view_port" >out 2>err || rc=$?
    is $rc "$want" && says "$text"
}
ok "view: no folder" refuses 64 "view needs a run's CHECKPOINT_DIR"
ok "a folder that is not there" refuses 66 "cannot open the folder nowhere" copied nowhere
ok "a folder that is no run's" refuses 66 "is not the folder of a run" copied "$root/assets"
mkdir link pipe
ln -s "$PWD/copied/history.json" link/history.json
mkfifo pipe/history.json
ok "a link out of the folder is not followed" refuses 66 "it is a symbolic link" link
ok "a pipe is not waited for" refuses 66 "is not a regular file" pipe
view copied
ok "a port that is taken" refuses 78 "Address already in use" copied
end_view

# 6. A folder that cannot be written to costs the curves, not the run.
rm -rf ck/history.json && mkdir ck/history.json
begin $run_it CHECKPOINT_EVERY=50
wait_for 30 has_step 5
wait_for 30 has '.points.step | length > 2'
stop
ok "curves that cannot be kept: a warning, and the run ends normally" is "$rc $(grep -c ' warn .*curves of this run are not kept' err)" "143 1"
done_testing
