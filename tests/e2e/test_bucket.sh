#!/bin/bash
# test_bucket — CHECKPOINT_DIR=s3://bucket/prefix, against a server of the tests' own that checks signatures: uploads while training goes on, the
# manifest last, resume on another machine (another CACHE_DIR) of another number of workers with the same bits, kill -9 at 20 points of an upload,
# a store that refuses, fails or does not answer, and the commands that read checkpoints from a bucket.
. "$(dirname "$0")/lib.sh"
fake=$root/${BUILD:-build}/tests/remote/test_s3
case ${BUILD:-build} in /*) fake=$BUILD/tests/remote/test_s3 ;; esac
there jq curl || give_up "jq and curl" "not installed here"

"$fake" serve >fake.port 2>fake.err &
track
fake_pid=$pid
has_port() { [ -s fake.port ]; }
wait_for 10 has_port
s3=http://127.0.0.1:$(cat fake.port)
export AWS_ENDPOINT_URL=$s3 AWS_REGION=us-east-1 AWS_ACCESS_KEY_ID=AKIDFAKE AWS_SECRET_ACCESS_KEY=fake/secret+key ALLOW_LOCAL_URLS=1
unset AWS_SESSION_TOKEN AWS_PROFILE

# fault KIND METHOD KEY [N] — the next N requests fail so; heal — none does. state — the server's objects. objects PREFIX — their keys below it.
fault() { curl -s -o /dev/null -X PUT "$s3/_fault?kind=$1&method=$2&key=$3&n=${4:-1000000}"; }
heal() { curl -s -o /dev/null -X DELETE "$s3/_fault"; }
state() { curl -s --max-time 10 "$s3/_state"; }
objects() { state | sed -n "s|^object bucket/$1/\([^ ]*\) .*|\1|p" | sort; }
object() { curl -s "$s3/_object/bucket/$1"; } # object KEY — its bytes
whole() { objects "$1" | sed -n 's|^step-0*\([0-9]*\)/manifest.json$|\1|p' | sort -n; } # whole PREFIX — the complete checkpoints
cut_steps() { comm -13 <(objects "$1" | sed -n 's|/manifest.json$||p') <(objects "$1" | sed -n 's|^\(step-[0-9]*\)/.*|\1|p' | uniq); }
has_whole() { [ "$(whole "$1" | tail -n 1)" -ge "$2" ] 2>/dev/null; }
# machine N — the next runs are on a machine with an empty disk. local_dir PREFIX — the local folder of a run there.
machine() { export XDG_CACHE_HOME=$tmp/machine$1; }
local_dir() { echo "$XDG_CACHE_HOME/convoy/checkpoints/${AWS_ENDPOINT_URL#http://}/bucket/$1"; }
kill_all() {
    local p
    for p in $(workers_of "$pid") "$pid"; do kill -KILL "$p" 2>/dev/null; done
    finish
}
shards="EXACT=layout VIRTUAL_SHARDS=2 GLOBAL_BATCH=4"
bucket_of() { echo "CHECKPOINT_DIR=s3://bucket/$1"; }

# 1. A run, and its checkpoints in the bucket.
machine 1
run $tiny $shards STEPS=60 CHECKPOINT_DIR=calm METRICS_FILE=calm.jsonl
run $tiny $shards STEPS=60 STOP_AFTER=40 $(bucket_of one) CHECKPOINT_EVERY=10 METRICS_FILE=one.jsonl CHECKPOINT_KEEP=2
ok "a run with a bucket ends with 0" is "$rc" 0
ok "its last checkpoint is in the bucket" is "$(whole one | tail -n 1)" 40
ok "CHECKPOINT_KEEP holds there" [ "$(whole one | wc -l)" -le 2 ]
ok "the object is the local file" is "$(object one/step-00000040/model.safetensors | cksum)" "$(cksum <"$(local_dir one)/step-00000040/model.safetensors")"
ok "nothing else is left there" is "$(objects one | grep -v '^step-' | xargs) $(cut_steps one)" "ledger.jsonl owner.json "
ok "every request was signed right" is "$(state | awk '/^forged/ { print $2 }')" 0

# 2. Another machine, with another number of workers.
machine 2
run $tiny $shards STEPS=60 $(bucket_of one) CHECKPOINT_EVERY=10 METRICS_FILE=two.jsonl N_GPU_EACH_NODE=2 CHECKPOINT_KEEP=2
ok "resumes from the bucket" is "$rc $(grep -c 'resuming from .*step-00000040: step 40 of 60' err)" "0 1"
ok "with the losses of an undisturbed run, bit for bit" is "$(cat one.jsonl two.jsonl | jq -c '[.step,.loss]' | cksum)" "$(jq -c '[.step,.loss]' calm.jsonl | cksum)"
ok "and its weights" is "$(object one/step-00000060/model.safetensors | cksum)" "$(cksum <calm/step-00000060/model.safetensors)"
run $tiny $shards STEPS=60 $(bucket_of one)
ok "started once more: nothing to do" is "$rc $(grep -c 'nothing to do' out)" "0 1"
machine 3
run $tiny $shards STEPS=60 $(bucket_of one)
ok "nor on a third machine" is "$rc $(grep -c 'nothing to do' out)" "0 1"
run $tiny $shards STEPS=70 $(bucket_of one) RESUME=never
ok "RESUME=never is refused: nothing can be moved aside" ended 78 'use another prefix, such as s3://bucket/one-2'
run $tiny $shards STEPS=70 CHECKPOINT_DIR=s3://bucket/one/step-00000060
ok "one checkpoint is no CHECKPOINT_DIR of a run" ended 78 'set it to the prefix of the run'
run $tiny $shards STEPS=70 CHECKPOINT_DIR=s3://bucket/../one
ok "a prefix that leads out of CACHE_DIR is refused" ended 78 'a part of its prefix is'
run $tiny STEPS=5 $(bucket_of empty) RESUME=required
ok "RESUME=required and an empty prefix" ended 65 'RESUME=required'

port=$(free_port)
pair="N_NODES=2 MASTER_PORT=$port JOB_TOKEN=none MASTER_ADDR=127.0.0.1 STEPS=70 CHECKPOINT_EVERY=5"
machine 3b
"$convoy" train $quiet $tiny $shards $pair NODE_ID=1 $(bucket_of one) >out1 2>err1 &
track
other=$pid
machine 3c
run $tiny $shards $pair NODE_ID=0 $(bucket_of one) CHECKPOINT_KEEP=2
rc1=0
wait $other || rc1=$?
ok "two new nodes: node 0 resumes from the bucket" is "$rc $rc1 $(grep -c 'resuming from .*step-00000060: step 60 of 70' err)" "0 0 1"
ok "and only node 0 uses the bucket" is "$(whole one | tail -n 1) $(grep -c s3:// err1) $(ls "$tmp/machine3b/convoy" 2>/dev/null | grep -c checkpoints)" "70 0 0"
run $tiny $shards STEPS=70 CHECKPOINT_DIR=calm
ok "with the bits of an undisturbed run of one worker" is "$(object one/step-00000070/model.safetensors | cksum)" "$(cksum <calm/step-00000070/model.safetensors)"
run $tiny STEPS=30 $(bucket_of full) CHECKPOINT_EVERY=10 FAULT=enospc@step=10
ok "a full local disk: the run goes on, and uploads what it saved" is "$rc $(grep -c 'no space left on device' err) $(whole full | tail -n 1)" "0 1 30"

run $tiny STEPS=60 $(bucket_of heals) CHECKPOINT_EVERY=10 FAULT=kill@step=41
ok "a worker that dies interrupts no upload" is "$rc $(grep -c 'restart 1 of 3' err) $(whole heals | tail -n 1)" "0 1 60"

# 3. Commands that read from a bucket.
machine 4
work verify s3://bucket/one
older=$(whole one | head -n 1)
ok "verify: every sample of both machines exactly once" is "$rc $(grep -c 'steps       1 to 70, samples 0 to 279: every sample exactly once' out)" "0 1"
machine 4a
work status s3://bucket/one
ok "status lists them, without a download of tensors" is "$rc $(grep -c "^kept        2 checkpoints: step 70, $older\$" out) $(find "$XDG_CACHE_HOME/convoy/runs" -name 'step-*' | wc -l)" "0 1 0"
work status s3://bucket/one JSON=1
ok "as JSON, too" is "$(jq -c '[.folder, .checkpoint, .step, .checkpoints]' out)" "[\"s3://bucket/one\",\"s3://bucket/one/step-00000070\",70,[70,$older]]"
work status s3://bucket/nothing
ok "status: there is none" ended 1 'holds no checkpoint and no history'
machine 4
machine 4d
for k in 1 2 3; do "$convoy" export FROM=s3://bucket/one TO=at-once-$k >out$k 2>err$k & done
wait $(jobs -p | grep -v "$fake_pid")
ok "three commands at the same time: one downloads" is "$(cat at-once-*/model.safetensors | wc -c) $(cat err[123] | grep -c 'downloaded s3://bucket/one/step-00000070')" "$((3 * $(wc -c <at-once-1/model.safetensors))) 1"
machine 4e
run MODEL=s3://bucket/one SEQ_LEN=16 BATCH_SIZE=2 STEPS=2
ok "MODEL: a new run from the weights of a run in a bucket" is "$rc $(grep -c 'weights from .*/runs/127.0.0.1:[0-9]*/bucket/one/step-00000070' err)" "0 1"
work export FROM=s3://bucket/one TO=hf
work export FROM=calm TO=hf-calm
ok "export from the bucket" is "$rc $(cksum <hf/model.safetensors)" "0 $(cksum <hf-calm/model.safetensors)"
work export FROM=s3://bucket/one/step-000000$older TO=s3://bucket/models/m1
ok "export of one checkpoint to the bucket" is "$rc $(objects models/m1 | xargs)" "0 config.json generation_config.json model.safetensors"
work export FROM=calm TO=s3://bucket/models/m1
ok "an export that exists is refused" ended 78 'exists already'
work eval $tiny CHECKPOINT_DIR=s3://bucket/one VAL_DATA=synthetic
cp out eval.bucket
work eval $tiny CHECKPOINT_DIR=calm VAL_DATA=synthetic
ok "eval" is "$rc $(tail -n 1 eval.bucket)" "0 $(tail -n 1 out)"

