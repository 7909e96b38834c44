#!/bin/bash
# test_errors — every refusal: the exit code that schedulers act on, and a sentence with the value and what to do.
. "$(dirname "$0")/lib.sh"
base="MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=16 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=16 STEPS=4"
golden=$root/tests/golden/lm
# refuses CODE TEXT… — the last run ended with CODE, printed one error line, and it has every TEXT in it.
refuses() {
    local code=$1 text
    shift
    is "$rc" "$code" || return 1
    is "$(grep -c ' error ' err)" 1 || return 1
    for text; do says "$text" || return 1; done
}

# 1. Settings.
try "unknown setting: 64, with the nearest name" 64 BATCH_SISE BATCH_SIZE -- train $base BATCH_SISE=4
try "not a number: 78" 78 BATCH_SIZE=8x -- train $base BATCH_SIZE=8x
try "heads that do not divide: 78, both values" 78 "HEADS" 3 16 -- train $base HEADS=3
try "SEQ_LEN over CONTEXT: 78, both values" 78 "SEQ_LEN=33" 32 -- train $base SEQ_LEN=33
try "SEQ_LEN over the preset's context: 78" 78 "SEQ_LEN=1025 (argument)" 1024 "lower SEQ_LEN" -- train $base CONTEXT=0 SEQ_LEN=1025
try "GLOBAL_BATCH no multiple of BATCH_SIZE: 78" 78 GLOBAL_BATCH=3 BATCH_SIZE=2 -- train $base GLOBAL_BATCH=3
try "unknown model: 78, with the known ones" 78 MODEL=gpt2-nona gpt2-nano -- train $base MODEL=gpt2-nona
try "RESUME=required without CHECKPOINT_DIR: 78" 78 RESUME=required CHECKPOINT_DIR -- train $base RESUME=required
try "a device that is not there: 69" 69 "DEVICE=cpu" -- train $base DEVICE=cuda
try "question answering on text: 78" 78 TASK=qa "DATA" -- train $base TASK=qa DATA=/usr/share/common-licenses/GPL-3
export NCCL_DEBUG=INFO BATCHSIZE=4
run $base
ok "a near-miss name in the environment is warned about, others are left alone" \
    is "$rc $(grep -c ' warn .*BATCHSIZE.*BATCH_SIZE' err) $(grep -c NCCL err)" "0 1 0"
unset NCCL_DEBUG BATCHSIZE

# 2. Data.
try "missing data: 66" 66 nowhere.txt DATA -- train $base DATA=nowhere.txt
: >empty.txt
try "empty data: 65" 65 empty.txt -- train $base DATA=empty.txt
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n' >pointer.txt
mkdir lfs lfs-weights
cp pointer.txt lfs/config.json
cp pointer.txt lfs-weights/model.safetensors
echo '{"model_type":"gpt2","n_layer":1,"n_head":2,"n_embd":16,"n_positions":32,"vocab_size":50257}' >lfs-weights/config.json
for name in t.model tokenizer.json m.gguf m.bin; do cp pointer.txt $name; done
for set in DATA=pointer.txt TOKENIZER=t.model TOKENIZER=tokenizer.json MODEL=m.gguf MODEL=m.bin MODEL=lfs MODEL=lfs-weights; do
    try "a Git LFS pointer as $set: 65" 65 "is a Git LFS pointer, not the file itself" "git lfs pull" -- train $base DATA=/usr/share/common-licenses/GPL-3 $set
done
head -c 3000 /usr/share/common-licenses/GPL-3 >table.csv
try "a table is learnt with a warning" 0 ' warn .*table.csv is a table by its name' -- train $base DATA=table.csv
echo "To be, or not" >short.txt
try "too short data: 65, what there is and what is needed" 65 short.txt SEQ_LEN=16 -- train $base DATA=short.txt
mkdir hollow
run $base DATA=hollow
ok "empty folder: not accepted" refuses "$rc" hollow
ok "66 or 65" [ $rc = 66 ] || [ $rc = 65 ]
head -c 3000 /usr/share/common-licenses/GPL-3 >little.txt
try "less than one step an epoch: 65, with the numbers" 65 "GLOBAL_BATCH=100000" "SEQ_LEN=16" "EPOCHS=1" -- train $base DATA=little.txt STEPS=0 GLOBAL_BATCH=100000
run $base DATA=little.txt VOCAB=1000
ok "VOCAB smaller than the tokenizer's: refused with the value" refuses "$rc" 1000
ok "65 or 78" [ $rc = 65 ] || [ $rc = 78 ]

