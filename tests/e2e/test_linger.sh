#!/bin/bash
# test_linger — after the end the last state stays visible: done or failed, on every path, with the exit code unchanged. A
# signal ends the wait. A run that was asked to stop does not wait. Where LINGER is on by default, and where not.
. "$(dirname "$0")/lib.sh"
unset KUBERNETES_SERVICE_HOST SLURM_JOB_ID LINGER
port=$(free_port)
url=http://127.0.0.1:$port
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
port_is_free() { [ -z "$(ss -Hltn "sport = :$1")" ]; }
# hasten SIGNAL — how long the end took after it, in ms: $took; $rc.
hasten() {
    local from
    from=$(now_ms)
    stop "$1"
    took=$(($(now_ms) - from))
}

# 1. A run that fails for good.
begin $tiny STEPS=100000 FAULT=kill@step=5 MAX_RESTARTS=0 LINGER=2m
ok "failed: /status goes on saying so" wait_for 30 status_has '.phase == "failed"'
sleep 1
ok "and why, with the exit code" status_has '.error.code == 75 and (.error.message | test("SIGKILL.*no restart left"))'
ok "its ranks train no longer" status_has '[.ranks[].state] == ["stopped"]'
ok "/livez 200: it goes by itself, a kubelet has nothing to heal" is "$(code $url/livez)" 200
ok "/readyz 503 with the reason" is "$(code $url/readyz) $(jq -r '.error.message | test("^failed: .*no restart left")' body)" "503 true"
ok "/ 200, /history 200" is "$(code $url/) $(code $url/history)" "200 200"
get /metrics >metrics
ok "/metrics: failed, not ready, its exit code" is "$(grep -cE '^convoy_(phase\{phase="failed"\} 1|ready 0|live 1|exit_code 75)$' metrics)" 4
"$convoy" status "$url" >shown 2>said
ok "convoy status: 1, and the reason" is "$? $(grep -c 'no restart left' said)" "1 1"
ok "the log has the reason already, as its last line" is "$(tail -n 1 err | grep -c 'error .*no restart left')" 1
ok "and says how long it stays, and what ends that" says "with exit code 75: /status, /metrics and the page stay available (LINGER=2m, argument); a signal ends that"
ok "the worker is gone" is "$(workers_of "$pid")" ""
ok "nothing is written any more" is "$(wc -l <err) $(sleep 0.7; wc -l <err)" "$(wc -l <err) $(wc -l <err)"
hasten TERM
ok "SIGTERM ends it at once ($took ms), with the job's own code" is "$rc $(within "$took" 3000 && echo soon)" "75 soon"
ok "the reason was told once" is "$(grep -c 'error .*no restart left' err)" 1

# 2. A run that is done; each signal; the time itself.
for s in INT HUP USR1; do
    begin $tiny STEPS=5 LINGER=2m
    wait_for 30 status_has '.phase == "done"'
    hasten $s
    ok "done: SIG$s ends it, 0" is "$rc $(within "$took" 3000 && echo soon)" "0 soon"
done
begin $tiny STEPS=5 LINGER=2m
wait_for 30 status_has '.phase == "done"'
ok "done: live, not ready, no error" is "$(code $url/livez) $(code $url/readyz) $(get /status | jq -c '[.error, .ranks[0].state]') $(get /metrics | grep -c '^convoy_exit_code 0$')" \
    '200 503 [null,"done"] 1'
hasten TERM
ok "SIGTERM: 0" is $rc 0
from=$(now_ms)
run $tiny STEPS=5 LINGER=1500ms
took=$(($(now_ms) - from))
ok "without a signal it lasts as long as it says ($took ms)" [ "$took" -ge 1500 ]
ok "and ends with 0" is $rc 0

# 3. No wait: asked to stop, or nothing to ask.
begin_training $tiny STEPS=100000000 LINGER=2m CHECKPOINT_DIR=ck
hasten TERM
ok "a stop by SIGTERM is not lengthened: 143" is "$rc $(within "$took" 20000 && echo soon)" "143 soon"
begin_training $tiny STEPS=100000000 LINGER=2m
hasten USR1
ok "nor a preemption: 75" is "$rc $(within "$took" 20000 && echo soon)" "75 soon"
from=$(now_ms)
quiet="STATUS_PORT=0"
run $tiny STEPS=5 LINGER=2m
took=$(($(now_ms) - from))
ok "without a port there is nothing to wait for ($took ms)" within "$took" 20000

# 4. Two nodes: each shows its own end, and node 0 the nodes that took part.
export JOB_TOKEN=a-secret-for-these-tests-only
master=$(free_port)
other=$(free_port)
two="$tiny STEPS=20 N_NODES=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$master LINGER=2m STATUS_ADDR=127.0.0.1"
"$convoy" train $two NODE_ID=1 STATUS_PORT=$other >out1 2>err1 &
second=$!
started+=("$second")
quiet="STATUS_ADDR=127.0.0.1 STATUS_PORT=$port"
begin $two NODE_ID=0
ok "two nodes: node 0 stays to be seen" wait_for 60 status_has '.phase == "done" and (.nodes | length) == 2 and [.ranks[].state] == ["done", "done"]'
is_done_1() { [ "$(curl -s --max-time 5 "http://127.0.0.1:$other/status" | jq -r .phase)" = done ]; }
ok "and node 1" wait_for 10 is_done_1
# The phase is published before the connections are closed.
ok "their meeting is over: its port is free" wait_for 10 port_is_free "$master"
kill -TERM "$second"
hasten TERM
wait "$second"
ok "both end with 0" is "$rc $?" "0 0"

# 5. The default.
default() { "$@" "$convoy" config 2>/dev/null | awk '$1 == "LINGER" { print $2, $3 }'; }
ok "a shell: none" is "$(default env)" "0 default"
ok "a pod: 60s" is "$(default env KUBERNETES_SERVICE_HOST=10.96.0.1)" "60s Kubernetes"
ok "a Slurm job: 60s" is "$(default env SLURM_JOB_ID=7)" "60s Slurm"
ok "what is set counts there, too" is "$(default env KUBERNETES_SERVICE_HOST=10.96.0.1 LINGER=5s)" "5s environment"
script -qec "KUBERNETES_SERVICE_HOST=10.96.0.1 '$convoy' config" /dev/null </dev/null >shown 2>/dev/null
ok "a terminal: none, even there" is "$(tr -d '\r' <shown | awk '$1 == "LINGER" { print $2, $3 }')" "0 default"
if unshare -pf true 2>/dev/null; then
    ok "process 1 of a container: 60s" is "$(default unshare -pf)" "60s container"
else
    skip "process 1 of a container: 60s" "needs root, for a namespace of its own"
fi
done_testing