# A store that hangs, or another process that downloads: the worker and the commands obey a signal.
machine 4f
kill -STOP "$fake_pid"
begin MODEL=s3://bucket/one SEQ_LEN=16 BATCH_SIZE=2 STEPS=2
wait_for 30 has_worker
sleep 1
stop
ok "MODEL in a store that hangs: SIGTERM ends the worker's download" is "$rc $(grep -c 'stopped by SIGTERM while loading.* nothing to save' err)" "143 1"
perl -e '$SIG{INT} = "DEFAULT"; exec @ARGV' "$convoy" verify s3://bucket/one >out 2>err &
track
sleep 1
kill -INT "$pid"
wait_for 10 is_gone "$pid"
kill -CONT "$fake_pid"
finish
ok "a command ends with SIGINT" is "$rc" 130
mkdir -p "$XDG_CACHE_HOME/convoy/runs/${AWS_ENDPOINT_URL#http://}/bucket/one"
perl -e 'use Fcntl ":flock"; open F, ">>", shift or die; flock F, LOCK_EX or die; print "locked\n"; close STDOUT; sleep 600' \
    "$XDG_CACHE_HOME/convoy/runs/${AWS_ENDPOINT_URL#http://}/bucket/one/.download" >locked &
track
holder=$pid
wait_for 10 test -s locked
begin MODEL=s3://bucket/one SEQ_LEN=16 BATCH_SIZE=2 STEPS=2
wait_for 30 said 'another process of this machine downloads to'
stop
ok "MODEL that another process downloads: SIGTERM ends the wait, too" is "$rc $(grep -c 'stopped by SIGTERM while loading.* nothing to save' err)" "143 1"
kill "$holder"

