#!/bin/bash
# test_chat — TASK=chat: conversations of every form, on every mesh, packed, resumed and evaluated; the loss counts answers only; data and
# templates that do not fit are refused with file, line and remedy. tests/chat compares the ids with the package transformers.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
model="MODEL=gpt2-nano POSITIONS=rope LAYERS=2 HEADS=2 EMBED=32 VOCAB=50257 CONTEXT=128 BATCH_SIZE=2 GLOBAL_BATCH=8 SEQ_LEN=64 LR=3e-3 LR_SCHEDULE=constant"
chat="$model TASK=chat CHAT_TEMPLATE=zephyr"
# 120 conversations of one or two turns: a form for each file.
perl -e '
    my @form = ("messages", "conversations", "prompt", "instruction");
    for my $f (@form) {
        open my $out, ">", "$f.jsonl";
        for my $i (0 .. 119) {
            my ($q, $a) = ("what is " . ($i % 13) . " and " . ($i % 7), join " ", map { "word" . ($i * $_ % 17) } 1 .. 2 + $i % 9);
            print $out $f eq "messages" ? qq({"messages":[{"role":"user","content":"$q"},{"role":"assistant","content":"$a"}]})
                : $f eq "conversations" ? qq({"conversations":[{"from":"human","value":"$q"},{"from":"gpt","value":"$a"}],"id":"$i"})
                : $f eq "prompt" ? qq({"prompt":"$q","completion":"$a"}) : qq({"instruction":"$q","input":"","output":"$a"}), "\n";
        }
    }
    open my $out, ">", "turns.jsonl";
    print $out qq({"messages":[{"role":"system","content":"be kind"},{"role":"user","content":"a $_"},{"role":"assistant","content":"b $_"},)
        . qq({"role":"user","content":"c"},{"role":"assistant","content":"d"}]}\n) for 1 .. 60'

# 1. What is trained is shown, and learned.
"$convoy" tokenize DATA=turns.jsonl CHAT_TEMPLATE=zephyr SHOW=1 >out 2>err
want='<|system|>
be kind<|endoftext|>
<|user|>
a 1<|endoftext|>
<|assistant|>
⟦b 1<|endoftext|>⟧
<|user|>
c<|endoftext|>
<|assistant|>
⟦d<|endoftext|>⟧'
ok "SHOW=1 prints the first conversation with its trained tokens" is "$(head -n 10 out)" "$want"
"$convoy" tokenize DATA=turns.jsonl CHAT_TEMPLATE=zephyr LOSS_ON=last SHOW=1 >out 2>err
ok "LOSS_ON=last: only the last answer" is "$(grep -c '⟦' out) $(tail -n 3 out | head -n 1)" "1 ⟦d<|endoftext|>⟧"
perl -e 'print qq({"prompt":"q","completion":"@{["word " x 3000]}"}\n)' >tall.jsonl
"$convoy" tokenize DATA=tall.jsonl CHAT_TEMPLATE=zephyr SHOW=1 >out 2>err
ok "SHOW=1 prints a long conversation to its end" is "$(tail -n 1 out)" "-- conversation 1: 3019 tokens, 3002 trained"
run $chat DATA=messages.jsonl STEPS=60 METRICS_FILE=one.jsonl CHECKPOINT_DIR=one CHECKPOINT_EVERY=30 LOG_LEVEL=info
ok "it learns" holds one.jsonl 'length == 60 and .[59].loss < 0.5 * .[0].loss'
ok "the log counts conversations and trained tokens" grep -qE '120 conversations, 0 cut, 0 without an answer left out, [0-9.]+ % of their tokens trained' err
ok "the log shows the first sample" grep -qE 'the first sample, .*<\|assistant\|>\\n⟦word.*<\|endoftext\|>⟧' err
head -n 20 one.jsonl >first.jsonl

# 2. The forms of a conversation are equal, bit for bit.
for form in conversations prompt instruction; do
    run $chat DATA=$form.jsonl STEPS=20 METRICS_FILE=$form.out
    ok "$form: the same losses" is "$(losses $form.out)" "$(losses first.jsonl)"
