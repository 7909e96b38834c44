#!/bin/bash
# tokens — how many tokens three recipes need to one held-out loss: AdamW; Muon; Muon with the modern model. gpt2-mini from random
# weights on Debian's dict-gcide, with a tokenizer of 2048 tokens made for it. Of each 60,000 lines, 100 are held out.
#   Every run has its own whole schedule (wsd: the last fifth of the steps falls to 0). AdamW has STEPS steps, the others a share of
# them. A gate is kept where the mean held-out loss of the share is no higher than AdamW's mean. The learning rate of each recipe is
# the best of a few with seed 1. Which losses the seeds gave is shown: lowest and highest.
#   STEPS=100 BATCH=8   steps of AdamW, samples of 256 tokens a step      SEEDS="1 2 3"
#   JOBS=2              runs at a time, of one thread each
#   WORK=DIR            keeps text, tokenizer and results there; a run that has a line in results.tsv is not repeated
#   ONLY="adamw muon modern"
#   ADAMW_LR, MUON_LR   the learning rates that are tried
# With BUILD=DIR it runs that build. Some 70 minutes of one core of an EPYC with AVX2; the load of the machine changes no result.
set -eu
export LC_ALL=C NO_COLOR=1 STATUS_PORT=0 OMP_NUM_THREADS=1
top=$(cd "$(dirname "$0")/../.." && pwd)
convoy=$(cd "$top" && realpath "${BUILD:-build}")/convoy
case ${BUILD:-} in /*) convoy=$BUILD/convoy ;; esac
text=${TEXT:-/usr/share/dictd/gcide.dict.dz}
export STEPS=${STEPS:-100} BATCH=${BATCH:-8}
seeds=${SEEDS:-1 2 3} jobs=${JOBS:-2} only=${ONLY:-adamw muon modern}

# one RECIPE PERCENT LR SEED — a run, and its line: recipe, percent of STEPS, learning rate, seed, tokens, held-out loss.
settings() {
    case $1 in
    adamw) echo MODEL=gpt2-mini OPTIMIZER=adamw ;;
    muon) echo MODEL=gpt2-mini OPTIMIZER=muon ;;
    modern) echo MODEL=gpt2-modern-mini OPTIMIZER=muon ;;
    modern-*) echo MODEL=gpt2-modern-mini "$(echo "${1#modern-}" | tr + ' ')" ;; # modern-QK_NORM=0+LOGIT_CAP=0
    *) echo "tokens: no recipe $1" >&2; return 1 ;;
    esac
}
one() {
    local steps=$((STEPS * $2 / 100)) name="$1-$2-$3-$4" loss
    cut -f1-4 results.tsv | grep -qxF "$(printf '%s\t%s\t%s\t%s' "$1" "$2" "$3" "$4")" && return 0
    rm -f "$name.jsonl"
    # shellcheck disable=SC2046
    "$convoy" train $(settings "$1") TOKENIZER=tokenizer VOCAB=2048 CONTEXT=256 SEQ_LEN=256 BATCH_SIZE="$BATCH" DATA=train.txt \
        VAL_DATA=held.txt EVAL_EVERY="$steps" STEPS="$steps" LR="$3" LR_SCHEDULE=wsd WARMUP_STEPS=$((steps / 10)) SEED="$4" \
        WEIGHT_DECAY=0.1 GRAD_CLIP=1 CACHE_DIR=cache METRICS_FILE="$name.jsonl" LOG_LEVEL=warn >"$name.out" 2>&1 ||
        { echo "tokens: $name failed:" >&2; tail -n 5 "$name.out" >&2; return 1; }
    loss=$(jq -s 'map(select(.val_loss != null)) | last | .val_loss' "$name.jsonl")
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$2" "$3" "$4" $((steps * BATCH * 256)) "$loss" >>results.tsv
}

if [ "${1:-}" = one ]; then
    shift
    one "$@"
    exit
fi

die() { echo "tokens: $1" >&2; exit 1; }
[ -f "$text" ] || { echo "tokens: skipped, $text is not here: it is of the package dict-gcide; TEXT=FILE names the gzip of another text" >&2; exit 0; }
dir=${WORK:-$(mktemp -d "${TMPDIR:-/tmp}/convoy-tokens-XXXXXX")}
[ -n "${WORK:-}" ] || trap 'rm -rf "$dir"' EXIT
mkdir -p "$dir"
cd "$dir"
touch results.tsv
[ -s held.txt ] || { zcat <"$text" | awk 'int(NR / 100) % 600 == 300' >held.txt
    zcat <"$text" | awk 'int(NR / 100) % 600 != 300' >train.txt; }
[ -d tokenizer ] || "$convoy" train-tokenizer DATA=train.txt VOCAB=2048 OUT=tokenizer CACHE_DIR=cache >tokenizer.out ||
    die "no tokenizer"
self=$top/tests/bench/tokens.sh

percent() { case $1 in adamw) echo 100 ;; muon) echo 65 ;; *) echo 45 ;; esac; }
rates() { case $1 in adamw) echo ${ADAMW_LR:-5e-4 1e-3 2e-3} ;; *) echo ${MUON_LR:-8e-3 1.6e-2} ;; esac; }
# best RECIPE PERCENT — the learning rate of the lowest loss with the first seed.
best() {
    awk -F'\t' -v r="$1" -v p="$2" -v s="${seeds%% *}" '$1 == r && $2 == p && $4 == s && (lr == "" || $6 < low) { low = $6; lr = $3 }
        END { print lr }' results.tsv
}

for r in $only; do for lr in $(rates "$r"); do echo "$r $(percent "$r") $lr ${seeds%% *}"; done; done |
    xargs -P "$jobs" -L 1 bash "$self" one || die "a run failed"
for s in $seeds; do for r in $only; do echo "$r $(percent "$r") $(best "$r" "$(percent "$r")") $s"; done; done |
    xargs -P "$jobs" -L 1 bash "$self" one || die "a run failed"

# The table: of every recipe its share, learning rate, losses of the seeds; gates.
for r in $only; do
    p=$(percent "$r")
    awk -F'\t' -v r="$r" -v p="$p" -v lr="$(best "$r" "$p")" '$1 == r && $2 == p && $3 == lr {
            sum += $6; n++; if (n == 1 || $6 < low) low = $6; if ($6 > high) high = $6; tokens = $5 }
        END { printf "%s\t%s\t%s\t%d\t%d\t%.4f\t%.4f\t%.4f\n", r, p, lr, n, tokens, sum / n, low, high }' results.tsv
done >table.tsv
echo 'recipe, % of the tokens of AdamW, LR, seeds, tokens, held-out loss: mean, lowest, highest'
cat table.tsv
awk -F'\t' '$1 == "adamw" { limit = $6; next }
    limit && $6 > limit { printf "tokens: FAILED: %s with %s %% of the tokens: %s, AdamW: %s\n", $1, $2, $6, limit; bad = 1 }
    limit && $6 <= limit { printf "%s needs at most %.2f of the tokens of AdamW (%s <= %s)\n", $1, $2 / 100, $6, limit }
    END { exit bad }' table.tsv
