#!/bin/bash
# test_hub — models, tokenizers and data of the Hugging Face hub, as a user names them: from a fake hub (tests/remote/fake_hub.h) whose large files
# come from another port. Fetched once, gated, offline, pinned by checkpoints; no token in any output.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
hub=$tmp/hub
one=1111111111111111111111111111111111111111
two=2222222222222222222222222222222222222222
small="LAYERS=2 HEADS=4 KV_HEADS=2 EMBED=32 FFN=48 VOCAB=300 CONTEXT=64"
shape="BATCH_SIZE=2 SEQ_LEN=32 LR=1e-3 LR_SCHEDULE=constant ALLOW_LOCAL_URLS=1"
export CACHE_DIR=$tmp/cache HF_HOME=$tmp/home
unset HF_TOKEN HF_TOKEN_PATH HF_HUB_OFFLINE

# A model, a tokenizer and data in the repositories of the hub: two commits of each.
words() { perl -e 'my ($seed, $n) = @ARGV; for (1 .. $n) { $seed = ($seed * 1103515245 + 12345) % 2147483648; print "word", $seed % 97, $_ % 9 ? " " : "\n" }' "$@"; }
words 1 4000 >plain.txt
work train-tokenizer DATA=plain.txt VOCAB=300 OUT=tokenizer
for commit in $one $two; do
    mkdir -p "$hub/models/org/small" "$hub/datasets/org/set/$commit/data"
    run MODEL=llama-toy $small TOKENIZER=tokenizer BATCH_SIZE=2 SEQ_LEN=32 STEPS=1 SEED=${commit:0:1} DATA=plain.txt CHECKPOINT_DIR=base$commit
    work export FROM=base$commit TO="$hub/models/org/small/$commit"
    for i in 0 1 2; do words ${commit:0:1}$i 1500 >"$hub/datasets/org/set/$commit/data/train-$i.txt"; done
    echo 'about these data' >"$hub/datasets/org/set/$commit/README.md"
done
set_branch() { mkdir -p "$hub/$1/refs" && echo "$2" >"$hub/$1/refs/main"; }
set_branch models/org/small $one
set_branch datasets/org/set $one
"$(dirname "$convoy")/tests/e2e/fake_hub" "$hub" &
track
disown
wait_for 5 test -s "$hub/port"
HF_ENDPOINT=http://127.0.0.1:$(cat "$hub/port")
export HF_ENDPOINT
requests() { grep -c -- "$1" "$hub/log"; }
model="MODEL=hf://org/small $shape"
data='hf://datasets/org/set/data/train-*.txt'
local_model="MODEL=$hub/models/org/small/$one $shape"
local_data="$hub/datasets/org/set/$one/data/train-*.txt"

# 1. The same training as with the files of a folder.
run $local_model DATA="$local_data" STEPS=4 METRICS_FILE=local.jsonl
run $model DATA="$data" STEPS=4 METRICS_FILE=hub.jsonl CHECKPOINT_DIR=run CHECKPOINT_EVERY=2
ok 'MODEL and DATA of the hub: it trains as from folders' is "$rc $(losses hub.jsonl)" "0 $(losses local.jsonl)"
ok 'the log has the commit' says "hf://org/small: \"main\" is commit $one"
ok 'weights are fetched once, files of no use not at all' is "$(requests 'cdn GET.*model.safetensors') $(requests README)" '1 0'
ok 'the checkpoint records the commits' is "$(jq -c .commits run/step-00000002/manifest.json)" \
    "{\"hf://org/small@main\":\"$one\",\"hf://datasets/org/set@main\":\"$one\"}"
ok 'and the ledger' is "$(jq -c 'select(.provenance) | .provenance.commits["hf://datasets/org/set@main"]' run/ledger.jsonl)" "\"$one\""
work tokenize DATA="$data" OUT=t.bin ALLOW_LOCAL_URLS=1
ok 'tokenize reads a glob of the hub' is "$rc" 0
work generate MODEL=hf://org/small ALLOW_LOCAL_URLS=1 PROMPT=word TOKENS=2
ok 'generate reads a model of the hub' is "$rc" 0
run $local_model DATA=plain.txt LORA=2 STEPS=2 CHECKPOINT_DIR=lora
work export FROM=lora TO="$hub/models/org/adapter/$one"
set_branch models/org/adapter $one
work generate MODEL=hf://org/small ADAPTER=hf://org/adapter ALLOW_LOCAL_URLS=1 PROMPT=word TOKENS=2
ok 'and an adapter of the hub' is "$rc $(grep -c "is commit $one" err)" '0 2'
run $model DATA="plain.txt:0.5,$data:0.5" VAL_DATA=hf://datasets/org/set/data/train-2.txt EVAL_EVERY=2 STEPS=2
ok 'a mixture with data of the hub, and VAL_DATA' is "$rc" 0
before=$(requests 'cdn GET')
work check MODEL=hf://org/small DATA="$data" ALLOW_LOCAL_URLS=1 CHECK=quick JSON=1 LOG_LEVEL=error
ok 'check has a row for each name of the hub' is "$(jq -c '[.rows[] | select(.name == "hub") | [.subject, .verdict]]' out)" '[["MODEL","pass"],["DATA","pass"]]'
work check MODEL=hf://org/none ALLOW_LOCAL_URLS=1 CHECK=quick
ok 'and says why a name has no commit' says 'node 0, MODEL: hub: MODEL=hf://org/none'
run MODEL=llama-toy $small $shape TOKENIZER=hf://org/small DATA="$data" STEPS=1
ok 'TOKENIZER of the hub: nothing more is fetched' is "$rc $(requests 'cdn GET')" "0 $before"