done
if there zstd; then
    zstd -q messages.jsonl
    run $chat DATA=messages.jsonl.zst STEPS=20 METRICS_FILE=zst.out
    ok "packed by zstd: the same losses" is "$(losses zst.out)" "$(losses first.jsonl)"
else
    skip "packed by zstd: the same losses" "no zstd here"
fi
run $chat DATA=messages.jsonl:0.7,turns.jsonl:0.3 STEPS=2 LOG_LEVEL=info
ok "a mixture counts all its conversations" says "(mixture of 2): 180 conversations, 0 cut"

# 3. The loss does not depend on the mesh, nor on the division into micro-batches; nor do the counts of trained tokens and the accuracy.
counts() { jq -c 'select(.trained_tokens).trained_tokens' "$1" | tr '\n' ' '; }
accuracy() { jq -c 'select(.val_accuracy).val_accuracy' "$1"; }
held="VAL_DATA=prompt.jsonl EVAL_EVERY=20"
run $chat DATA=messages.jsonl STEPS=20 $held METRICS_FILE=held.jsonl CHECKPOINT_DIR=held
accuracy=$(accuracy held.jsonl) counts=$(counts held.jsonl)
ok "each step has trained tokens" test "$(wc -w <<<"$counts")" = 20
ok "the accuracy of held-out answers is neither none nor all" holds held.jsonl '.[-1].val_accuracy | . > 0.05 and . < 0.95'
for mesh in "N_GPU_EACH_NODE=2" "N_GPU_EACH_NODE=2 TP=2" "N_GPU_EACH_NODE=2 PP=2" "N_GPU_EACH_NODE=2 CP=2" \
    "N_GPU_EACH_NODE=2 SHARD=full RECOMPUTE=attention" "BATCH_SIZE=1" "BATCH_SIZE=8"; do
    losses_near first.jsonl 1e-5 "$mesh: losses within 1e-5 of one worker's" $chat DATA=messages.jsonl STEPS=20 $mesh $held
    ok "$mesh: the same trained tokens and accuracy" is "$(counts near.jsonl) $(accuracy near.jsonl)" "$counts $accuracy"
done
for ranks in 1 2 4; do
    run $chat DATA=messages.jsonl STEPS=10 EXACT=layout VIRTUAL_SHARDS=4 N_GPU_EACH_NODE=$ranks METRICS_FILE=exact$ranks.out
done
ok "EXACT=layout counts the same" is "$(counts exact4.out)" "$(counts held.jsonl | cut -d ' ' -f 1-10) "
run $chat DATA=messages.jsonl STEPS=20 $held N_GPU_EACH_NODE=2 LOCAL_STEPS=5 METRICS_FILE=local.out
ok "LOCAL_STEPS counts the same" is "$(counts local.out)" "$counts"
ok "EXACT=layout: 1, 2 and 4 workers have the same bits" is "$(losses exact2.out) $(losses exact4.out)" "$(losses exact1.out) $(losses exact1.out)"
# The sum over the data: GLOBAL_BATCH=120 is one epoch, whose tokens `tokenize` counts one conversation at a time.
want=$("$convoy" tokenize DATA=messages.jsonl CHAT_TEMPLATE=zephyr SHOW=120 2>err | perl -ne '$n += $1 if /^-- conversation \d+: \d+ tokens, (\d+) trained/; END { print $n }')
run $chat DATA=messages.jsonl GLOBAL_BATCH=120 STEPS=1 CHECKPOINT_DIR=epoch METRICS_FILE=epoch.out
ok "one epoch trains the tokens of all answers" is "$(counts epoch.out)" "$want "
verify() { rc=0; "$convoy" verify "$@" >out 2>err || rc=$?; }
verify held JSON=1
ok "verify adds up the ledger's tokens" is "$rc $(jq .trained_tokens out)" "0 ${counts##*[0-9] }$(jq -s 'map(.trained_tokens // empty) | last' held.jsonl)"
verify held
ok "verify shows them" shows '^trained +[0-9]+ tokens, in the applied steps$'
cp -r held forged # one number is changed
perl -ni -e 's/"trained":(\d+)/q("trained":) . ($1 + 1)/e if $. == 5; print' forged/ledger.jsonl
verify forged
ok "a changed line is found" is "$rc $(grep -c 'was changed' err)" "65 1"

