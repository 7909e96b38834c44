#!/bin/bash
# test_import_export — models go in and out as a user does it: from a Hugging Face folder (one file or several) and from llm.c
# model files to a checkpoint, then train and generate, then to a Hugging Face folder with the same bytes, or to a GGUF file.
. "$(dirname "$0")/lib.sh"
golden=$root/tests/golden
from=$golden/hf_export
refused() { local code=$1 words=$2; shift 2; work "$@"; ended "$code" "$words" && [ ! -s out ]; }
# sorted FILE — every tensor of a safetensors file: name, dtype, shape, bytes; in the order of names.
sorted() {
    perl -e 'local $/; open my $f, "<:raw", $ARGV[0] or die; my $b = <$f>; my $n = unpack "Q<", $b;
        my $h = substr $b, 8, $n; my %t;
        while ($h =~ /"([^"]+)":\{"dtype":"(\w+)","shape":\[([\d,]*)\],"data_offsets":\[(\d+),(\d+)\]\}/g) {
            (my $name = $1) =~ s/^transformer\.//;
            $t{$name} = "$2 $3 " . unpack "H*", substr $b, 8 + $n + $4, $5 - $4 }
        print "$_ $t{$_}\n" for sort keys %t' "$1"
}
same_tensors() { sorted "$1" >a.txt; shift; for f in "$@"; do sorted "$f"; done | sort >b.txt; sort a.txt | cmp -s - b.txt; }
holds_json() { jq -e "$2" "$1" >/dev/null || { echo "# $1: $2 is not so"; false; }; }