work verify s3://bucket/nothing
ok "verify: there is no run" ended 66 'has no ledger.jsonl'
work export FROM=s3://bucket/one/step-00000007 TO=hf7
ok "a checkpoint that is not there" ended 66 'no complete checkpoint of step 7'

perl -e 'print "the cat sat on the mat and ate the rat number $_\n" for 1 .. 400' >book.txt
work train-tokenizer DATA=book.txt OUT=tok VOCAB=300
machine 4b
port=$(free_port)
begin_served MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=32 VOCAB=300 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=2 DATA=book.txt TOKENIZER=tok STEPS=4000 $(bucket_of curves)
finish
ok "a run with a page and a tokenizer of its own: both are in the bucket" is "$rc $(objects curves | grep -c -e '^history.json$' -e '^tokenizer/tokenizer.json$')" "0 2"
machine 4c
work status s3://bucket/curves
ok "status reads them, up to the end" is "$rc $(object curves/history.json | jq -r '[.events[] | select(.kind == "phase") | .text] | last')" "0 done"
work generate CHECKPOINT_DIR=s3://bucket/curves PROMPT='the cat' TOKENS=5 TEMPERATURE=0
ok "generate uses its tokenizer" is "$rc $(grep -c 'tokenizer .*tokenizer.*: 300 ids' err)" "0 1"
begin_served MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=32 VOCAB=300 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=2 DATA=book.txt TOKENIZER=tok STEPS=5000 $(bucket_of curves)
finish
ok "a resumed run continues the curves on another machine" is "$rc $(object curves/history.json | jq '[.events[] | select(.text == "resumed from step 4000")] | length')" "0 1"