run $chat DATA=turns.jsonl STEPS=20 CHECKPOINT_DIR=other
cp other/ledger.jsonl forged
verify forged
ok "other numbers of trained tokens than the checkpoint's are found" is "$rc $(grep -c 'trained tokens, but the checkpoint of step 20 has' err)" "1 1"

# 4. Packed conversations do not know each other, and give the loss of single ones.
run $chat DATA=messages.jsonl GLOBAL_BATCH=120 BATCH_SIZE=8 STEPS=1 SHUFFLE=0 METRICS_FILE=single.out
run $chat DATA=messages.jsonl PACK_DOCUMENTS=1 ATTENTION_MASK=document STEPS=20 METRICS_FILE=packed.out LOG_LEVEL=info
packed=$(sed -nE 's/.* ([0-9]+) samples of 64 tokens.*/\1/p' err | head -n 1)
ok "PACK_DOCUMENTS=1 has fewer samples" test "${packed:-999}" -lt 90
run $chat DATA=messages.jsonl PACK_DOCUMENTS=1 ATTENTION_MASK=document GLOBAL_BATCH="$packed" BATCH_SIZE=1 STEPS=1 SHUFFLE=0 METRICS_FILE=together.out
ok "the loss of all conversations together is that of single ones" near single.out together.out 1e-5
# Learned positions, of GPT-2, begin anew in each conversation, on every mesh.
learned="$chat POSITIONS=learned DATA=messages.jsonl SHUFFLE=0 STEPS=1"
mask="PACK_DOCUMENTS=1 ATTENTION_MASK=document"
run $learned GLOBAL_BATCH=120 BATCH_SIZE=8 METRICS_FILE=single.out
run $learned $mask GLOBAL_BATCH="$packed" BATCH_SIZE=1 METRICS_FILE=together.out
ok "learned positions: the loss together is that of single ones" near single.out together.out 1e-6
run $learned PACK_DOCUMENTS=1 GLOBAL_BATCH="$packed" BATCH_SIZE=1 METRICS_FILE=known.out
apart() { ! near "$@"; }
ok "which it is not if they know each other" apart single.out known.out 1e-5
run $learned $mask STEPS=20 METRICS_FILE=learned.out
for mesh in "N_GPU_EACH_NODE=2" "N_GPU_EACH_NODE=2 TP=2" "N_GPU_EACH_NODE=2 PP=2" "N_GPU_EACH_NODE=2 CP=2" "N_GPU_EACH_NODE=2 SHARD=full" "BATCH_SIZE=1"; do
    losses_near learned.out 1e-5 "learned positions, $mesh: losses within 1e-5 of one worker's" $learned $mask STEPS=20 $mesh
done
for ranks in 1 2; do
    run $learned $mask STEPS=10 EXACT=layout VIRTUAL_SHARDS=4 SENTINEL_EVERY=2 N_GPU_EACH_NODE=$ranks METRICS_FILE=exact$ranks.out
done
ok "learned positions, EXACT=layout: the same bits, and shards computed twice agree" is "$rc $(losses exact2.out)" "0 $(losses exact1.out)"

