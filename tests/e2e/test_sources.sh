#!/bin/bash
# test_sources — MODEL, ADAPTER and TOKENIZER that only node 0 has: a folder, a GGUF file, checkpoints, a repository of a hub. Four
# nodes in folders of their own, with caches of their own; and two in network namespaces.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
places=(a b c d)
mkdir a b c d
head -c 20000 "$root/assets/alice.txt" >a/x.txt
small="LAYERS=2 HEADS=4 KV_HEADS=2 EMBED=32 FFN=48 VOCAB=300 CONTEXT=64"
words="SEQ_LEN=32 BATCH_SIZE=2 LR_SCHEDULE=constant LOG_LEVEL=info"
# far I SETTING… — node I in its own folder, with its own cache.
far() {
    local i=$1
    shift
    (cd "${places[$i]}" && XDG_CACHE_HOME=$PWD/cache exec ${in:-} "$convoy" train $quiet $meeting NODE_ID=$i $words "$@") >out.$i 2>err.$i &
    node[$i]=$!
    track
}
# all N SETTING… — N nodes, until they end.
all() {
    local n=$1
    shift
    for i in $(seq 0 $((n - 1)) | shuf); do far "$i" N_NODES="$n" "$@"; done
    finish_nodes "$n"
}
# after_1 SETTING… — two nodes; node 0 begins when node 1 looks for it.
after_1() {
    far 1 N_NODES=2 "$@"
    pid=${node[1]}
    wait_for 20 node_said 1 'waiting for node 0'
    far 0 N_NODES=2 "$@"
    finish_nodes 2
}
# together SETTING… — the losses of four nodes that have all files: each in node 0's folder.
together() {
    places=(a a a a)
    all 4 METRICS_FILE= "$@"
    places=(a b c d)
    [ "$codes" = "0 0 0 0" ] || echo "# together: $codes"
    shown
}
shown() { grep -oE '^step .* loss [0-9.]+' out.0; }
weights_went() { find b c d -name '*.safetensors' -o -name '*.gguf' -size +40k; }
in_a() { (cd a && XDG_CACHE_HOME=$PWD/cache "$convoy" "$@" >"$tmp/out" 2>"$tmp/err"); }

in_a train-tokenizer DATA=x.txt VOCAB=300 OUT=tok
in_a train $quiet MODEL=llama-toy $small $words TOKENIZER=tok DATA=x.txt STEPS=6 CHECKPOINT_EVERY=3 CHECKPOINT_DIR=run
in_a export FROM=run TO=model
in_a export FROM=run TO=model.gguf
ok "node 0 has a model with a tokenizer of its own" is "$(ls a/model | tr '\n' ' ') $(ls a/run | tr '\n' ' ')" \
    "config.json generation_config.json model.safetensors tokenizer.json tokenizer_config.json  ledger.jsonl step-00000003 step-00000006 tokenizer "

# 1. A folder, a GGUF file, a checkpoint, and the folder of a run.
for how in "MODEL=model" "MODEL=model SHARD=full" "MODEL=model.gguf" "MODEL=run/step-00000003 SHARD=optimizer" "MODEL=run" \
    "MODEL=model LORA=4 SHARD=full"; do
    want=$(together $how DATA=x.txt STEPS=3)
    rm -rf {a,b,c,d}/cache
    all 4 $how DATA=x.txt STEPS=3
    ok "$how: only node 0 has it: the losses of four nodes with all files" is "$codes $(shown)" "0 0 0 0 $want"
    ok "no weights travel" is "$(weights_went)" ""
done
ok "three nodes log who reads it" is "$(grep -l 'MODEL=model: node 0 reads it, and sends the weights' err.? | wc -l)" 3
ok "node 0 logs who fetches what" is "$(grep -oE 'node [1-3] \(127.0.0.1\) fetches this node.s [A-Z]+' err.0 | sort | cut -d' ' -f2,7 | tr '\n' ' ')" \
    "1 DATA 1 MODEL 1 TOKENIZER 2 DATA 2 MODEL 2 TOKENIZER 3 DATA 3 MODEL 3 TOKENIZER "
