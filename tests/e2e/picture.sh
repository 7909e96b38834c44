#!/bin/bash
# picture — assets/status-page.png: the status page of a real run of two workers, in headless Chromium. `make picture` runs it.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${BUILD:-build}
port=${PORT:-8080}
work=$(mktemp -d)
trap 'kill "$run" 2>/dev/null || true; wait "$run" 2>/dev/null || true; rm -rf "$work"' EXIT
"$root/$build/convoy" train MODEL=gpt2-nano DATA="$root/assets/alice.txt" SEQ_LEN=128 BATCH_SIZE=2 LR=2e-3 WARMUP_STEPS=20 STEPS=2000 N_GPU_EACH_NODE=2 \
    DEVICE=cpu CHECKPOINT_DIR="$work/run" CHECKPOINT_EVERY=50 VAL_DATA="$root/assets/alice.txt" EVAL_EVERY=1000 RUN_NAME=alice STATUS_PORT="$port" \
    >"$work/out" 2>&1 &
run=$!
sleep "${SECONDS_OF_RUN:-75}"
"$root/$build/playwright/bin/python" - "$port" "$root/assets/status-page.png" <<'PYTHON'
import sys
from playwright.sync_api import sync_playwright
with sync_playwright() as p:
    browser = p.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
    page = browser.new_page(viewport={"width": 1100, "height": 760})
    page.goto(f"http://127.0.0.1:{sys.argv[1]}/")
    page.wait_for_timeout(3000)
    page.screenshot(path=sys.argv[2])
    browser.close()
PYTHON
