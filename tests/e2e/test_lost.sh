#!/bin/bash
# test_lost — what a node shows while another one is lost: its ranks do not train, since when, and from where the job really
# resumes. Curves get no point that was not measured.
. "$(dirname "$0")/lib.sh"
export JOB_TOKEN=a-secret-for-these-tests-only
port=$(free_port)
url=http://127.0.0.1:$port
# resumes FROM — how often the log has said so since the node was killed: on a busy machine there may have been other losses before.
resumes() { tail -n "+$((lines + 1))" err | grep -c "resuming from $1.*when all ranks are back"; }
# lose SETTING… — two nodes train; node 1 is killed; node 0 ($pid) waits for it.
lose() {
    local all
    all="$tiny STEPS=100000000 N_NODES=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port) PEER_TIMEOUT=$(secs 2) STATUS_ADDR=127.0.0.1"
    begin_served $all NODE_ID=0 "$@"
    "$convoy" train $all NODE_ID=1 STATUS_PORT=0 "$@" >out1 2>err1 &
    lost=$!
    disown
    started+=("$lost")
    wait_for 30 status_has "$ready"
    lines=$(wc -l <err)
    kill -KILL "$lost"
    wait_for 30 status_has '.phase == "recovering" and any(.nodes[]; .state == "lost") and [.ranks[].state] == ["recovering", "lost"]'
    wait_for 10 resumes '' >/dev/null
    get /status >status.json
    get /history >history.json
}

# With copies in memory.
ready='.ranks[1].step > 100'
lose
ok "with copies in peers' memory: from them, else from the checkpoint; which step is not known yet" \
    is "$(jq -c '[.checkpoint.resume_step, (.peer_copies | .step > 90 and .bytes > 0 and .seconds > 0 and .bytes_per_second > 0)]' status.json) $(resumes 'copies in memory, else from the beginning (CHECKPOINT_DIR is not set) ')" "[null,true] 1"
"$convoy" status "$url" >shown
ok "convoy status shows the copy" grep -qE "^copies      step [0-9]+ in peers' memory, [0-9.]+ .?iB in [0-9.]+ ms, [0-9.]+ .iB/s" shown
stop

# Without: from the checkpoint.
export PEER_COPIES=0
lose
ok "the lost node's rank is lost, with since when; it does not train" holds status.json '.[0].ranks[1] | .state == "lost" and .heard_age_seconds > 0 and .step > 0 and .compute_ms == null and .memory_bytes == null'
ok "the other one recovers" holds status.json '.[0].ranks[0] | .state == "recovering" and .heard_age_seconds == null'
"$convoy" status "$url" >shown
ok "convoy status says so, too" grep -qE '^rank 1 +lost, last seen [0-9]+s ago  step [0-9]+' shown
ok "with no speed of before" grep -qE '^speed +- tok/s  - a step' shown
ok "without CHECKPOINT_DIR it goes on from the beginning" is "$(jq .checkpoint.resume_step status.json) $(resumes 'the beginning (CHECKPOINT_DIR is not set) ') $(grep -c 'from the beginning (step 0)' shown)" "0 1 1"
has_recovered_for() { get /history >history.json && jq -e "[.points.phase[] | select(. == \"recovering\")] | length > $1" history.json >/dev/null; }
wait_for 30 has_recovered_for 2
ok "no loss and no speed is drawn while it recovers" holds history.json '.[0].points as $p | [range($p.phase | length)] | map(select($p.phase[.] == "recovering")) | length > 0 and (.[1:] | all($p.loss[.] == null and $p.tokens_per_second[.] == null and $p.step[.] == null))'
stop

lose CHECKPOINT_DIR=none CHECKPOINT_EVERY=100000000
ok "before the first checkpoint: from the beginning" is "$(jq .checkpoint.resume_step status.json) $(resumes 'the beginning (there is no checkpoint yet) ')" "0 1"
stop

ready='.checkpoint.step >= 200'
lose CHECKPOINT_DIR=ck CHECKPOINT_EVERY=100
at=$(jq .checkpoint.resume_step status.json)
ok "else from the checkpoint, by its step" is "$(resumes "the checkpoint of step $at ") $([ "$at" -ge 200 ] && echo later)" "1 later"
stop

# A worker that is killed alone; rank 0's checkpoint is known though rank 0 is not there.
begin_served $tiny STEPS=100000000 N_GPU_EACH_NODE=2 CHECKPOINT_DIR=two CHECKPOINT_EVERY=100 MAX_RESTARTS=100
wait_for 30 status_has '.checkpoint.step >= 100'
: >seen
for i in 1 2 3; do
    first=$(set -- $(workers_of "$pid"); echo "${1:-}")
    [ -n "$first" ] && kill -KILL "$first"
    for k in 1 2 3 4 5 6 7 8; do get /status | jq -c 'select(.phase == "recovering") | [.checkpoint.step != null, .checkpoint.resume_step != null]' >>seen; done
    wait_for 30 status_has '.phase == "training" and (.ranks | length) == 2'
done
ok "while rank 0 is away its checkpoint is known all the time" is "$(sort -u seen)" "[true,true]"
stop
done_testing
