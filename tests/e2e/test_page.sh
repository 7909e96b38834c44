#!/bin/bash
# test_page — the dashboard in headless Chromium, beside real runs. Debian's chromium and PyPI's playwright are installed
# when they are missing; screenshots stay in $BUILD/page.
. "$(dirname "$0")/lib.sh"
build=$(dirname "$convoy")
venv=$build/playwright
leave() {
    echo "1..0 # SKIP $1"
    exit 0
}
[ -z "${SAN:-}" ] || leave "its limits of time are not meant for sanitizers"
busy=$(awk -v n="$(nproc)" '$1 > 8 * n { print $1 " on " n " processors" }' /proc/loadavg)
[ -z "$busy" ] || leave "a browser cannot keep limits of seconds at a load of $busy"
# Both at most once a build folder, and never longer than the suite can bear.
if [ ! -x /usr/bin/chromium ] || [ ! -x "$venv/bin/playwright" ]; then
    command -v apt-get >/dev/null || leave "not a Debian: needs chromium and python3-venv"
    timeout 100 sh "$root/.ci/need" chromium fonts-dejavu-core python3-venv >need 2>&1 || leave "chromium cannot be installed: $(tail -n 1 need)"
    { /usr/bin/python3 -m venv "$venv" && timeout 60 "$venv/bin/pip" install -q --disable-pip-version-check playwright==1.65.2; } >need 2>&1 ||
        { rm -rf "$venv"; leave "playwright cannot be installed: $(tail -n 1 need)"; }
fi

port=$(free_port)
joining=$(free_port)
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
head -c 400 /usr/share/common-licenses/GPL-3 >val.txt
begin MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=32 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 LR=1e-3 DATA=/usr/share/common-licenses/GPL-3 \
    VAL_DATA=val.txt EVAL_EVERY=10 STEPS=1000000 N_GPU_EACH_NODE=2 CHECKPOINT_DIR=ck CHECKPOINT_EVERY=20
run=$pid
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$joining"
JOB_TOKEN=a-secret-for-these-tests-only "$convoy" train $quiet $tiny STEPS=100 N_NODES=2 NODE_ID=0 MASTER_ADDR=127.0.0.1 MASTER_PORT="$(free_port)" >out2 2>err2 &
other=$!
disown # no word of the shell when it is killed
started+=("$other")
has_answer() { curl -s --max-time 2 "http://127.0.0.1:$1/status" | grep -q "\"phase\":\"$2\""; }
wait_for 20 has_answer "$port" training || { echo "Bail out! the run does not train"; exit 1; }
mkdir -p "$build/page"
timeout --foreground $((225 - SECONDS)) "$venv/bin/python" "$root/tests/e2e/page.py" "http://127.0.0.1:$port/" "$run" "http://127.0.0.1:$joining/" "$build/page" 2>page.err ||
    { echo "not ok 999 - the browser's part came to its end"; tail -n 15 page.err | sed 's/^/# /'; tail -n 3 err err2 | sed 's/^/# /'; }
kill -KILL "$other"