all 4 MODEL=model LORA=4 SHARD=full DATA=x.txt STEPS=3
ok "the second start fetches nothing" is "$codes $(cat err.[1-3] | grep -c 'fetched .* from node 0')" "0 0 0 0 0"
printf x | dd of="$(ls b/cache/convoy/from-node-0/*/0/tokenizer.json)" bs=1 seek=50 conv=notrunc 2>/dev/null
printf x | dd of="$(ls b/cache/convoy/from-node-0/*/0/outline.json)" bs=1 seek=50 conv=notrunc 2>/dev/null
all 4 MODEL=model LORA=4 SHARD=full DATA=x.txt STEPS=3
ok "damaged copies are fetched again" is "$codes $(shown) $(grep -cE '(tokenizer|outline).json is damaged; fetching it from node 0 again' err.1)" "0 0 0 0 $want 2"
rm -rf {b,c,d}/cache
all 2 MODEL=model DATA=x.txt STEPS=3 N_GPU_EACH_NODE=2
ok "two workers on each node" is "$codes $(cat err.1 | grep -c 'fetched .* of MODEL from node 0')" "0 0 1"
all 2 MODEL=model DATA=x.txt STEPS=3 CHECKPOINT_DIR="$tmp/mine" CHECKPOINT_EVERY=2
all 2 MODEL=model DATA=x.txt STEPS=5 CHECKPOINT_DIR="$tmp/mine"
ok "a resumed run" is "$codes $(grep -c 'resuming from .*/mine/step-00000003' err.0)" "0 0 1"

# 2. Nodes that have it.
cp -r a/model a/run b
all 2 MODEL=model DATA=x.txt STEPS=1
ok "another node has the same files: they are used" is "$codes $(grep -c 'node 0 reads it' err.1)" "0 0 0"
cp -r a/run/step-00000003 b/run/step-00000009 && sed -i 's/"step": *3/"step": 9/' b/run/step-00000009/manifest.json
all 2 MODEL=run DATA=x.txt STEPS=1
ok "the folder of a run that went on meanwhile: node 0's checkpoint" is "$codes $(grep -c 'weights from run/step-00000006' err.0)" "0 0 1"
printf x | dd of=b/model/model.safetensors bs=1 seek=40000 conv=notrunc 2>/dev/null
all 2 MODEL=model DATA=x.txt STEPS=1
ok "other weights under the same name: 76 on both, with both checksums" is \
    "$codes $(grep -lE 'error.*MODEL differs: its weights have the checksum [0-9a-f]{16} on node 0 and [0-9a-f]{16} on node 1; give every node' err.? | wc -l)" "76 76 2"
cp b/run/tokenizer/tokenizer.json b/model
sed -i 's/"num_hidden_layers": *2/"num_hidden_layers": 1/' b/model/config.json
all 2 MODEL=model DATA=x.txt STEPS=1
ok "another config.json: 76 on both, with both sizes" is "$codes $(grep -lE 'error.*MODEL differs: llama, 2 layers, .* on node 0 and llama, 1 layers' err.? | wc -l)" "76 76 2"
rm -rf b/model b/run

# 3. An adapter.
in_a train $quiet $words MODEL=model LORA=4 LORA_TARGETS=mlp DATA=x.txt STEPS=4 CHECKPOINT_DIR=tuned
in_a export FROM=tuned TO=peft
for adapter in peft tuned tuned/step-00000004; do
    want=$(together MODEL=model ADAPTER=$adapter DATA=x.txt STEPS=3)
    rm -rf {a,b,c,d}/cache
    all 4 MODEL=model ADAPTER=$adapter DATA=x.txt STEPS=3
    ok "ADAPTER=$adapter: only node 0 has it" is "$codes $(shown)" "0 0 0 0 $want"