# 3. Token files: 256 int32 words of head, then uint16 ids.
tokens 20240520 1 40 $(seq 1 40) >good.bin
try "a good token file: 0" 0 -- train $base DATA=good.bin VOCAB=64
tokens 20240521 1 40 $(seq 1 40) >magic.bin
try "wrong magic: 65, expected and actual" 65 magic.bin 20240521 20240520 -- train $base DATA=magic.bin VOCAB=64
tokens 20240520 7 40 $(seq 1 40) >version.bin
try "wrong version: 65" 65 version.bin 7 -- train $base DATA=version.bin VOCAB=64
tokens 20240520 1 400 $(seq 1 40) >cut.bin
try "cut file: 65, the count told and the count there" 65 cut.bin 400 -- train $base DATA=cut.bin VOCAB=64
tokens 20240520 1 40 $(seq 1 30) 999 $(seq 32 40) >id.bin
try "an id the model does not have: 65" 65 id.bin 999 64 -- train $base DATA=id.bin VOCAB=64
head -c 500 good.bin >head.bin
try "cut within its head: 65" 65 head.bin -- train $base DATA=head.bin VOCAB=64

# 4. Hugging Face folders.
cp -r "$golden" hf
chmod -R u+w hf
hf="MODEL=hf BATCH_SIZE=2 SEQ_LEN=8 STEPS=2"
try "a good folder: 0" 0 -- train $hf
ok "trains from its weights" says "weights from hf"
try "a dimension its weights do not have: 78" 78 EMBED=16 "$(jq .n_embd hf/config.json)" "MODEL=hf" -- train $hf EMBED=16
jq '.n_positions += 1 | .n_ctx += 1' hf/config.json >c && cp hf/config.json config.good && mv c hf/config.json
try "wrong tensor shape: 65, tensor, expected and actual" 65 wpe "$(jq .n_positions hf/config.json)" "$(jq .n_positions config.good)" -- train $hf
cp config.good hf/config.json
head -c 3000 hf/model.safetensors >c && mv hf/model.safetensors model.good && mv c hf/model.safetensors
try "cut weights: 65" 65 model.safetensors -- train $hf
rm hf/model.safetensors
try "missing weights: 66" 66 model.safetensors -- train $hf
echo '{' >hf/config.json
try "broken config.json: 65" 65 config.json -- train $hf
try "a folder that is no model: 66" 66 MODEL=hollow config.json -- train $base MODEL=hollow
try "a folder that is not there: 66" 66 MODEL=./nowhere -- train $base MODEL=./nowhere
try "a file that is no model: 65, and what would be one" 65 "/etc/passwd is not a model file" llm.c "Hugging Face folder" -- train $base MODEL=/etc/passwd

# 5. Checkpoints.
ck="$base VOCAB=64 CHECKPOINT_DIR=ck"
run $ck CHECKPOINT_EVERY=2
ok "two checkpoints" is "$rc $(ls ck | grep -c '^step-')" "0 2"
printf X | dd of=ck/step-00000004/model.safetensors bs=1 seek=5000 conv=notrunc status=none
run $ck STEPS=6
ok "one flipped byte: that checkpoint is named and passed over, the one before is taken" \
    is "$rc $(grep -c ' warn .*step-00000004' err) $(grep -c 'resuming from ck/step-00000002' err)" "0 1 1"
rm -rf damaged && cp -r ck damaged
for f in damaged/step-*/model.safetensors; do printf X | dd of="$f" bs=1 seek=5000 conv=notrunc status=none; done
for how in auto required; do
    run $base VOCAB=64 CHECKPOINT_DIR=damaged STEPS=8 RESUME=$how
    ok "RESUME=$how where every checkpoint is damaged: 65, each named, and what to do" \
        refuses 65 "CHECKPOINT_DIR=damaged" "none is valid" "RESUME=never"
    ok "nothing is touched" is "$(grep -c ' warn .*step-' err) $(ls damaged | grep -c '^step-')" "$(ls ck | grep -c '^step-') $(ls ck | grep -c '^step-')"
done
run $base VOCAB=64 CHECKPOINT_DIR=damaged STEPS=3 RESUME=never
ok "RESUME=never begins anew there, and keeps them aside" \
    is "$rc $(newest_step damaged) $(ls -d damaged/before-*/step-* | wc -l)" "0 3 $(ls ck | grep -c '^step-')"
