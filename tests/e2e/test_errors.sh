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
run $base BATCH_SISE=4
ok "unknown setting: 64, with the nearest name" refuses 64 BATCH_SISE BATCH_SIZE
run $base BATCH_SIZE=8x
ok "not a number: 78" refuses 78 BATCH_SIZE=8x
run $base HEADS=3
ok "heads that do not divide: 78, both values" refuses 78 "HEADS" 3 16
run $base SEQ_LEN=33
ok "SEQ_LEN over CONTEXT: 78, both values" refuses 78 "SEQ_LEN=33" 32
run $base CONTEXT=0 SEQ_LEN=1025
ok "SEQ_LEN over the preset's context: 78" refuses 78 "SEQ_LEN=1025 (argument)" 1024 "lower SEQ_LEN"
run $base GLOBAL_BATCH=3
ok "GLOBAL_BATCH no multiple of BATCH_SIZE: 78" refuses 78 GLOBAL_BATCH=3 BATCH_SIZE=2
run $base MODEL=gpt2-nona
ok "unknown model: 78, with the known ones" refuses 78 MODEL=gpt2-nona gpt2-nano
run $base RESUME=required
ok "RESUME=required without CHECKPOINT_DIR: 78" refuses 78 RESUME=required CHECKPOINT_DIR
run $base DEVICE=cuda
ok "a device that is not there: 69" refuses 69 "DEVICE=cpu"
run $base TASK=qa DATA=/usr/share/common-licenses/GPL-3
ok "question answering on text: 78" refuses 78 TASK=qa "DATA"
export NCCL_DEBUG=INFO BATCHSIZE=4
run $base
ok "a near-miss name in the environment is warned about, others are left alone" \
    is "$rc $(grep -c ' warn .*BATCHSIZE.*BATCH_SIZE' err) $(grep -c NCCL err)" "0 1 0"
unset NCCL_DEBUG BATCHSIZE

# 2. Data.
run $base DATA=nowhere.txt
ok "missing data: 66" refuses 66 nowhere.txt DATA
: >empty.txt
run $base DATA=empty.txt
ok "empty data: 65" refuses 65 empty.txt
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12345\n' >pointer.txt
mkdir lfs lfs-weights
cp pointer.txt lfs/config.json
cp pointer.txt lfs-weights/model.safetensors
echo '{"model_type":"gpt2","n_layer":1,"n_head":2,"n_embd":16,"n_positions":32,"vocab_size":50257}' >lfs-weights/config.json
for name in t.model tokenizer.json m.gguf m.bin; do cp pointer.txt $name; done
for set in DATA=pointer.txt TOKENIZER=t.model TOKENIZER=tokenizer.json MODEL=m.gguf MODEL=m.bin MODEL=lfs MODEL=lfs-weights; do
    run $base DATA=/usr/share/common-licenses/GPL-3 $set
    ok "a Git LFS pointer as $set: 65" refuses 65 "is a Git LFS pointer, not the file itself" "git lfs pull"
done
head -c 3000 /usr/share/common-licenses/GPL-3 >table.csv
run $base DATA=table.csv
ok "a table is learnt with a warning" is "$rc $(grep -c ' warn .*table.csv is a table by its name' err)" "0 1"
echo "To be, or not" >short.txt
run $base DATA=short.txt
ok "too short data: 65, what there is and what is needed" refuses 65 short.txt SEQ_LEN=16
mkdir hollow
run $base DATA=hollow
ok "empty folder: not accepted" refuses "$rc" hollow
ok "66 or 65" [ $rc = 66 ] || [ $rc = 65 ]
head -c 3000 /usr/share/common-licenses/GPL-3 >little.txt
run $base DATA=little.txt STEPS=0 GLOBAL_BATCH=100000
ok "less than one step an epoch: 65, with the numbers" refuses 65 "GLOBAL_BATCH=100000" "SEQ_LEN=16" "EPOCHS=1"
run $base DATA=little.txt VOCAB=1000
ok "VOCAB smaller than the tokenizer's: refused with the value" refuses "$rc" 1000
ok "65 or 78" [ $rc = 65 ] || [ $rc = 78 ]

# 3. Token files: 256 int32 words of head, then uint16 ids.
tokens 20240520 1 40 $(seq 1 40) >good.bin
run $base DATA=good.bin VOCAB=64
ok "a good token file: 0" is $rc 0
tokens 20240521 1 40 $(seq 1 40) >magic.bin
run $base DATA=magic.bin VOCAB=64
ok "wrong magic: 65, expected and actual" refuses 65 magic.bin 20240521 20240520
tokens 20240520 7 40 $(seq 1 40) >version.bin
run $base DATA=version.bin VOCAB=64
ok "wrong version: 65" refuses 65 version.bin 7
tokens 20240520 1 400 $(seq 1 40) >cut.bin
run $base DATA=cut.bin VOCAB=64
ok "cut file: 65, the count told and the count there" refuses 65 cut.bin 400
tokens 20240520 1 40 $(seq 1 30) 999 $(seq 32 40) >id.bin
run $base DATA=id.bin VOCAB=64
ok "an id the model does not have: 65" refuses 65 id.bin 999 64
head -c 500 good.bin >head.bin
run $base DATA=head.bin VOCAB=64
ok "cut within its head: 65" refuses 65 head.bin

