#!/bin/sh
# learn — does it learn? gpt2-mini from random weights on tinyshakespeare: the first 90 % of the text to train, the last 10 % held
# out; 300 steps of 4 x 256 tokens. Gate: held-out loss <= 5.55 (PyTorch reached 5.46 with the same settings). A few minutes.
set -eu
build=${BUILD:-build}
text=${TEXT:-../shared/data/tinyshakespeare.txt}
[ -f "$text" ] || { echo "learn: skipped, $text is not here; TEXT=FILE names another copy" >&2; exit 0; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
bytes=$(wc -c < "$text")
cut=$((bytes * 9 / 10))
head -c "$cut" "$text" > "$dir/train.txt"
tail -c +$((cut + 1)) "$text" > "$dir/held-out.txt"
"$build/convoy" train MODEL=gpt2-mini DATA="$dir/train.txt" VAL_DATA="$dir/held-out.txt" EVAL_EVERY=100 STEPS=300 \
    BATCH_SIZE=4 SEQ_LEN=256 LR=1e-3 WARMUP_STEPS=20 LR_SCHEDULE=cosine WEIGHT_DECAY=0.1 GRAD_CLIP=1 \
    CACHE_DIR="$dir/cache" METRICS_FILE="$dir/metrics.jsonl" STATUS_PORT=0 LOG_LEVEL=warn > "$dir/console" ||
    { tail -5 "$dir/console"; echo "learn: training failed"; exit 1; }
loss=$(jq -s 'map(select(.val_loss != null)) | last | .val_loss' "$dir/metrics.jsonl")
jq -r 'select(.step % 50 == 0 or .val_loss != null) | "step \(.step)  loss \(.loss // "-")  held-out \(.val_loss // "-")"' "$dir/metrics.jsonl"
echo "held-out loss $loss after 300 steps (gate 5.55)"
awk -v l="$loss" 'BEGIN { exit !(l > 0 && l <= 5.55) }' || { echo "learn: FAILED"; exit 1; }