# 4. kill -9 of all processes at 20 points of an upload, each time on another machine, of one or two workers. The request that is named cannot
#    succeed, so the upload stands before it; then all processes die.
points="PUT:owner.json PUT:model.safetensors PUT:optim_m PUT:optim_v PUT:ledger.jsonl PUT:manifest.json GET:owner.json GET:bucket
    DELETE:manifest.json DELETE:model.safetensors DELETE:optim_m DELETE:optim_v PUT:manifest.json PUT:optim_v random random random random random random"
steps=3000
run $tiny $shards STEPS=$steps CHECKPOINT_DIR=calm2
i=0 before=0 lost=0 cut=0 bad=0
# has_local — there is a checkpoint to upload, or the run is at its end.
has_local() { [ "$(newest_step "$(local_dir killed)")" -gt $before ] 2>/dev/null || grep -q "nothing to do" out; }
for point in $points; do
    i=$((i + 1))
    machine k$i
    begin $tiny $shards STEPS=$steps $(bucket_of killed) CHECKPOINT_EVERY=40 CHECKPOINT_KEEP=2 N_GPU_EACH_NODE=$((1 + i % 2))
    wait_for 60 has_local || bad=$((bad + 1))
    if [ $point = random ]; then
        sleep 0.$((RANDOM % 40 + 10))
    else
        fault 503 ${point%:*} ${point#*:}
        sleep 0.4
    fi
    kill_all
    heal
    now=$(whole killed | tail -n 1)
    [ "${now:-0}" -ge $before ] || lost=$((lost + 1))
    before=${now:-0}
    [ -z "$(cut_steps killed)" ] || cut=$((cut + 1))
    rm -rf "$XDG_CACHE_HOME"
done
ok "kill -9 at $i points: no complete checkpoint was lost" is "$lost $bad" "0 0"
ok "and $cut of them left an upload without a manifest" [ $cut -ge 4 ]
ok "and checkpoints went on" [ $before -gt 40 ]
machine end
run $tiny $shards STEPS=$steps $(bucket_of killed) CHECKPOINT_EVERY=500 CHECKPOINT_KEEP=2 N_GPU_EACH_NODE=2
ok "the next run ends as an undisturbed one, bit for bit" is "$rc $(object killed/step-0000$steps/model.safetensors | cksum)" "0 $(cksum <calm2/step-0000$steps/model.safetensors)"
ok "what the killed ones left is removed" is "$(cut_steps killed) $(whole killed | wc -l)" " 2"
work verify s3://bucket/killed
ok "every sample of all machines exactly once" is "$rc $(grep -c "steps       1 to $steps,.*: every sample exactly once" out)" "0 1"

# 5. A local folder that is newer than the bucket, and one that is older.
machine 5
fault 503 PUT both/step-
run $tiny $shards STEPS=40 $(bucket_of both) UPLOAD_TIMEOUT=1s
ok "a store that never succeeds: 74 after UPLOAD_TIMEOUT" ended 74 'the checkpoint of step 40 is not in s3://bucket/both after UPLOAD_TIMEOUT=1s, [0-9]* bytes'
ok "with the reason" ended 74 'the last attempt: .*HTTP 503'
fault 503 PUT late/step-
run $tiny $shards STEPS=6000 $(bucket_of late) CHECKPOINT_EVERY=1000 UPLOAD_TIMEOUT=5s
ok "the wait and its end name one checkpoint" is "$rc $(grep -o 'the checkpoint of step [0-9]* \(is\|are\) not in' err | sed 's/ are / is /' | sort | uniq -c | xargs)" \
    "74 2 the checkpoint of step 6000 is not in"
ok "and the wait has the reason" is "$(grep -c 'a second SIGINT or SIGTERM ends the wait; the last attempt: .*HTTP 503' err)" 1
heal
run $tiny $shards STEPS=40 $(bucket_of both)
ok "the same command uploads it" is "$rc $(whole both)" "0 40"
machine 6
run $tiny $shards STEPS=60 $(bucket_of both)
machine 5
run $tiny $shards STEPS=60 $(bucket_of both)
ok "the first machine gets the newer one" is "$rc $(grep -c 'nothing to do' out) $(newest_step "$(local_dir both)")" "0 1 60"
ok "with its ledger" is "$("$convoy" verify "$(local_dir both)" JSON=1 | jq -c '[.last_step,.generations]')" "[60,2]"
"$fake" serve >fake2.port 2>fake2.err &
track
has_second_port() { [ -s fake2.port ]; }
wait_for 10 has_second_port
AWS_ENDPOINT_URL=http://127.0.0.1:$(cat fake2.port) run $tiny $shards STEPS=20 $(bucket_of both)
ok "another store with a bucket of that name: a new run" is "$rc $(grep -c 'resuming\|nothing to do' err out | xargs) $(whole both | xargs)" "0 err:0 out:0 40 60"
ok "in a folder of its own" is "$(ls "$XDG_CACHE_HOME/convoy/checkpoints" | wc -l) $(newest_step "$(local_dir both)")" "2 60"
machine 5a
fault 503 PUT never/step-
run $tiny $shards STEPS=60 SEED=1 $(bucket_of never) UPLOAD_TIMEOUT=1s
heal
run $tiny $shards STEPS=30 SEED=7 $(bucket_of never) CHECKPOINT_EVERY=10 RESUME=never
ok "RESUME=never: its own checkpoints are uploaded, and none that it moves aside" is "$rc $(whole never | grep -c 60) $(whole never | tail -n 1)" "0 0 30"
machine 5b
fault 503 PUT replaced/step-
run $tiny $shards STEPS=60 $(bucket_of replaced) CHECKPOINT_EVERY=20 UPLOAD_TIMEOUT=1s
heal
newest=$(local_dir replaced)/step-00000060/model.safetensors
cksum <"$newest" >undamaged
perl -pi -0777 -e 'substr($_, -20, 1) ^= "\x10"' "$newest"
truncate -s 100 "$(local_dir replaced)/step-00000040/optim_m.safetensors"
run $tiny $shards STEPS=60 $(bucket_of replaced) CHECKPOINT_EVERY=20
ok "damaged local checkpoints are uploaded after the run has replaced them" is "$rc $(object replaced/step-00000060/model.safetensors | cksum)" "0 $(cat undamaged)"

# 6. A damaged checkpoint in the bucket.
machine 7
run $tiny $shards STEPS=30 STOP_AFTER=20 $(bucket_of damaged)
run $tiny $shards STEPS=30 $(bucket_of damaged)
object damaged/step-00000030/model.safetensors | perl -0777 -pe 'substr($_, -20, 1) ^= "\x10"' >flipped
curl -s -o /dev/null -X PUT --data-binary @flipped "$s3/_object/bucket/damaged/step-00000030/model.safetensors"
machine 7a
work verify s3://bucket/damaged
ok "verify reports it" is "$rc $(grep -c '^damaged  *.*step-00000030' out) $(grep -c 'steps       1 to 30' out)" "1 1 1"
machine 8
run $tiny $shards STEPS=30 $(bucket_of damaged) CHECKPOINT_EVERY=10
before_it=$(grep -o 'resuming from .*step-0*[0-9]*' err | sed 's/.*step-0*//')
ok "it is skipped, and the one before it is used" is "$rc $(grep -c 'skipping a damaged checkpoint' err)" "0 1"
ok "of step ${before_it:-?}" [ "${before_it:-30}" -lt 30 ]
machine 7a
work verify s3://bucket/damaged
ok "verify reads it anew after it was replaced" is "$rc $(grep -c '^damaged' out)" "0 0"
machine 8
ok "and it is replaced" is "$(object damaged/step-00000030/model.safetensors | cksum)" "$(cksum <"$(local_dir damaged)/step-00000030/model.safetensors")"

for f in model manifest optim_m optim_v; do
    f=$f.$([ $f = manifest ] && echo json || echo safetensors)
    if [ $f = model.safetensors ]; then cat flipped; else object damaged/step-00000030/$f; fi |
        curl -s -o /dev/null -X PUT --data-binary @- "$s3/_object/bucket/alldamaged/step-00000030/$f"
done
machine 8b
run $tiny $shards STEPS=30 $(bucket_of alldamaged)
ok "all are damaged: refused" ended 65 'holds checkpoints, but all are damaged'

# 7. Stores that refuse, fail or do not answer.
machine 9
run $tiny STEPS=5 CHECKPOINT_DIR=s3://readonly/run
ok "no permission to write: at the start, by name" ended 78 'PutObject'
run $tiny STEPS=5 CHECKPOINT_DIR=s3://missing-bucket/run
ok "no such bucket" ended 78 'missing-bucket'
AWS_SECRET_ACCESS_KEY=wrong run $tiny STEPS=5 $(bucket_of wrong)
ok "a wrong key" ended 78 'AWS_SECRET_ACCESS_KEY'
port=$(free_port)
pair="N_NODES=2 MASTER_PORT=$port JOB_TOKEN=none MASTER_ADDR=127.0.0.1 STEPS=5"
AWS_SECRET_ACCESS_KEY=wrong "$convoy" train $quiet $tiny $shards $pair NODE_ID=0 $(bucket_of wrong) >out1 2>err1 &
track
other=$pid
limit 30 "$convoy" train $quiet $tiny $shards $pair NODE_ID=1 $(bucket_of wrong) >out 2>err
rc=$?
rc1=0
wait $other || rc1=$?
ok "with two nodes both end" is "$rc1 $rc $(grep -c ' error .*AWS_SECRET_ACCESS_KEY' err)" "78 78 1"
kill -STOP "$fake_pid"
port=$(free_port)
begin_served $tiny STEPS=5 $(bucket_of hangs)
wait_for 20 status_has '.phase == "loading"'
t=$(now_ms)
kill -TERM "$pid"
wait_for 20 is_gone "$pid"
t=$(($(now_ms) - t))
kill -CONT "$fake_pid"
finish
ok "a store that hangs at the start: SIGTERM ends the run" is "$rc $(grep -c 'stopped by SIGTERM before the workers started' err)" "143 1"
ok "immediately" within $t 3000
machine 9a
fault 500 GET one/step-
port=$(free_port)
begin_served $tiny $shards STEPS=80 $(bucket_of one)
ok "a download that fails again and again: /status has the reason" wait_for 30 status_has '.upload.error // "" | test("500")'
kill -TERM "$pid"
finish
heal
ok "a stop leaves no curves, which the next start would move aside" is "$rc $(find "$(local_dir one)" -name 'history*' | wc -l)" "143 0"
machine 9
port=$(free_port)
begin_served $tiny $shards STEPS=100000000 $(bucket_of storm) CHECKPOINT_EVERY=200
ok "uploads are in /status" wait_for 60 status_has '.upload.step >= 200'
"$convoy" status "http://127.0.0.1:$port" >out 2>err2
ok "and in convoy status, which ends with 0" is "$? $(grep -cE '^uploaded    step [0-9]+ to s3://bucket/storm' out)" "0 1"
fault 503 PUT storm/step-
step=$(get /status | jq .step)
more() { status_has ".step > $step + 2000 and .upload.bytes_waiting > 0"; }
ok "a storm of 503: training does not wait" wait_for 60 more
at=$(jq .upload.step status.json)
ok "and bytes wait" is "$(jq -r '.upload.bucket, .upload.bytes_waiting > 0' status.json | xargs)" "s3://bucket/storm true"
ok "/metrics has them" is "$(get /metrics | awk '/^convoy_upload_(waiting_bytes|step) / && $2 > 0' | wc -l)" 2
heal
ok "after it uploads go on" wait_for 120 status_has ".upload.step > $at"
stall=$(get /status | jq '.checkpoint.stall_seconds < 1')
ok "no save waited for the network" is "$stall" true
get /status >status.json
get /metrics >metrics
kill -STOP "$fake_pid"
sleep 0.5
kill -TERM "$pid"
sleep 1.5
kill -INT "$pid"
t=$(now_ms)
finish
kill -CONT "$fake_pid"
ok "a store that hangs, and two signals: the end is immediate" within $(($(now_ms) - t)) 4000
ok "with the code of the second signal" is "$rc $(grep -c 'because of a second signal' err)" "130 1"
cp err storm.err

work check $quiet CHECK=quick DEVICE=cpu JSON=1 $(bucket_of checked)
ok "check tries the bucket" is "$(jq -c '[.rows[] | select(.name | startswith("bucket")) | .name, .verdict]' out)" \
    '["bucket list","pass","bucket write","pass","bucket read","pass","bucket delete","pass"]'
ok "and leaves nothing there" is "$(objects checked)" ""
work check $quiet CHECK=quick DEVICE=cpu JSON=1 CHECKPOINT_DIR=s3://readonly/x
ok "check: no permission to write" is "$rc $(jq -c '[.rows[] | select(.name | startswith("bucket")) | .name, .verdict]' out)" '1 ["bucket write","fail","bucket list","pass"]'

# 8. Two runs with one prefix: the one that uploads last owns it.
machine 10
begin $tiny $shards STEPS=100000000 $(bucket_of shared) CHECKPOINT_EVERY=300
first=$pid
wait_for 60 has_whole shared 300
cp err first.err
machine 11
"$convoy" train $quiet $tiny $shards STEPS=100000000 $(bucket_of shared) CHECKPOINT_EVERY=300 >out2 2>err2 &
track
second=$pid pid=$first
finish
ok "the first one ends, and says why" ended 78 'another run .* uploads to s3://bucket/shared now'
kill -TERM $second
rc=0
wait $second || rc=$?
ok "the second one goes on until it is stopped" is "$rc" 143

# 9. No secret anywhere.
secret() { ! grep -rIl -e 'fake/secret' -e 'Signature=' "$@"; }
ok "no secret in logs, answers, local folders" secret err out storm.err status.json metrics machine* err2 first.err
for key in one/ledger.jsonl one/owner.json one/step-00000060/manifest.json; do object $key; done >bucket.text
ok "nor in the bucket" secret bucket.text
done_testing