# 5. Resumed and evaluated.
cp -r one half && rm -r half/step-00000060
run $chat DATA=messages.jsonl STEPS=60 METRICS_FILE=two.jsonl CHECKPOINT_DIR=half
tail -n 30 one.jsonl >last.jsonl
ok "a resumed run has the same losses and counts, bit for bit" is "$(losses two.jsonl)" "$(losses last.jsonl)"
verify half
ok "and verify the same tokens" is "$rc $(grep '^trained' out)" "0 $(verify one; grep '^trained' out)"
echo '{"input_ids":[1,2,3,4],"labels":[-100,2,3,-100]}' >joined.jsonl
printf '{"input_ids":[%s],"labels":[%s]}\n' 1,2 -100,2 3,4 3,-100 >apart.jsonl
run $chat DATA=joined.jsonl STEPS=1 GLOBAL_BATCH=1 BATCH_SIZE=1 CHECKPOINT_DIR=ends
run $chat DATA=apart.jsonl STEPS=2 GLOBAL_BATCH=1 BATCH_SIZE=1 CHECKPOINT_DIR=ends
ok "other ends of conversations, with the same tokens, are other data" says "DATA differs from the data of checkpoint"
run $chat DATA=messages.jsonl STEPS=61 CHECKPOINT_DIR=half LOSS_ON=last
ok "resumed with another LOSS_ON: it is named" says "LOSS_ON was assistant, is last"
loss_of() { "$convoy" eval CHECKPOINT_DIR=one SEQ_LEN=64 JSON=1 "$@" 2>err | jq .loss; }
answers=$(loss_of TASK=chat CHAT_TEMPLATE=zephyr VAL_DATA=messages.jsonl) all=$(loss_of TASK=chat CHAT_TEMPLATE=zephyr LOSS_ON=all VAL_DATA=messages.jsonl)
ok "eval: the loss of answers, below that of all tokens" test "$(jq -n "$answers < $all")" = true
"$convoy" eval CHECKPOINT_DIR=held SEQ_LEN=64 BATCH_SIZE=2 VAL_DATA=prompt.jsonl TASK=chat JSON=1 >out 2>err
ok "eval: the accuracy of the run, and the answers' tokens" is "$(jq -c '[.accuracy, .tokens]' out)" "[$accuracy,$("$convoy" tokenize DATA=prompt.jsonl CHAT_TEMPLATE=zephyr SHOW=120 2>err |
    perl -ne '$n += $1 if /, (\d+) trained/; END { print $n }')]"
"$convoy" eval CHECKPOINT_DIR=held SEQ_LEN=64 VAL_DATA=turns.jsonl TASK=chat >out 2>err
ok "eval shows it" shows '^loss [0-9.]+  perplexity [0-9.e+]+  accuracy [0-9.]+%  tokens '

# 6. A node without data has node 0's conversations.
mkdir a b
cp messages.jsonl a
far() { (cd "$2" && XDG_CACHE_HOME=$PWD/cache exec "$convoy" train $quiet $meeting NODE_ID=$1 $chat N_NODES=2 STEPS=10 "${@:3}") >out.$1 2>err.$1 & node[$1]=$!; track; }
far 1 b DATA=
far 0 a DATA=messages.jsonl METRICS_FILE=nodes.out
finish_nodes 2
head -n 10 one.jsonl >ten.jsonl
ok "two nodes, one with data: the losses of one" near ten.jsonl a/nodes.out 1e-5

# 7. convoy chat answers as it learned, turn by turn.
turn='{"role":"user","content":"%s"},{"role":"assistant","content":"%s"}'
printf "{\"messages\":[$turn,$turn]}\n" ping 'pong one two' who 'me myself' >two.jsonl
run $chat DATA=two.jsonl STEPS=150 BATCH_SIZE=1 GLOBAL_BATCH=1 LR=1e-2 CHECKPOINT_DIR=two
talk() { "$convoy" chat CHECKPOINT_DIR=two CHAT_TEMPLATE=zephyr TEMPERATURE=0 "$@" 2>err; }
ok "PROMPT is a question" is "$(talk PROMPT=ping)" "pong one two"
ok "each line of a pipe is a turn" is "$(printf 'ping\r\n\nwho\n' | talk)" "pong one two
me myself"
ok "a checkpoint records its template" is "$("$convoy" chat CHECKPOINT_DIR=two TEMPERATURE=0 PROMPT=ping 2>err)" "pong one two"
ok "TOKENS limits an answer" is "$(talk PROMPT=ping TOKENS=1)" "p"
talk PROMPT=ping CHAT_TEMPLATE=auto >out
ok "chat without a template" is "$? $(grep -cF 'has no chat_template; set CHAT_TEMPLATE' err)" "78 1"