done
cp -r a/peft b/peft && printf x | dd of=b/peft/adapter_model.safetensors bs=1 seek=3000 conv=notrunc 2>/dev/null
all 2 MODEL=model ADAPTER=peft DATA=x.txt STEPS=1
ok "another adapter under the same name" is "$codes $(grep -lE 'error.*ADAPTER differs: its weights have the checksum' err.? | wc -l)" "76 76 2"
rm -r b/peft
all 2 MODEL=model ADAPTER=peft DATA=x.txt STEPS=2 CHECKPOINT_DIR="$tmp/on"
mv a/peft a/moved
all 2 MODEL=model ADAPTER=peft DATA=x.txt STEPS=4 CHECKPOINT_DIR="$tmp/on"
ok "a resumed run does not need ADAPTER" is "$codes $(grep -c 'ADAPTER=peft is not used: the run resumes from .*/on/step-00000002' err.0)" "0 0 1"
in_a train $quiet $words MODEL=model ADAPTER=peft DATA=x.txt STEPS=5 CHECKPOINT_DIR="$tmp/on" RESUME=never
ok "a run that begins anew does" is "$? $(grep -c 'error.*peft holds no adapter' err)" "66 1"
after_1 MODEL=model ADAPTER=peft DATA=x.txt STEPS=2
ok "an adapter that no node has: 66 on both" is "$codes $(grep -l 'error.*peft holds no adapter' err.? | wc -l)" "66 66 2"
mv a/moved a/peft

# 4. A tokenizer: every node makes tokens from a text of its own with node 0's.
cp a/x.txt b && cp a/x.txt c && cp a/x.txt d
for tokenizer in tok tok/tokenizer.json model.gguf; do
    want=$(together MODEL=llama-toy $small TOKENIZER=$tokenizer DATA=x.txt STEPS=2)
    rm -rf {a,b,c,d}/cache
    all 4 MODEL=llama-toy $small TOKENIZER=$tokenizer DATA=x.txt STEPS=2
    ok "TOKENIZER=$tokenizer: only node 0 has it" is "$codes $(shown) $(cat err.[1-3] | grep -c 'tokenised .* bytes into')" "0 0 0 0 $want 3"
done
for i in 1 2 3; do far $i N_NODES=4 MODEL=llama-toy $small DATA=x.txt STEPS=2; done
far 0 N_NODES=4 MODEL=llama-toy $small TOKENIZER=tok DATA=x.txt STEPS=2
finish_nodes 4
ok "TOKENIZER only set on node 0: the others use it" is "$codes $(shown)" "0 0 0 0 $want"
far 1 N_NODES=2 MODEL=llama-toy $small DATA=x.txt STEPS=2 TOKENIZER=nowhere
far 0 N_NODES=2 MODEL=llama-toy $small DATA=synthetic STEPS=2
finish_nodes 2
ok "a tokenizer that neither has: 66 on both" is "$codes $(grep -l 'error.*TOKENIZER=nowhere is not on this node, and node 0 uses GPT-2' err.? | wc -l)" "66 66 2"
rm [bcd]/x.txt

# 5. Models that cannot be had.
after_1 MODEL=./nowhere DATA=x.txt STEPS=1
ok "a model that no node has: 66 on both, with the path" is "$codes $(grep -l 'error.*MODEL=./nowhere is not there' err.? | wc -l)" "66 66 2"
far 1 N_NODES=2 MODEL=model DATA=x.txt STEPS=1
far 0 N_NODES=2 MODEL=gpt2-nano DATA=x.txt STEPS=1
finish_nodes 2
ok "a preset on node 0, and weights on node 1: 76 on both" is "$codes $(grep -lE 'error.*the nodes disagree: MODEL is gpt2, .* on node 0 and a model with weights on node 1' err.? | wc -l)" "76 76 2"
far 1 N_NODES=2 MODEL=model DATA=x.txt STEPS=1
far 0 N_NODES=2 MODEL=model ADAPTER=peft DATA=x.txt STEPS=1
finish_nodes 2
ok "an adapter on node 0 only: 76 on both" is "$codes $(grep -lE 'error.*the nodes disagree: ADAPTER is set on node 0 and not set on node 1' err.? | wc -l)" "76 76 2"

