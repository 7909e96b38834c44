#!/bin/bash
# test_page — the status page in headless Chromium (Debian's, with PyPI's playwright), beside real runs; screenshots stay in
# $BUILD/page.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$convoy")
venv=$build/playwright
leave() {
    echo "1..0 # SKIP $1"
    exit 0
}
[ -z "${SAN:-}" ] || leave "its limits of time are not meant for sanitizers"
extra chromium test -x /usr/bin/chromium
extra playwright test -x "$venv/bin/playwright"

port=$(free_port)
joining=$(free_port)
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
head -c 400 /usr/share/common-licenses/GPL-3 >val.txt
# "nice": the steps yield to the browser and to the tests beside it.
in=nice begin MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=32 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 LR=1e-3 DATA=/usr/share/common-licenses/GPL-3 \
    VAL_DATA=val.txt EVAL_EVERY=10 STEPS=1000000 N_GPU_EACH_NODE=2 CHECKPOINT_DIR=ck CHECKPOINT_EVERY=20 SAMPLE_EVERY=20 \
    RUN_NAME="a <b>run" CONVOY_LIB_DIR=https://me:hunter2@host/
run=$pid
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$joining"
JOB_TOKEN=a-secret-for-these-tests-only "$convoy" train $quiet $tiny STEPS=100 N_NODES=2 NODE_ID=0 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(free_port)" >out2 2>err2 &
other=$!
disown # no word of the shell when it is killed
started+=("$other")
has_answer() { curl -s --max-time 2 "http://127.0.0.1:$1/status" | grep -q "\"phase\":\"$2\""; }
wait_for 20 has_answer "$port" training || { echo "not ok 1 - the run trains"; done_testing; exit; }
# Runs for `convoy view`: done, failed, the one that still trains, and one whose record holds what no run writes.
brief=$(free_port)
view=$(free_port)
"$convoy" train STATUS_ADDR=127.0.0.1 STATUS_PORT="$brief" $tiny VOCAB=50257 STEPS=40 SAMPLE_EVERY=20 CHECKPOINT_DIR="a <b>done" >out3 2>err3
"$convoy" train STATUS_ADDR=127.0.0.1 STATUS_PORT="$brief" $tiny STEPS=40 LR=1000 MAX_RESTARTS=0 CHECKPOINT_DIR=failed >out3 2>err3
mkdir strange
jq -c '.record.status.model.name = {"a": 1} | .record.status.ranks = [{"rank": null, "state": 7}] | .record.status.nodes = [{"state": []}] | .record.status.check = {}' "a <b>done/history.json" >strange/history.json
wait_for 20 test -s ck/history.json
"$convoy" view "a <b>done" failed ck strange STATUS_PORT="$view" >out4 2>err4 &
viewer=$!
disown
started+=("$viewer")
wait_for 20 has_answer "$view" "done"
mkdir -p "$build/page"
limit 300 "$venv/bin/python" "$root/tests/e2e/page.py" "http://127.0.0.1:$port/" "$run" "http://127.0.0.1:$joining/" "$other" "http://127.0.0.1:$view/" "$build/page" 2>page.err ||
    { echo "not ok 999 - the browser's part came to its end"; tail -n 15 page.err | sed 's/^/# /'; tail -n 3 err err2 | sed 's/^/# /'; }
kill -KILL "$other" "$viewer" 2>/dev/null
