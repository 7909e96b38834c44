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
mkdir -p "$build/page"
limit 225 "$venv/bin/python" "$root/tests/e2e/page.py" "http://127.0.0.1:$port/" "$run" "http://127.0.0.1:$joining/" "$build/page" 2>page.err ||
    { echo "not ok 999 - the browser's part came to its end"; tail -n 15 page.err | sed 's/^/# /'; tail -n 3 err err2 | sed 's/^/# /'; }
kill -KILL "$other"