# 4. Hugging Face folders.
cp -r "$golden" hf
chmod -R u+w hf
hf="MODEL=hf BATCH_SIZE=2 SEQ_LEN=8 STEPS=2"
run $hf
ok "a good folder: 0" is $rc 0
ok "trains from its weights" says "weights from hf"
run $hf EMBED=16
ok "a dimension its weights do not have: 78" refuses 78 EMBED=16 "$(jq .n_embd hf/config.json)" "MODEL=hf"
jq '.n_positions += 1 | .n_ctx += 1' hf/config.json >c && cp hf/config.json config.good && mv c hf/config.json
run $hf
ok "wrong tensor shape: 65, tensor, expected and actual" \
    refuses 65 wpe "$(jq .n_positions hf/config.json)" "$(jq .n_positions config.good)"
cp config.good hf/config.json
head -c 3000 hf/model.safetensors >c && mv hf/model.safetensors model.good && mv c hf/model.safetensors
run $hf
ok "cut weights: 65" refuses 65 model.safetensors
rm hf/model.safetensors
run $hf
ok "missing weights: 66" refuses 66 model.safetensors
echo '{' >hf/config.json
run $hf
ok "broken config.json: 65" refuses 65 config.json
run $base MODEL=hollow
ok "a folder that is no model: 66" refuses 66 MODEL=hollow config.json
run $base MODEL=./nowhere
ok "a folder that is not there: 66" refuses 66 MODEL=./nowhere
run $base MODEL=/etc/passwd
ok "a file that is no model: 65, and what would be one" refuses 65 "/etc/passwd is not a model file" llm.c "Hugging Face folder"

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
run $ck
ok "folders without a manifest are damaged too: 65" refuses 65 "none is valid"
mkdir bare
run $base VOCAB=64 CHECKPOINT_DIR=bare RESUME=required
ok "RESUME=required without any: 65" refuses 65 RESUME=required bare RESUME=auto
begin $tiny STEPS=100000000 CHECKPOINT_DIR=held
wait_for 20 is_training
holder=$pid
cp out out.held
"$convoy" train $quiet $tiny STEPS=5 CHECKPOINT_DIR=held >out 2>err
rc=$?
ok "a folder another run writes to: 78, with the holder's pid" refuses 78 held "$(worker_of "$holder")"
kill -TERM "$holder"
wait "$holder"

# 6. Disks.
run $tiny STEPS=20 METRICS_FILE=/dev/full
ok "METRICS_FILE on a full disk: said once, training goes on: 0" is "$rc $(grep -c 'cannot write METRICS_FILE=/dev/full: No space left' err)" "0 1"
ok "and the loss is counted" says "20 lines of METRICS_FILE=/dev/full could not be written"
run $tiny STEPS=2 METRICS_FILE=nowhere/m.jsonl
ok "METRICS_FILE in a missing folder: 78" refuses 78 METRICS_FILE=nowhere/m.jsonl "No such file"
echo "dear diary" >diary.txt
run $tiny STEPS=2 METRICS_FILE=diary.txt
ok "METRICS_FILE on a file of another kind: 78, left as it is" refuses 78 METRICS_FILE=diary.txt
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
    run $tiny STEPS=40 CHECKPOINT_EVERY=10 CHECKPOINT_DIR=mnt/ck
    ok "disk full: periodic saves are warned about, the last one ends the run: 74" is $rc 74
    ok "training went on meanwhile" is "$(grep -c '^step 40/40' out) $(grep -c ' warn .*training goes on' err)" "1 2"
    ok "says bytes, and which checkpoint is intact" says "the checkpoint of step 10 is intact"
    ok "nothing half-made is left" is "$(ls -A mnt/ck | grep -c '^\.tmp')" 0
    mount -o remount,size=8m mnt
    run $tiny STEPS=40 CHECKPOINT_EVERY=10 CHECKPOINT_DIR=mnt/ck
    ok "with room again the run goes on from there: 0" is "$rc $(grep -c 'step 10 of 40' err)" "0 1"
    mount -o remount,size=700k mnt 2>/dev/null
    head -c 8m /dev/zero >mnt/fill 2>/dev/null
    begin $tiny STEPS=100000000 CHECKPOINT_DIR=mnt/ck
    wait_for 20 is_training
    kill -TERM "$pid"
    finish
    ok "disk full when asked to stop: 74, not 143" is "$rc $(grep -c 'the last checkpoint (SIGTERM, step' err)" "74 1"
    rm mnt/fill
    mount -o remount,ro mnt
    run $tiny STEPS=41 CHECKPOINT_DIR=mnt/ck
    ok "read-only folder: 74, with the path and the system's text" refuses 74 mnt/ck "Read-only file system"
    run $tiny STEPS=2 METRICS_FILE=mnt/m.jsonl
    ok "read-only METRICS_FILE: 74" refuses 74 METRICS_FILE=mnt/m.jsonl "Read-only file system"
    umount mnt
else
    skip "disk full, read-only folder" "no right to mount a tmpfs"
fi
done_testing
