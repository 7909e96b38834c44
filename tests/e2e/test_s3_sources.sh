#!/bin/bash
# test_s3_sources — MODEL, TOKENIZER, DATA and VAL_DATA in a bucket of the fake S3 server: the training of local files, fetched once by
# node 0, again only what changed; no key in any output.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
s3=$(dirname "$convoy")/tests/remote/test_s3
export CACHE_DIR=$tmp/cache AWS_ACCESS_KEY_ID=AKIDFAKE AWS_SECRET_ACCESS_KEY=fake/secret+key AWS_EC2_METADATA_DISABLED=true
unset AWS_SESSION_TOKEN AWS_PROFILE AWS_REGION AWS_ENDPOINT_URL
"$s3" serve >port 2>server.err &
track
disown
wait_for 5 test -s port
server=http://127.0.0.1:$(head -n 1 port)
export AWS_ENDPOINT_URL_S3=$server
put() { "$s3" put "$1" "s3://bucket/$2"; }
state() { curl -s "$server/_state"; }
gets() { state | awk -v key="bucket/$1" '$1 == "object" && $2 == key { print $4 / $3 }'; } # gets KEY — how often its bytes were sent

words() { perl -e 'my ($seed, $n) = @ARGV; for (1 .. $n) { $seed = ($seed * 1103515245 + 12345) % 2147483648; print "word", $seed % 97, $_ % 9 ? " " : "\n" }' "$@"; }
mkdir data
for i in 0 1 2; do words 1$i 1500 >data/train-$i.txt; done
words 20 500 >held-out.txt
work train-tokenizer DATA=data VOCAB=300 OUT=tokenizer
run MODEL=llama-toy LAYERS=2 HEADS=4 KV_HEADS=2 EMBED=32 FFN=48 VOCAB=300 CONTEXT=64 TOKENIZER=tokenizer BATCH_SIZE=2 SEQ_LEN=32 STEPS=1 DATA=data CHECKPOINT_DIR=base
work export FROM=base TO=model
for f in model/*; do put "$f" "models/small/${f#model/}"; done
for f in data/*; do put "$f" "sets/$f"; done
put held-out.txt sets/held-out.txt
shape="BATCH_SIZE=2 SEQ_LEN=32 LR=1e-3 LR_SCHEDULE=constant ALLOW_LOCAL_URLS=1"

run MODEL=model $shape DATA=data VAL_DATA=held-out.txt EVAL_EVERY=4 STEPS=4 METRICS_FILE=local.jsonl
run MODEL=s3://bucket/models/small/ $shape DATA=s3://bucket/sets/data/ VAL_DATA=s3://bucket/sets/held-out.txt EVAL_EVERY=4 STEPS=4 METRICS_FILE=bucket.jsonl \
    CHECKPOINT_DIR=run LOG_LEVEL=debug
ok 'MODEL, DATA and VAL_DATA of a bucket: it trains as from local files' is "$rc $(losses bucket.jsonl)" "0 $(losses local.jsonl)"
ok 'each object is fetched once' is "$(gets models/small/model.safetensors) $(gets sets/data/train-1.txt) $(gets sets/held-out.txt)" '1 1 1'
rm -f run/lock
ok 'no output has the key' is "$(cat out err | grep -c 'fake/secret') $(grep -rl 'fake/secret' run cache | wc -l)" '0 0'
run MODEL=s3://bucket/models/small $shape TOKENIZER=s3://bucket/models/small/ DATA='s3://bucket/sets/data/*-[01].txt' STEPS=1
ok 'a glob, and a folder without its /: nothing more is fetched' is "$rc $(gets models/small/model.safetensors) $(gets sets/data/train-1.txt)" '0 1 1'

words 99 1500 >data/train-1.txt
put data/train-1.txt sets/data/train-1.txt
rm data/train-2.txt
"$s3" delete s3://bucket/sets/data/train-2.txt
run MODEL=model $shape DATA=data VAL_DATA=held-out.txt EVAL_EVERY=4 STEPS=4 METRICS_FILE=local2.jsonl
run MODEL=s3://bucket/models/small/ $shape DATA=s3://bucket/sets/data/ VAL_DATA=s3://bucket/sets/held-out.txt EVAL_EVERY=4 STEPS=4 METRICS_FILE=bucket2.jsonl
ok 'an object changed and one was removed: it trains on those of now' is "$rc $(losses bucket2.jsonl)" "0 $(losses local2.jsonl)"
ok 'the changed one is fetched, the others are not' is "$(gets sets/data/train-1.txt) $(gets sets/data/train-0.txt)" '1 1'
run MODEL=s3://bucket/models/small/ $shape DATA=s3://bucket/sets/data/ STEPS=6 CHECKPOINT_DIR=run
ok 'a resumed run warns of other data' says 'DATA differs'

rm -rf cache
: >err
train_nodes 2 MODEL=s3://bucket/models/small/ $shape DATA=s3://bucket/sets/data/ STEPS=4 METRICS_FILE=nodes.jsonl
ok 'two nodes: one fetch' is "$(grep -c '"loss"' nodes.jsonl) $(gets models/small/model.safetensors) $(gets sets/data/train-0.txt)" '4 2 2'

try 'no such object: 66' 66 'no such object' -- train $quiet $shape MODEL=gpt2-nano DATA=s3://bucket/sets/none/
try 'no such bucket: 78' 78 'missing' -- train $quiet $shape MODEL=gpt2-nano DATA=s3://missing/x.txt
try 'an address of this machine: 78' 78 'ALLOW_LOCAL_URLS=1' -- train $quiet MODEL=gpt2-nano DATA=s3://bucket/sets/data/
AWS_SECRET_ACCESS_KEY=wrong try 'a wrong key: 78' 78 '!wrong' -- train $quiet $shape MODEL=gpt2-nano DATA=s3://bucket/sets/data/
done_testing