# 2. The branch moves on: a resumed run keeps its commits, also on a machine with another cache; a new run gets the new ones.
set_branch models/org/small $two
set_branch datasets/org/set $two
run $local_model DATA="$local_data" STEPS=8 METRICS_FILE=whole.jsonl
run $model DATA="$data" STEPS=8 METRICS_FILE=more.jsonl CHECKPOINT_DIR=run CACHE_DIR="$tmp/other"
ok 'a resumed run uses the recorded commits' is "$rc $(losses more.jsonl)" "0 $(losses whole.jsonl | tail -n 4)"
ok 'without a warning' is "$(grep -c 'DATA differs' err)" 0
ok 'and records them again' is "$(jq -c .commits run/step-00000008/manifest.json)" "$(jq -c .commits run/step-00000002/manifest.json)"
run $model DATA="$data" STEPS=1 LOG_LEVEL=info
ok 'a new run uses the new ones' says "hf://org/small: \"main\" is commit $two"
run MODEL=hf://org/small@$one $shape DATA="hf://datasets/org/set@$one/data/" STEPS=4 METRICS_FILE=pinned.jsonl
ok 'a commit in the name' is "$(losses pinned.jsonl)" "$(losses local.jsonl)"

# 3. Without the hub.
echo 503 >"$hub/gone"
export HF_HUB_OFFLINE=1
run $model DATA="$data" STEPS=4 METRICS_FILE=offline.jsonl
ok 'HF_HUB_OFFLINE=1: the cache suffices' is "$rc $(steps_of offline.jsonl)" '0 4'
try 'what is not in the cache: 66' 66 'HF_HUB_OFFLINE=1, and CACHE_DIR=.* has no record' -- train $quiet MODEL=hf://org/other $shape DATA="$data"
unset HF_HUB_OFFLINE
rm "$hub/gone"

# 4. Gated, missing, refused.
echo hf_right >"$hub/token"
rm -rf "$tmp/cache"
try 'gated, without a token: 78' 78 'HF_TOKEN.*' -- train $quiet $model DATA="$data"
ok 'the page is named' says 'ask for access on https://huggingface.co/org/small'
HF_TOKEN=hf_wrong try 'with the token of another account: 78' 78 'may not read it (HTTP 403)' '!hf_wrong' -- train $quiet $model DATA="$data"
port=$(free_port)
export HF_TOKEN=hf_right
begin_served $model DATA="$data" STEPS=100000 CHECKPOINT_DIR=secret LOG_LEVEL=trace
ok 'with the token it trains' wait_for 60 is_training
get /status >status.json
cat "/proc/$pid/cmdline" "/proc/$worker/cmdline" >titles
stop
rm -f secret/lock
ok 'no output has the token' is "$(cat out err status.json titles | grep -c hf_right) $(grep -rl hf_right secret cache | wc -l)" '0 0'
ok 'nor has the other port seen it' is "$(requests '^cdn.*token=hf_right') $(requests '^cdn.*token= ' | sed 's/[1-9].*/many/')" '0 many'
unset HF_TOKEN
rm "$hub/token"
HF_TOKEN=hf_any try 'no such repository: 66' 66 'no model of that name' -- train $quiet MODEL=hf://org/none $shape
try 'no such revision: 66' 66 'no branch, tag or commit "v9"' -- train $quiet MODEL=hf://org/small@v9 $shape
try 'no such file: 66' 66 'no such file or folder' -- train $quiet $shape MODEL=gpt2-nano DATA=hf://datasets/org/set/data/none.txt
try 'an address of this machine: 78' 78 'ALLOW_LOCAL_URLS=1' -- train $quiet MODEL=hf://org/small DATA=synthetic
try 'no name of the hub: 78' 78 'expected hf://org/name' -- train $quiet $shape MODEL=hf://org/../x

# 5. One fetch for all workers and nodes.
rm -rf "$tmp/cache"
: >"$hub/log"
run $model DATA="$data" STEPS=2 N_GPU_EACH_NODE=2
ok 'two workers: one fetch' is "$rc $(requests 'cdn GET.*model.safetensors') $(requests 'cdn GET.*train-0')" '0 1 1'
rm -rf "$tmp/cache" node1
: >"$hub/log"
train_nodes 2 $model DATA="$data" STEPS=2 METRICS_FILE=nodes.jsonl
ok 'two nodes: one fetch' is "$(steps_of nodes.jsonl) $(requests 'cdn GET.*model.safetensors') $(requests 'cdn GET.*train-0')" '2 1 1'
done_testing
