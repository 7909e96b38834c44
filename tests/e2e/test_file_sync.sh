#!/bin/bash
# test_file_sync — a node without data of its own fetches node 0's: in another folder with its own cache, over loopback, and
# in its own network namespace.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
mkdir a b
head -c 3000000 /usr/bin/perl | base64 >a/x.txt
cp /usr/share/common-licenses/GPL-3 a/g.txt
words="MODEL=gpt2-nano LAYERS=1 HEADS=1 EMBED=16 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=2 LR=1e-3 N_NODES=2"
# far I FOLDER SETTING… — node I in its own folder, with its own cache.
far() {
    local i=$1 dir=$2
    shift 2
    (cd "$dir" && XDG_CACHE_HOME=$PWD/cache exec ${in:-} "$convoy" train $quiet $meeting NODE_ID=$i $words "$@") >out.$i 2>err.$i &
    node[$i]=$!
    track
}
# both SETTING… — runs node 0 in folder a and node 1 in folder b until both end.
both() {
    far 1 b "$@"
    far 0 a "$@"
    finish_nodes 2
}
last_loss() { grep -oE 'loss [0-9.]+' out.0 | tail -n 1; }
(cd a && XDG_CACHE_HOME=$PWD/cache "$convoy" train $quiet $words N_NODES=1 GLOBAL_BATCH=4 STEPS=5 DATA=x.txt >../out 2>../err)
one=$(grep -oE 'loss [0-9.]+' out | tail -n 1)

# 1. The data are fetched, once.
both STEPS=5 DATA=x.txt
ok "node 1 has no DATA: done, with the losses of one node" is "$codes $(last_loss)" "0 0 $one"
ok "node 1 logs what it fetches and how fast" node_says 1 'fetching DATA from node 0: .* in 1 file'
ok "and where it is kept" node_says 1 'fetched .* from node 0 in .*/s\), kept in .*/b/cache/convoy/from-node-0/'
ok "node 0 logs which node fetches it" node_says 0 'node 1 \(127.0.0.1\) fetches this node.s DATA'
ok "the same tokens lie on both" is "$(cat b/cache/convoy/from-node-0/*/0/*.bin | cksum)" "$(cat a/cache/convoy/tokens/*.bin | cksum)"
ok "and nothing else, but that it was checked" is "$(find b/cache -type f | grep -vcE '/(lock|00000.bin|[0-9a-f]*.sum)$')" 0
both STEPS=5 DATA=x.txt
ok "the second start fetches nothing" is "$codes $(grep -c 'complete from an earlier fetch' err.1) $(grep -c 'fetching DATA' err.1)" "0 0 1 0"
for f in b/cache/convoy/from-node-0/*/0/00000.bin; do printf x | dd of="$f" bs=1 seek=5000 conv=notrunc 2>/dev/null; done
both STEPS=5 DATA=x.txt
ok "damaged in the cache: found, fetched again" is "$codes $(grep -c 'is damaged; fetching it' err.1) $(last_loss)" "0 0 1 $one"
both STEPS=5 DATA=g.txt:0.7,x.txt:0.3 VAL_DATA=g.txt EVAL_EVERY=5
ok "a mixture, and what is held out" is "$codes $(grep -c 'fetched .* from node 0' err.1)" "0 0 2"
far 1 b STEPS=5 DATA= # not set
far 0 a STEPS=5 DATA=x.txt
finish_nodes 2
ok "DATA not set on node 1: node 0's" is "$codes $(last_loss)" "0 0 $one"
far 1 b STEPS=5 DATA=
far 0 a STEPS=5 DATA=synthetic
finish_nodes 2
ok "nor is it when node 0 trains on synthetic data" is "$codes $(grep -c 'data synthetic: ' err.0 err.1 | tr '\n' ' ')" "0 0 err.0:1 err.1:1 "
# Records are the same documents there: from the cache, and with the index of Megatron's files.
perl -e 'for my $d (1 .. 60) { print "{\"text\": \"", join(" ", map { "word" . ($d * $_ % 17) } 1 .. 3 + $d * 5 % 23), "\"}\n" }' >a/docs.jsonl
(cd a && env -u DATA XDG_CACHE_HOME=$PWD/cache "$convoy" tokenize DATA=docs.jsonl OUT=docs.idx >../out 2>../err)
for data in docs.jsonl docs.idx; do
    both STEPS=5 DATA=$data PACK_DOCUMENTS=1 ATTENTION_MASK=document LOG_LEVEL=info
    ok "$data: 60 documents on both nodes" is "$codes $(cat err.0 err.1 | grep -c 'packed: 60 documents')" "0 0 2"
    [ $data = docs.jsonl ] && jsonl_loss=$(last_loss)
done
ok "with the same losses" is "$(last_loss)" "$jsonl_loss"
ok "the index lies beside the ids" is "$(ls b/cache/convoy/from-node-0/*/0/00000.idx | wc -l)" 1
rm -rf b/cache
both STEPS=5 DATA=x.txt N_GPU_EACH_NODE=2 BATCH_SIZE=1
ok "two workers of a node: one of them fetches it" is "$codes $(grep -c 'fetched .* from node 0' err.1) $(grep -c 'complete from an earlier fetch' err.1)" "0 0 1 1"