# --- Hugging Face folders, in and out
try 'a folder in several files imports' 0 -- import FROM=$from/lm TO=lm
ok 'one line tells what was made' shows '^lm/step-00000000  lm  lm  4\.45k parameters$'
try 'the checkpoint exports, folders above are made' 0 -- export FROM=lm TO=deep/er/lm
ok 'the same tensors, bit for bit' same_tensors deep/er/lm/model.safetensors $from/lm/*.safetensors
cp -r $from/lm with
jq -n '{version: "1.0", model: {type: "BPE", vocab: {a: 0, b: 1, ab: 2}, merges: ["a b"]}, pre_tokenizer: {type: "ByteLevel", add_prefix_space: false}, decoder: {type: "ByteLevel"}}' >with/tokenizer.json
work import FROM=with TO=kept
work export FROM=kept TO=with-out
ok 'tokenizer files that came with the model go with it' cmp with{,-out}/tokenizer.json
ok 'and no others' is "$(cd with-out && echo *)" 'config.json generation_config.json model.safetensors tokenizer.json'
ok 'config.json names the class and the dimensions' holds_json deep/er/lm/config.json \
    '.architectures == ["GPT2LMHeadModel"] and .n_layer == 2 and .n_head == 3 and .n_embd == 12 and .n_positions == 24
     and .vocab_size == 31 and .model_type == "gpt2" and .torch_dtype == "float32" and .tie_word_embeddings == true
     and .eos_token_id == null and .layer_norm_epsilon == 1e-5'
ok 'a small vocabulary brings no tokenizer' test ! -e deep/er/lm/vocab.json
work import FROM=$from/qa TO=qa && work export FROM=qa/step-00000000 TO=qa-hf/
ok 'a model for questions, by its checkpoint, with its head' same_tensors qa-hf/model.safetensors $from/qa/model.safetensors
ok 'is GPT2ForQuestionAnswering' holds_json qa-hf/config.json '.architectures == ["GPT2ForQuestionAnswering"]'
work import FROM=qa-hf TO=qa-again && work export FROM=qa-again TO=qa-hf-again
ok 'in and out again: the same file' cmp -s qa-hf/model.safetensors qa-hf-again/model.safetensors
mkdir empty && work export FROM=lm TO=empty
ok 'an empty folder may be filled' test -s empty/model.safetensors
ok 'nothing is left beside' is "$(ls -d ./*tmp* ./.*tmp* 2>/dev/null)" ''

csi=$(printf '\302\233') # one character that begins a command to a terminal
cp -r $from/lm "loud${csi}31m" && work import FROM="loud${csi}31m" TO=loud && work status loud
ok 'a name commands no terminal' is "$rc $(grep -c "$csi" out) $(grep -c '^model  *loud??31m' out)" '0 0 1'

for model in llama neox; do
    work import FROM=$root/tests/golden/$model TO=$model && work export FROM=$model TO=$model-hf
    marks=$(jq -c '[.bos_token_id, .eos_token_id]' "$root/tests/golden/$model/config.json")
    ok "$model: the tokens that begin and end a text come out again" is "$(jq -c '[.bos_token_id, .eos_token_id]' $model-hf/config.json)" "$marks"
    ok "$model: and in generation_config.json" is "$(jq -c '[.bos_token_id, .eos_token_id]' $model-hf/generation_config.json)" "$marks"
done
cp -r "$root/tests/golden/llama" listed && echo '{"eos_token_id": [2, 9, 5], "temperature": 0.6}' >listed/generation_config.json
work import FROM=listed TO=list && work export FROM=list TO=list-hf
ok 'a list of tokens that end a text comes out in both files' is "$(jq -c .eos_token_id list-hf/config.json list-hf/generation_config.json | tr '\n' ' ')" '[2,9,5] [2,9,5] '
cp -r $from/lm gpt2-listed && jq '.eos_token_id = [4, 8] | .bos_token_id = 3' $from/lm/config.json >gpt2-listed/config.json
work import FROM=gpt2-listed TO=gpt2-list && work export FROM=gpt2-list TO=gpt2-list-hf
ok 'that of a GPT-2 too' is "$(jq -c '[.bos_token_id, .eos_token_id]' gpt2-list-hf/config.json)" '[3,[4,8]]'
jq 'del(.bos_token_id, .eos_token_id)' "$root/tests/golden/llama/config.json" >config.json
cp -r "$root/tests/golden/llama" unmarked && rm -f unmarked/generation_config.json && cp config.json unmarked && work import FROM=unmarked TO=bare && work export FROM=bare TO=bare-hf
ok 'those that are not known are left out' holds_json bare-hf/config.json '(has("bos_token_id") or has("eos_token_id")) | not'
ok 'a checkpoint without them is as older versions wrote it' is "$(grep -c '"bos"' bare/step-00000000/manifest.json)" 0
cp -r "$root/tests/golden/llama" learnt-from && work import FROM=learnt-from TO=learnt
run MODEL=unmarked SEQ_LEN=8 BATCH_SIZE=2 STEPS=2 DATA=synthetic CHECKPOINT_DIR=learnt CHECKPOINT_EVERY=1
work export FROM=learnt TO=learnt-hf
ok 'a run that goes on from them keeps them' is "$rc $(jq -c '[.bos_token_id, .eos_token_id]' learnt-hf/config.json)" '0 [1,2]'
for embed in 12 14; do # HEAD_DIM is given, so any width trains
    run MODEL=llama-toy LAYERS=1 HEADS=4 KV_HEADS=2 HEAD_DIM=6 EMBED=$embed FFN=9 VOCAB=31 CONTEXT=16 SEQ_LEN=8 BATCH_SIZE=1 STEPS=1 DATA=synthetic CHECKPOINT_DIR=width$embed
    work export FROM=width$embed TO=width$embed-hf
    ok "a Llama of width $embed with 4 heads: a warning where transformers 5 refuses it" \
        is "$rc $(grep -c 'warn .*transformers 5 does not load .* width of 14 .* 4 heads' err)" "0 $((embed == 14))"
done

# --- llm.c
work import FROM=$from/lm_f32.bin TO=llmc && work export FROM=llmc TO=llmc-hf
ok 'a model file of llm.c holds the same model' same_tensors llmc-hf/model.safetensors $from/lm/*.safetensors
try 'its 16-bit kind imports too' 0 -- import FROM=$from/lm_bf16.bin TO=bf16

# --- what was imported trains and writes
small="SEQ_LEN=8 BATCH_SIZE=2 STEPS=3"
run MODEL=$from/lm $small METRICS_FILE=by_folder.jsonl
run MODEL=$from/lm_f32.bin $small METRICS_FILE=by_file.jsonl
ok 'MODEL=folder and MODEL=file.bin give the same losses' cmp -s <(losses by_folder.jsonl) <(losses by_file.jsonl)
run MODEL=$from/lm $small CHECKPOINT_DIR=lm RESUME=required METRICS_FILE=by_checkpoint.jsonl
ok 'so does the imported checkpoint' cmp -s <(losses by_folder.jsonl) <(losses by_checkpoint.jsonl)
ok 'without warnings' is "$(grep -c ' warn ' err)" 0
ok 'and training goes on from it' test -d lm/step-00000003
try 'with any optimiser' 0 -- train MODEL=$from/lm $small CHECKPOINT_DIR=llmc OPTIMIZER=sgd
work export FROM=lm TO=trained && work generate MODEL=trained PROMPT='!' TOKENS=5 SEED=3 && cp out trained.txt
work generate MODEL=lm PROMPT='!' TOKENS=5 SEED=3
ok 'a trained model exported writes what its checkpoint writes' cmp -s out trained.txt
ok 'its dropout is told' holds_json trained/config.json '.resid_pdrop == 0'
try 'a model file writes text' 0 -- generate MODEL=$from/lm_f32.bin PROMPT='!' TOKENS=5 SEED=3
work import FROM=$from/lm TO=head TASK=qa SEED=4
run MODEL=$from/lm TASK=qa SEED=4 $small METRICS_FILE=qa_a.jsonl
run MODEL=$from/lm TASK=qa SEED=4 $small CHECKPOINT_DIR=head METRICS_FILE=qa_b.jsonl
ok 'TASK=qa gives a language model a new head, the one training gives' cmp -s <(losses qa_a.jsonl) <(losses qa_b.jsonl)

# --- MODEL= a checkpoint of ours: its weights, a fresh optimiser
run MODEL=trained $small METRICS_FILE=by_export.jsonl
for from_ours in lm lm/step-00000003 "$PWD/lm/"; do
    rm -f by_ours.jsonl
    run MODEL=$from_ours $small METRICS_FILE=by_ours.jsonl
    ok "MODEL=${from_ours#"$PWD"} trains from its weights as its export does" cmp -s <(losses by_export.jsonl) <(losses by_ours.jsonl)
done
ok 'its path and step are told' says 'lm/step-00000003, step 3'
run MODEL=lm $small CHECKPOINT_DIR=child N_GPU_EACH_NODE=2 BATCH_SIZE=1 GLOBAL_BATCH=2 SHARD=full METRICS_FILE=by_two.jsonl
ok 'two workers that share the state do, too' near by_export.jsonl by_two.jsonl 1e-6
run MODEL=lm $small STEPS=4 CHECKPOINT_DIR=child N_GPU_EACH_NODE=2 BATCH_SIZE=1 GLOBAL_BATCH=2 SHARD=full
ok 'such a run goes on from its own checkpoint' is "$rc $(newest_step child)" "0 4"
rm -f qa_a.jsonl qa_b.jsonl
run MODEL=trained TASK=qa SEED=4 $small METRICS_FILE=qa_a.jsonl
run MODEL=lm TASK=qa SEED=4 $small METRICS_FILE=qa_b.jsonl
ok 'questions get a new head on it' cmp -s <(losses qa_a.jsonl) <(losses qa_b.jsonl)
work eval MODEL=trained VAL_DATA=synthetic SEQ_LEN=8 BATCH_SIZE=2 JSON=1 && jq .loss out >eval_a
work eval MODEL=lm VAL_DATA=synthetic SEQ_LEN=8 BATCH_SIZE=2 JSON=1 && jq .loss out >eval_b
ok 'eval measures it' cmp -s eval_a eval_b
ok 'a dimension that it has not is refused' refused 78 'but the weights of MODEL=lm have 12' train DATA=synthetic STATUS_PORT=0 MODEL=lm EMBED=64
ok 'synthetic questions have no answers to score' refused 78 'no answers to score' eval CHECKPOINT_DIR=qa VAL_DATA=synthetic
cp -r lm hurt
printf x | dd of=hurt/step-00000003/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
ok 'a damaged one is refused' refused 65 'hurt/step-00000003' train DATA=synthetic MODEL=hurt/step-00000003 $small STATUS_PORT=0
run MODEL=hurt $small METRICS_FILE=by_older.jsonl
ok 'or, as in resuming, passed over for the one before, with a warning' \
    is "$rc $(grep -c 'warn .*hurt/step-00000003' err) $(losses by_older.jsonl | cksum)" "0 1 $(losses by_folder.jsonl | cksum)"
printf x | dd of=hurt/step-00000000/model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
ok 'all damaged: refused' refused 65 'hurt holds 2 checkpoints, none of them valid' train DATA=synthetic MODEL=hurt $small STATUS_PORT=0
for cut in 0 20 300; do
    cp -r lm cut$cut && truncate -s $cut cut$cut/step-00000003/manifest.json
    ok "a manifest of $cut bytes: refused" refused 65 manifest train DATA=synthetic MODEL=cut$cut/step-00000003 $small STATUS_PORT=0
done
mkdir hollow
ok 'a folder with nothing in it: 66, with what it may be' refused 66 'without a checkpoint' train DATA=synthetic STATUS_PORT=0 MODEL=hollow $small

# --- GPT-2's tokenizer
run MODEL=gpt2-nano EMBED=4 HEADS=2 LAYERS=1 CONTEXT=16 SEQ_LEN=8 BATCH_SIZE=1 STEPS=1 CHECKPOINT_DIR=words
work export FROM=words TO=words-hf
ok 'the vocabulary of GPT-2 brings its files' is "$(ls words-hf | tr '\n' ' ')" \
    'config.json generation_config.json merges.txt model.safetensors special_tokens_map.json tokenizer.json tokenizer_config.json vocab.json '
ok 'vocab.json has every token' holds_json words-hf/vocab.json 'length == 50257 and .["<|endoftext|>"] == 50256 and .["Ġthe"] == 262'
ok 'merges.txt is the table' cmp -s words-hf/merges.txt "$root/assets/vocab.bpe"
ok 'tokenizer.json agrees with both' holds_json words-hf/tokenizer.json \
    '(.model.vocab | length) == 50257 and (.model.merges | length) == 50000 and .model.merges[0] == "Ġ t"'
ok 'generation_config.json knows where a text ends' holds_json words-hf/generation_config.json '.eos_token_id == 50256'

# --- GGUF files, out and in again
for model in lm llama neox; do
    work export FROM=$model/step-00000000 TO=files/$model-F32.gguf && work import FROM=files/$model-F32.gguf TO=$model-gguf
    ok "$model: out as F32 and in again, the same bits" cmp -s {$model,$model-gguf}/step-00000000/model.safetensors
done
ok 'the tokens that begin and end a text are the same' is "$(jq -c '[.model.bos, .model.eos]' llama-gguf/step-00000000/manifest.json)" \
    "$(jq -c '[.model.bos, .model.eos]' llama/step-00000000/manifest.json)"
try 'the type is F16 if the name does not say' 0 -- export FROM=llama TO=llama.gguf
ok 'one line tells it' shows '^llama\.gguf  LlamaForCausalLM  GGUF F16  77\.9k parameters  from llama/step-00000000$'
ok 'without a tokenizer, with a warning' says 'the file has no tokenizer'
work export FROM=llama TO=llama.bf16.GGUF
ok 'a type and an ending in any case' shows 'GGUF BF16'
work export FROM=neox TO=neox-Q8_0.gguf
ok 'eight bits, all rows in whole blocks' is "$rc $(grep -c 'are F16' err)" '0 0'
ok 'that need a third of the bytes' test $((3 * $(stat -c %s neox-Q8_0.gguf))) -lt "$(stat -c %s files/neox-F32.gguf)"
work export FROM=lm TO=lm-q8_0.gguf
ok 'rows that are no whole blocks are F16, as the log says' says 'matrices are F16: their rows are no multiple of the 32 elements'
work generate MODEL=lm PROMPT='!' TOKENS=5 SEED=3 && cp out by_run.txt
work export FROM=lm TO=lm-F32.gguf && work generate MODEL=lm-F32.gguf TOKENIZER=gpt2 PROMPT='!' TOKENS=5 SEED=3
ok 'generate writes from the file what it writes from the checkpoint' cmp -s out by_run.txt
work export FROM=words TO=words.gguf
printf "It's a  test of 12345 words — naïve?\n" >say.txt
"$convoy" tokenize TOKENIZER=words.gguf DATA=say.txt OUT=a.bin >out 2>err && "$convoy" tokenize TOKENIZER=gpt2 DATA=say.txt OUT=b.bin >out 2>err
ok "GPT-2's tokenizer in the file gives the ids of the built-in one" cmp -i 1024:1024 a.bin b.bin
"$convoy" train-tokenizer DATA="$root/assets/alice.txt" VOCAB=300 OUT=spoken >out 2>err
jq '.added_tokens += [{"id": 300, "content": "<|im_start|>"}, {"id": 301, "content": "<|im_end|>"} | . + {special: true}]' spoken/tokenizer.json >t.json && mv t.json spoken/tokenizer.json
template="{% for m in messages %}<|im_start|>{{ m['role'] }}
{{ m['content'] + '<|im_end|>' }}é
{% endfor %}"
jq --arg t "$template" '.chat_template = $t' spoken/tokenizer_config.json >config.json && mv config.json spoken/tokenizer_config.json
run MODEL=llama-toy LAYERS=1 HEADS=2 KV_HEADS=1 HEAD_DIM=6 EMBED=12 FFN=9 VOCAB=310 CONTEXT=64 SEQ_LEN=8 BATCH_SIZE=1 STEPS=1 DATA=say.txt TOKENIZER=spoken CHECKPOINT_DIR=speaks
work export FROM=speaks TO=speaks.gguf
ok 'a tokenizer.json goes into the file' is "$rc $(grep -c warn err)" '0 0'
"$convoy" tokenize TOKENIZER=speaks.gguf DATA=say.txt OUT=a.bin >out 2>err && "$convoy" tokenize TOKENIZER=spoken DATA=say.txt OUT=b.bin >out 2>err
ok 'and gives the same ids' cmp -i 1024:1024 a.bin b.bin
work import FROM=speaks.gguf TO=heard && work export FROM=heard TO=heard-hf
ok 'a chat template comes out of a GGUF file into a folder' is "$(cat heard-hf/chat_template.jinja)" "$template"
work export FROM=heard TO=heard.gguf && work import FROM=heard.gguf TO=again && work export FROM=again TO=again-hf
ok 'and out of a second one' cmp -s {heard,again}-hf/chat_template.jinja
echo '{"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes."}]}' >talk.jsonl
for family in zephyr chatml; do
    run MODEL=speaks TASK=chat DATA=talk.jsonl TOKENIZER=spoken CHAT_TEMPLATE=$family SEQ_LEN=48 BATCH_SIZE=1 STEPS=1 CHECKPOINT_DIR=talks-$family
    work export FROM=talks-$family TO=talks-$family-hf && work export FROM=talks-$family TO=talks-$family.gguf && work import FROM=talks-$family.gguf TO=talks-$family-in
    for where in talks-$family-hf talks-$family.gguf talks-$family-in; do
        setting=MODEL
        [ $where = talks-$family-in ] && setting=CHECKPOINT_DIR
        work chat $setting=$where PROMPT=Hi TOKENS=2
        ok "$where has the template $family of the run, not the tokenizer's own" says "chat template $family, recognised in"
    done
    ok "$family: the end of a turn ends a text" is "$(jq -c .eos_token_id talks-$family-hf/generation_config.json)" "$([ $family = zephyr ] && echo 299 || echo '[299,301]')"
    ok "$family: in the GGUF file, too" is "$(jq -c .model.eos talks-$family-in/step-00000000/manifest.json)" "$([ $family = zephyr ] && echo 299 || echo '[299,301]')"
done

ok 'an ending that is no format, and those that are' refused 78 'ends in .safetensors, which is no format of export; end it in .gguf' export FROM=lm TO=x.safetensors
ok 'a type that is not written' refused 78 'type Q4_K_M cannot be written' export FROM=lm TO=x-Q4_K_M.gguf
ok 'nor this one' refused 78 'type fp8 cannot be written' export FROM=lm TO=x.fp8.gguf
try 'a version is no ending' 0 -- export FROM=lm TO=v/lm2.5-0.5b.v2
try 'a slash makes any name a folder' 0 -- export FROM=lm TO=v/my.model/
ok 'both are folders' test -s v/lm2.5-0.5b.v2/config.json -a -s v/my.model/config.json
ok 'a file that exists stays as it is' refused 78 'exists, as a file; choose a new file' export FROM=lm TO=llama.gguf
ok 'a model for questions has no GGUF form' refused 78 'GGUF has no keys for a head that answers questions' export FROM=qa TO=x.gguf
ok 'nothing is left beside the files' is "$(ls -d ./*.tmp* files/*.tmp* 2>/dev/null)" ''

# --- what cannot be
ok 'no FROM' refused 78 'set FROM' import TO=x
ok 'no TO' refused 78 'set TO' export FROM=lm
ok 'FROM that is not there' refused 66 'does not exist' import FROM=nothing TO=x
ok 'FROM that is a checkpoint' refused 66 'FROM=lm is a checkpoint of Convoy already' import FROM=lm TO=x
ok 'FROM that is a folder of other files' refused 66 'without config.json' import FROM=hollow TO=x
ok 'a token file' refused 65 'token file' import FROM=$golden/lm/tokens.bin TO=x
ok 'a run is not mixed with an import' refused 78 'holds checkpoints already' import FROM=$from/qa TO=lm
ok 'a folder of somebody stays as it is' refused 78 'not empty' export FROM=lm TO=qa-hf
ln -s elsewhere link
ok 'a link is not followed' refused 78 'symbolic link' export FROM=lm TO=link
ok 'no checkpoint, but a model to import' refused 66 'no valid checkpoint but a model made elsewhere' export FROM=qa-hf TO=x
ok 'no folder to import, but a checkpoint' refused 66 'is a checkpoint of Convoy already' import FROM=lm/step-00000003 TO=x
ok 'no folder of checkpoints' refused 66 'does not exist' export FROM=nothing TO=x
ok 'no name' refused 78 'no name' export FROM=lm TO=..
cp -r $from/lm nan && perl -e 'open my $f, "+<:raw", "nan/model-00002-of-00004.safetensors"; seek $f, -4, 2; print $f "\0\0\xc0\x7f"'
ok 'weights that are not finite' refused 65 'not finite' import FROM=nan TO=x
ok 'which tensor, and how many' says '1 of the '
mkdir mine && echo mine >mine/note && cp with/tokenizer.json nan
ok 'found while it is written' refused 65 'not finite' import FROM=nan TO=mine
ok 'what it wrote is removed, what was there is not' is "$(cat mine/note) $(find mine -name 'step-*' -o -name 'tokenizer*')" 'mine '
# one import at a time: what another process has is neither written nor removed
mkdir -p taken/tokenizer && echo theirs >taken/tokenizer/tokenizer.json && touch taken/.lock
rc=0; flock taken/.lock "$convoy" import FROM=with TO=taken >out 2>err || rc=$?
in_use() { is "$rc" 78 && says 'TO cannot be used: checkpoint folder taken is in use by another process'; }
ok 'a folder in which another process writes is refused' in_use
ok 'its files stay' is "$(cat taken/tokenizer/tokenizer.json)" theirs
both() { # both — two imports that start at once: one ends well, the other is refused
    local round one two
    for round in 1 2 3 4 5 6 7 8; do
        one=0 two=0
        "$convoy" import FROM=with TO=at-once >out 2>err1 & local pid=$!
        "$convoy" import FROM=with TO=at-once >out2 2>err2 || two=$?
        wait $pid || one=$?
        is "$(printf '%s\n' $one $two | sort -n | xargs)" '0 78' || return 1
        grep -qE 'at-once is in use by|holds checkpoints already' err1 err2 || { cat err1 err2; return 1; }
        cmp -s with/tokenizer.json at-once/tokenizer/tokenizer.json && "$convoy" export FROM=at-once TO=at-once-hf >out 2>&1 || { echo "# round $round: files are gone"; return 1; }
        rm -r at-once at-once-hf
    done
}
ok 'of two imports at once one is whole, the other is refused' both
# what would change a result, or be left out of it, is refused
llama=$golden/llama
cp -r $llama extra && perl -e 'open my $f, "+<:raw", "extra/model.safetensors"; local $/; my $b = <$f>; my $n = unpack "Q<", $b; my $h = substr $b, 8, $n;
    my $at = length($b) - 8 - $n; $h =~ s/\}\s*$/,"model.layers.0.self_attn.q_proj.bias":{"dtype":"F32","shape":[2],"data_offsets":[$at,@{[$at + 8]}]}}/;
    seek $f, 0, 0; print $f pack("Q<", length $h), $h, substr($b, 8 + $n), "\0" x 8'
ok 'a tensor that Llama does not have' refused 65 'tensor model.layers.0.self_attn.q_proj.bias does not belong to Llama' import FROM=extra TO=x
ok 'by generate, too' refused 65 'q_proj.bias does not belong to Llama' generate MODEL=extra PROMPT=a TOKENIZER=gpt2
work train MODEL=extra DATA=synthetic STEPS=1 BATCH_SIZE=1 SEQ_LEN=8 STATUS_PORT=0
ok 'by train, too' is "$rc $(grep -c 'q_proj.bias does not belong to Llama' err)" '65 1'
try 'IGNORE_TENSORS=1 leaves it out' 0 -- import FROM=extra TO=without IGNORE_TENSORS=1
try 'for training, too' 0 -- train MODEL=extra DATA=synthetic STEPS=1 BATCH_SIZE=1 SEQ_LEN=8 STATUS_PORT=0 IGNORE_TENSORS=1
cp -r $llama theta && jq '.rope_theta = 500000' $llama/config.json >theta/config.json
ok 'two thetas' refused 65 '"rope_theta" is 500000, but "rope_theta" in rope_parameters is 10000' import FROM=theta TO=x
cp -r $llama beyond && jq '.eos_token_id = 257' $llama/config.json >beyond/config.json
ok 'an end of text outside the vocabulary' refused 65 '"eos_token_id" is 257, outside the vocabulary' import FROM=beyond TO=x
cp -r $llama later && echo '{"eos_token_id": [2, 300]}' >later/generation_config.json
ok 'in generation_config.json' refused 65 'generation_config.json: "eos_token_id" is 300, outside the vocabulary' import FROM=later TO=x
cp -r $from/lm total && sed -i 's/"total_size": 17808/"total_size": 17804/' total/model.safetensors.index.json
ok 'a wrong total_size' refused 65 '"total_size" is 17804, but the tensors of its 4 files have 17808 bytes' import FROM=total TO=x
cp -r $from/lm odd && echo '{"version": "1.0"}' >odd/tokenizer.json
ok 'a tokenizer that cannot be read' refused 65 'the tokenizer of odd cannot be read' import FROM=odd TO=odd-in
ok 'and nothing is left' test ! -e odd-in
work import FROM=odd TO=odd-in TOKENIZER=with/tokenizer.json
ok 'TOKENIZER is kept instead' is "$rc $(cmp with/tokenizer.json odd-in/tokenizer/tokenizer.json && echo same)" '0 same'
cp -r $from/lm pointer && echo 'version https://git-lfs.github.com/spec/v1' >pointer/generation_config.json && work import FROM=pointer TO=pointed
ok 'a generation_config.json that cannot be read costs a warning' is "$rc $(grep -c 'warn .*pointer/generation_config.json is a Git LFS pointer.* come from config.json instead' err)" '0 2' # read for dimensions and for weights
cp -r $from/lm fewer && sed -i 's/"n_layer": 2/"n_layer": 1/' fewer/config.json
ok 'more layers than the config says' refused 65 'is of layer 1, but config.json says n_layer 1' import FROM=fewer TO=x
perl -e 'binmode STDOUT; print pack "l<256 v*", 20240520, 1, 100, (0) x 253, map { $_ % 31 } 1 .. 100' >ids.bin
run MODEL=fewer DATA=ids.bin STEPS=1 SEQ_LEN=16
ok 'nor are they trained' is "$rc $(grep -c 'correct n_layer (2?)' err)" '65 1'
cp -r $from/lm large && sed -i 's/"n_embd": 12/"n_embd": 48/' large/config.json
ok 'dimensions that the weights do not have' refused 65 'expected (31, 48)' import FROM=large TO=x
sed -i 's/"n_embd": 48/"n_embd": 1048575/; s/"n_head": 3/"n_head": 1023/' large/config.json
ok 'nor such that no memory has' refused 65 'expected (31, 1048575)' import FROM=large TO=x
cp -r $from/lm gone && rm gone/model-00003-of-00004.safetensors
ok 'a missing file of several, by name' refused 65 'model-00003-of-00004.safetensors, which is not there' import FROM=gone TO=x
cp -r $from/lm out-of && sed -i 's|model-00003|../model-00003|' out-of/model.safetensors.index.json
ok 'an index that points elsewhere' refused 65 'no plain file name' import FROM=out-of TO=x
ok 'dimensions of a model file are not to be argued with' refused 78 'LAYERS=4' train MODEL=$from/lm_f32.bin LAYERS=4 STATUS_PORT=0
if mkdir mnt && mount -t tmpfs -o size=16k none mnt 2>/dev/null; then
    ok 'a full disk ends with 74 and leaves nothing' refused 74 'no space' export FROM=lm TO=mnt/x
    ok 'nothing, indeed' is "$(ls -A mnt)" ''
    ok 'so does a GGUF file' refused 74 'no space' export FROM=lm TO=mnt/x.gguf
    ok 'and leaves nothing, either' is "$(ls -A mnt)" ''
else
    skip 'a full disk ends with 74 and leaves nothing' 'no right to mount'
fi
# every way in which the disk may fail on the way out: EIO at each call of a kind, one after the other
work export FROM=lm/step-00000003 TO=whole.gguf
is_whole() {
    [ "$1" = bad.gguf ] && { cmp -s bad.gguf whole.gguf; return; }
    cmp -s eio/model.safetensors trained/model.safetensors && cmp -s eio/config.json trained/config.json && [ -e eio/generation_config.json ]
}
fail_at() { # fail_at CALL TO — count in $failures, or what went wrong
    local at to=$2 codes='0 74'
    [ "$1" = openat ] && codes='0 65 66 74 127' # the program's libraries and the checkpoint are opened too
    failures=0
    for ((at = 1; at < 200; at++)); do
        rc=0
        ASAN_OPTIONS=detect_leaks=0 strace -f -qq -o trace -e trace=$1 -e inject=$1:error=EIO:when=$at "$convoy" export FROM=lm/step-00000003 TO="$to" >out 2>err || rc=$?
        grep -q INJECTED trace || break
        [[ " $codes " = *" $rc "* ]] || { echo "# $1 $at: exit code $rc"; return 1; }
        { [ $rc != 0 ] && [ ! -e "$to" ]; } || is_whole "$to" || { echo "# $1 $at: exit code $rc, $to is not whole"; return 1; }
        [ -z "$(ls -d "$to".* 2>/dev/null)" ] || { echo "# $1 $at: left $(ls -d "$to".*)"; return 1; }
        [ $rc = 0 ] || failures=$((failures + 1))
        rm -rf "$to"
    done
    [ $rc = 0 ] && is_whole "$to" && rm -rf "$to" && [ $failures -gt 0 ] && echo "# $failures calls of $1 failed"
}
for call in mkdir openat pwrite64 sync_file_range fsync rename; do
    for to in eio bad.gguf; do
        case $call,$to in mkdir,bad.gguf | openat,bad.gguf) continue ;; esac # the same calls as for a folder
        if strace -qq -o trace true 2>/dev/null; then
            ok "$to, EIO at any $call: a refusal that leaves nothing half" fail_at $call $to
        else
            skip "$to, EIO at any $call: a refusal that leaves nothing half" 'strace may not trace here'
        fi
    done
done
ok 'refusals made nothing' test ! -e x
done_testing
