#!/bin/bash
# test_cut — files that are cut while they are in use: token files, shards in the cache, weights. The run ends with 65 and the
# file's name, does not restart, and does not report a bug. A disk that fails is 74 (needs a loop device).
. "$(dirname "$0")/lib.sh"
model="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 VOCAB=64 CONTEXT=32 SEQ_LEN=32 BATCH_SIZE=2 LR=1e-3"
[ -n "${SAN:-}" ] && give_up "files that are cut" "sanitizers keep their own handler of SIGBUS"
tokens() { perl -e 'binmode STDOUT; my $n = shift; print pack("l<256", 20240520, 1, $n, (0) x 253), pack("v*", map { $_ * 7 % 64 } 1 .. $n)' "$1"; }
ends_65() { is "$rc" 65 && says "$1 was cut short while it was in use" && ! grep -q 'this is a bug\|crash' err; }

tokens 400000 >t.bin
begin_training $model DATA=t.bin STEPS=100000000
truncate -s 5000 t.bin
finish
ok "a token file cut while training: 65 with its name" ends_65 t.bin
ok "and no worker is started again" is "$(grep -c 'restarting' err)" 0
ok "said once" is "$(grep -c 'was cut short' err)" 1

# Within the last page: what is missing reads as zeros and makes no signal.
tokens 400000 >t.bin
begin_training $model DATA=t.bin STEPS=100000000 CHECKPOINT_DIR=kept
truncate -s -100 t.bin
finish
ok "a token file that misses its last 100 bytes: 65 within seconds" ends_65 t.bin
tokens 400000 >t.bin
begin_training $model DATA=t.bin STEPS=100000000
tokens 300000 >other.bin
mv other.bin t.bin
sleep 6
stop
ok "one that another file replaced by a rename: trained on as it was" is "$rc" 143

tokens 400000 >t.bin
tokens 400000 >v.bin
begin_training $model DATA=t.bin VAL_DATA=v.bin EVAL_EVERY=50 STEPS=100000000
truncate -s 0 v.bin
finish
ok "a token file of VAL_DATA cut to nothing: 65" ends_65 v.bin

for i in $(seq 20000); do echo "line $i of a text that goes into the cache"; done >text.txt
begin_training ${model/VOCAB=64/VOCAB=50257} DATA=text.txt CACHE_DIR=cache STEPS=100000000
shard=$(ls cache/tokens/*.bin)
truncate -s 4096 "$shard"
finish
ok "a shard in the cache: 65 with its name" ends_65 "$shard"

tokens 400000 >t.bin
begin_training $model DATA=t.bin STEPS=100000000 N_GPU_EACH_NODE=2
truncate -s 0 t.bin
finish
ok "two workers: 65 with its name" is "$rc $(grep -c 't.bin was cut short' err)" "65 1"

# A disk that fails: the file behind a loop device is cut, and what was on it is in no cache.
loop() { mount -o loop disk.img mnt 2>/dev/null; }
if [ "$(id -u)" = 0 ] && mkdir mnt && truncate -s 64M disk.img && mkfs.ext4 -q disk.img 2>/dev/null && loop; then
    tokens 8000000 >mnt/t.bin
    umount mnt && loop && ls -l mnt >/dev/null
    truncate -s 20M disk.img
    try "a disk that fails behind the file's beginning: 74 with its name" 74 'mnt/t.bin at byte.*nput/output error' -- train $model DATA=mnt/t.bin STEPS=1
    umount -l mnt
else
    skip "a disk that fails: 74 with the file's name" "no loop device here"
fi
done_testing