run $chat DATA=two.jsonl STEPS=151 BATCH_SIZE=1 GLOBAL_BATCH=1 CHECKPOINT_DIR=two SAMPLE_EVERY=151 PROMPT=ping TEMPERATURE=0
ok "SAMPLE_EVERY shows an answer, to the end of its turn" shows 'sample "ping\\npong one two"$'
ok "the run ends with how to talk to the model" shows "to talk: .* chat CHECKPOINT_DIR='two'"
made=$(grep -rl --include='*.bin' . "${XDG_CACHE_HOME:-$PWD/cache}" 2>/dev/null | head -n 1)
"$convoy" train $quiet $model DATA="$made" STEPS=1 >out 2>err
ok "a cached file of conversations is not text" is "$? $(grep -c 'the file was made for TASK=chat' err)" "78 1"

# 8. The status page's numbers.
port=$(free_port)
begin_served $chat DATA=messages.jsonl STEPS=100000000 VAL_DATA=prompt.jsonl EVAL_EVERY=5
wait_for 60 status_has '.val_accuracy > 0 and .trained_tokens > 0'
ok "/status has the trained tokens, their share and the accuracy" holds status.json '.[0] | .trained_tokens < .tokens and .trained_share > 0 and .trained_share < 0.5 and .val_accuracy > 0'
get /metrics >metrics
for name in trained_tokens_total trained_tokens_ratio validation_accuracy_ratio; do
    ok "/metrics has $name" grep -q "^convoy_$name [0-9]" metrics
done
kill -TERM "$pid"
finish