# 2. Data that cannot be had: a clear error.
both STEPS=5 DATA=nowhere.txt
ok "node 0 has none either: 66 on both, with the path" is "$codes $(grep -lE 'error.*cannot read nowhere.txt' err.0 err.1 | wc -l)" "66 66 2"
far 1 b STEPS=5 DATA=nowhere.txt
far 0 a STEPS=5
finish_nodes 2
ok "node 0 has synthetic data: 66 on both" is "$codes $(grep -lE 'error.*DATA=nowhere.txt is not on this node, and node 0 has no file of DATA' err.0 err.1 | wc -l)" "66 66 2"
if mkdir mnt && mount -t tmpfs -o size=1m none mnt 2>/dev/null; then
    far 1 b STEPS=5 DATA=x.txt CACHE_DIR="$tmp/mnt/cache"
    far 0 a STEPS=5 DATA=x.txt
    finish_nodes 2
    ok "no room for it: 74, with the folder and the bytes" is "$codes $(grep -cE 'error.*[0-9]+ bytes more to fetch, but .*/mnt/cache.* has room for' err.1)" "74 74 1"
    umount mnt
else
    skip "no room for it" "a file system cannot be mounted here (needs root)"
fi

# 3. Node 1 is killed while it fetches data; the next start continues there.
a=cvfa$$ b=cvfb$$
make_net 2>/dev/null && tc -n $a qdisc add dev eth0 root tbf rate 16mbit burst 64kb latency 50ms ||
    give_up "between two network namespaces" "they cannot be made here (needs root)"
links_run $a $b
meeting="MASTER_ADDR=10.0.0.1 MASTER_PORT=$port"
rm -rf b/cache
in="nsenter --net=/run/netns/$a" far 0 a STEPS=5 DATA=x.txt
in="nsenter --net=/run/netns/$b" far 1 b STEPS=5 DATA=x.txt
has_partial() { [ "$(stat -c %s b/cache/convoy/from-node-0/*/part-00000 2>/dev/null || echo 0)" -gt 1000000 ]; }
wait_for 20 has_partial
first=${node[1]} fetcher=$(workers_of "$first")
kill -KILL "$first" $fetcher
wait "$first" 2>/dev/null
pid=$$
for p in $fetcher; do wait_for 10 is_gone "$p"; done # none writes any more
had=$(stat -c %s b/cache/convoy/from-node-0/*/part-00000)
ok "killed while it fetches data: what has arrived stays" [ "$had" -gt 1000000 ]
in="nsenter --net=/run/netns/$b" far 1 b STEPS=5 DATA=x.txt
finish_nodes 2
ok "started again: done, with the losses of one node" is "$codes $(last_loss)" "0 0 $one"
all=$(stat -c %s b/cache/convoy/from-node-0/*/0/00000.bin)
ok "and only the rest was fetched" is "$(grep -oE 'fetched [0-9.]+ [KM]iB of DATA from' err.1 |
    awk -v had="$had" -v all="$all" '{ n = $2 * ($3 == "MiB" ? 1048576 : 1024); print (n > all - had - 60000 && n < all - had + 60000) }')" 1
done_testing