# 6. A hub: node 0 fetches, and gives.
commit=1111111111111111111111111111111111111111
mkdir -p hub/models/org/small/refs hub/datasets/org/set/refs hub/datasets/org/set/$commit
cp -r a/model hub/models/org/small/$commit
cp a/x.txt hub/datasets/org/set/$commit
echo $commit | tee hub/models/org/small/refs/main >hub/datasets/org/set/refs/main
"$(dirname "$convoy")/tests/e2e/fake_hub" "$tmp/hub" &
track
disown
wait_for 5 test -s hub/port
HF_ENDPOINT=http://127.0.0.1:$(cat hub/port)
export HF_ENDPOINT HF_HOME=$tmp/home
requests() { grep -cE -- "$1" hub/log; }
want=$(together MODEL=model DATA=x.txt STEPS=3 LORA=4)
rm -rf {a,b,c,d}/cache
: >hub/log
in_a plan MODEL=hf://org/small CLUSTER=a100-80 SEQ_LEN=32 ALLOW_LOCAL_URLS=1
in_a tokenize MODEL=hf://org/small DATA=x.txt OUT=x.bin ALLOW_LOCAL_URLS=1
ok "plan and tokenize fetch no weights" is "$(ls a/x.bin) $(requests 'model.safetensors') $(requests '/config.json')" "a/x.bin 0 1"
all 4 MODEL=hf://org/small DATA=hf://datasets/org/set/x.txt STEPS=3 LORA=4 ALLOW_LOCAL_URLS=1
ok "four nodes, each with a cache of its own: the same losses" is "$codes $(shown)" "0 0 0 0 $want"
ok "every file leaves the hub once" is "$(requests '^(hub|cdn) GET .*(/resolve/|^cdn)' | awk '{ print ($1 > 0) }') $(requests '^cdn GET.*model.safetensors') \
$(requests '^cdn GET.*x.txt') $(requests '^hub GET .*/resolve/.*/config.json') $(requests '^hub GET .*/resolve/.*tokenizer_config.json')" "1 1 1 1 1"
ok "only to node 0" is "$(find b c d -path '*hub*' -type f | wc -l)" 0
all 4 MODEL=hf://org/small TOKENIZER=hf://org/small DATA="$HF_ENDPOINT/datasets/org/set/resolve/$commit/x.txt" STEPS=3 LORA=4 ALLOW_LOCAL_URLS=1
ok "an address as DATA: from the server once" is "$codes $(shown) $(requests '^hub GET /datasets/org/set/resolve/.*x.txt')" "0 0 0 0 $want 2"

# 7. A node that is killed while it fetches goes on there.
a=csra$$ b=csrb$$
make_net 2>/dev/null && tc -n $a qdisc add dev eth0 root tbf rate 16mbit burst 64kb latency 50ms ||
    give_up "between two network namespaces" "they cannot be made here (needs root)"
links_run $a $b
meeting="MASTER_ADDR=10.0.0.1 MASTER_PORT=$port"
rm -rf b/cache
head -c 4000000 /usr/bin/perl >a/model/tokenizer.model # not read: tokenizer.json is; but a file of the tokenizer
in="nsenter --net=/run/netns/$a" far 0 N_NODES=2 MODEL=model DATA=x.txt STEPS=3
in="nsenter --net=/run/netns/$b" far 1 N_NODES=2 MODEL=model DATA=x.txt STEPS=3
partial() { cat b/cache/convoy/from-node-0/*/part-0000? 2>/dev/null | wc -c; }
has_partial() { [ "$(partial)" -gt 1000000 ]; }
wait_for 20 has_partial
first=${node[1]} fetcher=$(workers_of "$first")
kill -KILL "$first" $fetcher
wait "$first" 2>/dev/null
pid=$$
for p in $fetcher; do wait_for 10 is_gone "$p"; done # none writes any more
had=$(partial)
in="nsenter --net=/run/netns/$b" far 1 N_NODES=2 MODEL=model DATA=x.txt STEPS=3
finish_nodes 2
ok "killed while it fetches the tokenizer: done" is "$codes" "0 0"
ok "and only the rest was fetched" is "$(grep -oE 'fetched [0-9.]+ [KM]iB of TOKENIZER from' err.1 |
    awk -v left=$(($(stat -c %s a/model/tokenizer.model) - had)) '{ n = $2 * ($3 == "MiB" ? 1048576 : 1024); print (n > left - 150000 && n < left + 150000) }')" 1
done_testing