# 9. What does not fit is refused.
refused() { # NAME CODE TEXT SETTING…
    run $chat STEPS=5 "${@:4}"
    ok "$1" is "$? $(grep -cF -- "$3" err)" "$2 1"
}
code() { # NAME CODE TEXT SETTING… — the exit code and the words of a refusal
    "$convoy" train $quiet $chat STEPS=5 "${@:4}" >out 2>err
    ok "$1" is "$? $(grep -qF -- "$3" err && echo said)" "$2 said"
}
echo 'plain text' >t.txt
code "synthetic data" 78 "synthetic data have no conversations" DATA=synthetic
code "samples of answers without a question" 78 "set PROMPT to the question" DATA=messages.jsonl SAMPLE_EVERY=5
code "plain text" 78 "TASK=chat reads conversations as JSON lines" DATA=t.txt
echo '{"text": "a"}' >text.jsonl
code "texts" 65 "text.jsonl, line 1: not a conversation" DATA=text.jsonl
(head -n 3 messages.jsonl; echo '{"messages":[{"role":"tool","content":"x"}]}') >tool.jsonl
code "a role that is unknown, with file and line" 65 'tool.jsonl, line 4: message 1 has the role "tool"' DATA=tool.jsonl
(head -n 3 messages.jsonl; head -n 1 prompt.jsonl) >mixed.jsonl
code "two forms in a file" 65 "mixed.jsonl, line 4: a record with prompt and completion among records with messages" DATA=mixed.jsonl
(head -n 2 messages.jsonl; echo '{"messages":[{"role":"user","content":"x"}]}') >mute.jsonl
code "no answer" 65 "mute.jsonl, line 3: the conversation has no message of the assistant" DATA=mute.jsonl
printf '{"prompt":"\xff","completion":"a"}\n' >utf8.jsonl
code "bytes that are not UTF-8" 65 "utf8.jsonl, line 1: " DATA=utf8.jsonl
printf '' >empty.jsonl
code "an empty file" 65 "empty.jsonl" DATA=empty.jsonl
echo '{"input_ids":[1,2,3],"labels":[1,2,3]}' >full.jsonl
code "every token counts" 65 "every token of the first conversations counts in the loss" DATA=full.jsonl
perl -e 'print qq({"input_ids":[5],"labels":[5]}\n) x 120, qq({"input_ids":[5,7,6],"labels":[-100,-100,6]}\n) x 130' >tokens.jsonl
run $chat DATA=tokens.jsonl STEPS=1
ok "conversations of one token are not taken for ones whose tokens all count" is "$?" 0
head -n 1 tokens.jsonl >token.jsonl
code "a single token" 65 "none of 1 conversations has an answer" DATA=token.jsonl
echo '{"input_ids":[1,99999],"labels":[-100,99999]}' >id.jsonl
code "an id beyond the vocabulary" 65 "99999" DATA=id.jsonl
perl -e 'print qq({"input_ids":[5@{[",5" x 4999]},60000],"labels":[-100@{[",5" x 4999]},60000]}\n)' >late.jsonl
code "the same after thousands of tokens, without its mark" 65 "token 5000 has id 60000" DATA=late.jsonl
code "answers that do not fit SEQ_LEN" 65 "raise SEQ_LEN" DATA=messages.jsonl SEQ_LEN=16
perl -e 'print qq({"prompt":"@{["x " x 100]}","completion":"a"}\n) x 6, qq({"prompt":"x","completion":"a"}\n) x 4' >long.jsonl
code "most answers cut off" 65 "6 of 10 conversations have no answer within SEQ_LEN=64" DATA=long.jsonl
run $chat DATA=long.jsonl STEPS=2 ALLOW_CUT=1 GLOBAL_BATCH=2 LOG_LEVEL=info
ok "ALLOW_CUT=1 leaves them out" says "10 conversations, 6 cut, 6 without an answer left out"
code "a template that is unknown" 78 "CHAT_TEMPLATE=nothing is neither a file nor a family" DATA=messages.jsonl CHAT_TEMPLATE=nothing
code "a family whose tokens the tokenizer lacks" 78 "CHAT_TEMPLATE=chatml needs the token <|im_start|>" DATA=messages.jsonl CHAT_TEMPLATE=chatml
code "a base model without a template" 78 "has no chat_template; set CHAT_TEMPLATE" DATA=messages.jsonl CHAT_TEMPLATE=auto
echo '{"special":["{eos}"],"user":["Q: ","\n"],"assistant":["A:","{eos}","\n"]}' >table.json
"$convoy" tokenize DATA=messages.jsonl CHAT_TEMPLATE=table.json SHOW=1 >out 2>err
ok "a template in a file" is "$(sed -n 2p out)" "A:⟦word0 word0<|endoftext|>⟧"
# A tokenizer with one token for each byte, and a template next to it.
perl -e 'my ($n, @v) = (0);
    for my $b (0 .. 255) {
        my $c = ($b > 32 && $b < 127) || ($b > 160 && $b != 173) ? $b : 256 + $n++;
        push @v, sprintf qq("\\u%04x":$b), $c;
    }
    print qq({"added_tokens":[{"id":256,"content":"<|im_start|>","special":true},{"id":257,"content":"<|im_end|>","special":true}],)
        . qq("pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false},"model":{"type":"BPE","vocab":{@{[join ",", @v]}},"merges":[]}})' >tokenizer.json
echo '{"eos_token": "<|im_end|>", "chat_template":' \
    '"{% for message in messages %}{{ \u0027<|im_start|>\u0027 + message.role + \u0027\\n\u0027 + message.content + \u0027<|im_end|>\u0027 + \u0027\\n\u0027 }}{% endfor %}"}' >tokenizer_config.json
for path in tokenizer.json "$PWD"; do
    "$convoy" tokenize DATA=messages.jsonl TOKENIZER="$path" SHOW=1 >out 2>err
    ok "a template is found with TOKENIZER=$(basename "$path")" is "$(sed -n 4p out)" "⟦word0 word0<|im_end|>⟧"
done
"$convoy" tokenize DATA=messages.jsonl TASK=chat OUT=x.bin >out 2>err
ok "no token file is written of conversations" is "$? $([ -e x.bin ] && echo x.bin)" "78 "
done_testing