rm -rf ck/step-*/manifest.json
try "folders without a manifest are damaged too: 65" 65 "none is valid" -- train $ck
mkdir bare
try "RESUME=required without any: 65" 65 RESUME=required bare RESUME=auto -- train $base VOCAB=64 CHECKPOINT_DIR=bare RESUME=required
begin_training $tiny STEPS=100000000 CHECKPOINT_DIR=held
holder=$pid
cp out out.held
"$convoy" train $quiet $tiny STEPS=5 CHECKPOINT_DIR=held >out 2>err
rc=$?
ok "a folder another run writes to: 78, with the holder's pid" refuses 78 held "$(worker_of "$holder")"
kill -TERM "$holder"
wait "$holder"

# 6. Disks.
try "METRICS_FILE on a full disk: said once, training goes on: 0" 0 'cannot write METRICS_FILE=/dev/full: No space left' -- train $tiny STEPS=20 METRICS_FILE=/dev/full
ok "and the loss is counted" says "20 lines of METRICS_FILE=/dev/full could not be written"
try "METRICS_FILE in a missing folder: 78" 78 METRICS_FILE=nowhere/m.jsonl "No such file" -- train $tiny STEPS=2 METRICS_FILE=nowhere/m.jsonl
echo "dear diary" >diary.txt
try "METRICS_FILE on a file of another kind: 78, left as it is" 78 METRICS_FILE=diary.txt -- train $tiny STEPS=2 METRICS_FILE=diary.txt
ok "unchanged" is "$(cat diary.txt)" "dear diary"
: >plain
run $tiny STEPS=2 CHECKPOINT_DIR=plain/sub
ok "CHECKPOINT_DIR below a file: refused with the path" refuses "$rc" plain/sub
ok "78" is $rc 78
# What a user may not read or write; root may do everything, so root becomes another user for it.
as_user=
[ "$(id -u)" != 0 ] || as_user="setpriv --reuid=65534 --regid=65534 --clear-groups"
if $as_user true 2>/dev/null; then
    chmod 711 . # the user may pass
    cp "$convoy" ./convoy
    cp little.txt secret.txt && chmod 000 secret.txt
    mkdir theirs && chmod 555 theirs
    rc=0
    $as_user ./convoy train $quiet $base DATA=secret.txt CACHE_DIR=theirs >out 2>err || rc=$?
    ok "unreadable data: 66, with the system's text" refuses 66 secret.txt "Permission denied"
    rc=0
    $as_user ./convoy train $quiet $tiny STEPS=2 CHECKPOINT_DIR=theirs/ck >out 2>err || rc=$?
    ok "CHECKPOINT_DIR in a folder of others: 74, with the system's text" refuses 74 theirs/ck "Permission denied"
    rc=0
    $as_user ./convoy train $quiet $base DATA=little.txt CACHE_DIR=theirs/cache >out 2>err || rc=$?
    ok "CACHE_DIR in a folder of others: 74, with the setting" refuses 74 CACHE_DIR=theirs/cache "Permission denied"
else
    skip "unreadable data, folders of others" "setpriv cannot become another user here"
fi
mkdir mnt
if mount -t tmpfs -o size=700k convoy-test mnt 2>/dev/null; then
    try "disk full: periodic saves are warned about, the last one ends the run: 74" 74 -- train $tiny STEPS=40 CHECKPOINT_EVERY=10 CHECKPOINT_DIR=mnt/ck
    ok "training went on meanwhile" is "$(grep -c '^step 40/40' out) $(grep -c ' warn .*training goes on' err)" "1 2"
    ok "says bytes, and which checkpoint is intact" says "the checkpoint of step 10 is intact"
    ok "nothing half-made is left" is "$(ls -A mnt/ck | grep -c '^\.tmp')" 0
    mount -o remount,size=8m mnt
    try "with room again the run goes on from there: 0" 0 'step 10 of 40' -- train $tiny STEPS=40 CHECKPOINT_EVERY=10 CHECKPOINT_DIR=mnt/ck
    mount -o remount,size=700k mnt 2>/dev/null
    head -c 8m /dev/zero >mnt/fill 2>/dev/null
    begin_training $tiny STEPS=100000000 CHECKPOINT_DIR=mnt/ck
    stop
    ok "disk full when asked to stop: 74, not 143" is "$rc $(grep -c 'the last checkpoint (SIGTERM, step' err)" "74 1"
    rm mnt/fill
    mount -o remount,ro mnt
    try "read-only folder: 74, with the path and the system's text" 74 mnt/ck "Read-only file system" -- train $tiny STEPS=41 CHECKPOINT_DIR=mnt/ck
    try "read-only METRICS_FILE: 74" 74 METRICS_FILE=mnt/m.jsonl "Read-only file system" -- train $tiny STEPS=2 METRICS_FILE=mnt/m.jsonl
    umount mnt
else
    skip "disk full, read-only folder" "no right to mount a tmpfs"
fi
done_testing
