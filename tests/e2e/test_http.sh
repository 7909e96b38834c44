#!/bin/bash
# test_http — what a run answers over HTTP, through its phases and after failures.
. "$(dirname "$0")/lib.sh"
endless="$tiny STEPS=100000000"
port=$(free_port)
url=http://127.0.0.1:$port

begin_served $endless CHECKPOINT_DIR=ck CHECKPOINT_EVERY=500 HOSTS=train.example.org
wait_for 20 status_has '.phase == "training" and .checkpoint.step != null'
ok "the address of the page is printed at the start" is "$(head -n 1 out)" "page $url/"
ok "/status: 200 JSON" is "$(code $url/status) $(curl -s -o body -w '%{content_type}' $url/status)" "200 application/json"
get /status >status.json
rows() { sed -n 's/^| `\([^`]*\)`.*/\1/p' "$root/docs/status.md" | sort; }
members() { jq -r 'if .check == null then del(.check) else . end | del(.error) | paths(type != "object" and type != "array") |
    map(if type == "number" then "[]" else "." + . end) | add[1:]' "$1" | sort -u; }
ok "/status: every member has a row in docs/status.md" is "$(members status.json | comm -23 - <(rows))" ""
ok "/status: each row of the top level has a member" is "$(rows | grep -vE '[.]|^convoy_' | comm -23 - <(members status.json))" ""
ok "/status: model" is "$(jq -c '.model|[.layers,.heads,.embed,.context,.vocab,.task]' status.json)" '[2,2,32,32,64,"lm"]'
ok "/status: parameters as counted by hand" is "$(jq .model.parameters status.json)" \
    $((64 * 32 + 32 * 32 + 2 * (12 * 32 * 32 + 13 * 32) + 2 * 32))
ok "/status: numbers are numbers" holds status.json '.[0]|[.step,.steps,.loss,.lr,.grad_norm,.tokens,.tokens_per_second,
    .step_ms.last,.step_ms.p50,.step_ms.p95,.eta_seconds,.uptime_seconds,.progress_age_seconds,.restarts]|all(type=="number")'
ok "/status: not known is null" holds status.json '.[0]|.val_loss==null and .error==null'
ok "/status: one mesh of one, one node, one rank" is "$(jq -c '[.n_nodes,.node_id,.backend,(.ranks|length),(.nodes|length),.mesh.data]' status.json)" '[1,0,"self",1,1,1]'
ok "/status: memory of the rank" holds status.json '.[0].ranks[0].memory_bytes > 1000000'
a=$(get /status | jq .step)
moves() { [ "$(get /status | jq .step)" -gt "$a" ]; }
ok "/status: the step moves" wait_for 5 moves
for path in livez healthz readyz; do
    ok "/$path: 200 while training" is "$(code $url/$path)" 200
done
get /metrics >metrics.txt
ok "/metrics: HELP and TYPE for each name" is "$(grep -c '^# HELP convoy_' metrics.txt)" "$(grep -c '^# TYPE convoy_' metrics.txt)"
ok "/metrics: each has a row in docs/status.md" is "$(sed -n 's/^# TYPE \([^ ]*\).*/\1/p' metrics.txt | sort | comm -23 - <(rows))" ""
ok "/metrics: nothing but convoy_ names" is "$(grep -v '^#' metrics.txt | grep -vc '^convoy_')" 0
ok "unknown path: 404" is "$(code $url/nothing)" 404
ok "other method: 405" is "$(code -X POST -d x=1 $url/status)" 405
as() { code -H "Host: $1" $url/status; } # as HOST
ok "Host: an address, a name without a dot, this machine's name: 200" is "$(as 10.9.8.7:31000) $(as gpu-box) $(as "$(hostname)")" "200 200 200"
ok "Host: a name in HOSTS: 200" is "$(as train.example.org:$port)" 200
ok "Host: another host's name (DNS rebinding): 421, with the remedy" is "$(as evil.example:$port) $(jq -r .error.message body | grep -c HOSTS)" "421 1"
ok "Host: empty: 400" is "$(code -H Host: $url/status)" 400
has_curve() { "$convoy" status "$url" | grep -Eq "^loss +[0-9.e-]+ .*(▁|▅|█)"; }
wait_for 5 has_curve # the first point comes after a second
"$convoy" status "$url" >shown
ok "convoy status: 0 while healthy" is $? 0
ok "convoy status: curves since the start, and events" grep -Eq "^loss +[0-9.e-]+ .*(▁|▅|█)" shown
ok "convoy status: shows the phase" grep -Eq "^(training|checkpointing) " shown

# A failure and its recovery: alive all the time, and counted.
: >codes
(while [ ! -e enough ]; do echo "$(code $url/livez)"; sleep 0.02; done >>codes) &
poll=$!
started+=("$poll")
kill -KILL "$(worker_of "$pid")"
wait_for 10 status_has '.restarts == 1 and .phase == "training"'
touch enough
wait "$poll"
ok "/livez: 200 throughout a recovery" is "$(grep -c . codes) 0" "$(grep -c 200 codes) $(grep -vc 200 codes)"
ok "/status: one restart, no error left" status_has '.restarts == 1 and .error == null'
ok "/metrics: one restart" is "$(get /metrics | grep -c '^convoy_restarts_total.* 1$')" 1

# The port of this run is taken for the next.
"$convoy" train STATUS_ADDR=127.0.0.1 STATUS_PORT=$port $tiny STEPS=1 >out2 2>err2
ok "a taken port: 78" is $? 78
ok "with address and remedy" grep -qE "127.0.0.1.*$port.*STATUS_PORT" err2
stop
ok "SIGTERM: 143" is $rc 143
ok "convoy status: 1 when no node answers" is "$("$convoy" status "$url" >/dev/null 2>&1; echo $?)" 1

# STATUS_TOKEN_FILE: a token for all requests but those of probes.
(umask 077 && echo a-token-of-this-page-only >page.token && echo another-token-than-that-one >other.token)
token=a-token-of-this-page-only
begin_served $endless STATUS_TOKEN_FILE=page.token
wait_for 20 grep -q '^step ' out
codes_of() { for path in / /status /history /history.csv /log /settings /metrics /nothing; do code "$@" $url$path; echo; done | sort | uniq -c | xargs; }
ok "without the token: 401, whatever the path" is "$(codes_of) $(jq -r .error.message body | grep -c 'Bearer TOKEN')" "8 401 1"
ok "with it, as a bearer token or as a login's password: as ever" is "$(codes_of -H "Authorization: Bearer $token"), $(codes_of -u "anyone:$token")" "7 200 1 404, 7 200 1 404"
ok "another token, a part of it, more than it, none: 401" is \
    "$(for t in 'Bearer another-token-than-that-one' 'Bearer a-token-of-this-page-onl' "Bearer ${token}1" 'Bearer ' Bearer '' "Basic $token" "Digest $token" "$token"; do
        code -H "Authorization: $t" $url/status; echo; done | sort | uniq -c | xargs)" "9 401"
ok "a login with the token as its name: 401" is "$(code -u "$token:" $url/status)" 401
ok "the answer asks for both kinds" is "$(curl -s -D - -o body $url/status | tr -d '\r' | grep -i '^www-authenticate: ' | sort | cut -d' ' -f2 | xargs)" "Basic Bearer"
ok "POST without it: 401" is "$(code -X POST -d x=1 $url/status)" 401
ok "probes need none" is "$(code $url/livez) $(code $url/healthz) $(code $url/readyz)" "200 200 200"
ok "another host's name: 421, with the token, too" is "$(code -H 'Host: evil.example' -H "Authorization: Bearer $token" $url/status)" 421
"$convoy" status "$url" STATUS_TOKEN_FILE=page.token >shown 2>err2
ok "convoy status with STATUS_TOKEN_FILE: 0, with the curves' source" is "$? $(grep -cE '^(training|checkpointing) ' shown)" "0 1"
STATUS_TOKEN_FILE=page.token "$convoy" status JSON=1 STATUS_PORT=$port >shown 2>err2
ok "convoy status with the node's environment (a container's health check)" is "$? $(jq -r .phase shown)" "0 training"
"$convoy" status "$url" >shown 2>err2
ok "convoy status without it: 1, with the setting" is "$? $(grep -c 'HTTP 401: it requires a token; set STATUS_TOKEN_FILE' err2)" "1 1"
"$convoy" status "$url" STATUS_TOKEN_FILE=other.token >shown 2>err2
ok "convoy status with another: 1" is "$? $(grep -c 'another token than STATUS_TOKEN_FILE has' err2)" "1 1"
ok "the token is in no line of the log and on no command line" is "$(cat out err shown | grep -c "$token") $(tr '\0' ' ' <"/proc/$pid/cmdline" | grep -c "$token")" "0 0"
stop
chmod 644 page.token
"$convoy" train STATUS_ADDR=127.0.0.1 STATUS_PORT=$port $tiny STEPS=1 STATUS_TOKEN_FILE=page.token >out2 2>err2
ok "a token that others can read: 78" is "$? $(grep -c 'STATUS_TOKEN_FILE=page.token can be read or changed by other users' err2)" "78 1"
"$convoy" train STATUS_ADDR=127.0.0.1 STATUS_PORT=$port $tiny STEPS=1 STATUS_TOKEN_FILE=missing >out2 2>err2
ok "a token that is not there: 66" is "$? $(grep -c 'cannot open STATUS_TOKEN_FILE=missing: No such file' err2)" "66 1"

# Addresses: of a node alone, and of a job.
env container=podman "$convoy" train STATUS_PORT=$port $tiny STEPS=1 >out2 2>err2
ok "in a container: all addresses, and the log says so" is "$? $(grep -c 'the page is on all addresses of this node (STATUS_ADDR=0.0.0.0, container)' err2)" "0 1"
ok "with several nodes, too" is "$("$convoy" config N_NODES=2 | grep -E '^STATUS_ADDR ' | tr -s ' ' | cut -d' ' -f2-)" "0.0.0.0 several nodes"

# poll MS — the answers to GET /status until the process ends, a line each, in the file answers. One program that asks each MS
# milliseconds: on a busy machine a new curl each time misses what is short, and is no client that polls.
poll() {
    perl -MIO::Socket::INET -MTime::HiRes=sleep -e 'my ($pid, $port, $ms) = @ARGV;
        sub is_there { open my $f, "<", "/proc/$pid/stat" or return 0; return (<$f> // "") =~ /\) [^ZX] [^)]*$/ }
        while (is_there()) {
            if (my $s = IO::Socket::INET->new(PeerAddr => "127.0.0.1:$port", Timeout => 60)) {
                print $s "GET /status HTTP/1.0\r\n\r\n";
                my $answer = do { local $/; <$s> } // "";
                print "$1\n" if $answer =~ /\r\n\r\n(\{.*\})\s*$/s;
            }
            sleep $ms / 1000;
        }' "$pid" "$port" "$1" >answers
}
# Phases, as a watcher sees them.
phases() { # every phase seen until the process ends
    poll 2
    jq -r .phase answers | sort -u >seen
    xargs <seen
}
head -c 20000 /usr/share/common-licenses/GPL-3 >text.txt
patience=$(secs 1)
[ -n "${SAN:-}" ] && patience=10s # a step takes a second there
# Training waits for checkpoints, or the phase lasts only as long as the state is copied.
# A phase lasts milliseconds: where the watcher has no processor just then, another run is watched.
: >all_seen
for i in 1 2 3 4 5; do
    begin_served MODEL=gpt2-nano LAYERS=1 HEADS=2 EMBED=64 CONTEXT=32 BATCH_SIZE=2 SEQ_LEN=32 DATA=text.txt VAL_DATA=text.txt EVAL_EVERY=3 \
        STEPS=9 CHECKPOINT_DIR=phases$i CHECKPOINT_EVERY=1 CHECKPOINT_ASYNC=off FAULT=stall@step=5 STEP_TIMEOUT=$patience
    echo "# phases: $(phases)"
    finish
    cat seen >>all_seen
    [ $rc = 0 ] && [ "$(grep -xE 'training|evaluating|checkpointing' all_seen | sort -u | wc -l)" -lt 3 ] || break
done
ok "the run heals" is $rc 0
for p in training evaluating checkpointing; do
    ok "phase $p is seen" grep -qx $p all_seen
done
ok "no phase but the contract's" is "$(grep -vxcE 'starting|loading|training|evaluating|checkpointing|recovering|done|failed' all_seen)" 0

# Not ready while loading; stopping is not ready but alive. A stopped worker makes the moment last.
begin_served $endless CHECKPOINT_DIR=ready
wait_for 20 status_has '.phase == "training"'
worker=$(worker_of "$pid")
kill -STOP "$worker"
kill -TERM "$pid"
wait_for 5 said "stopping after this step"
ok "/readyz: 503 while stopping" is "$(code $url/readyz)" 503
ok "/livez: 200 while stopping" is "$(code $url/livez)" 200
kill -CONT "$worker"
finish
ok "and then 143" is $rc 143

# Recovering, held open by failures in a row: the pause before each restart grows.
begin_served $endless MAX_RESTARTS=100 CHECKPOINT_DIR=again CHECKPOINT_EVERY=1000000
wait_for 20 status_has '.phase == "training"'
for i in 1 2 3; do
    wait_for 10 has_worker && kill -KILL "$worker"
    sleep 0.05
    get /status | jq -r .phase >>recovering
    get /livez >>alive
done
ok "phase recovering is seen" grep -qx recovering recovering
ok "/livez says alive then" is "$(grep -c '"live":true' alive)" 3
stop

# The end: a client that polls sees it, whatever it is; without clients the node does not wait.
poll_to_end() {
    poll 100
    jq -r '.phase + " " + (.error.code // 0 | tostring)' answers >ends
}
begin_served $tiny STEPS=3000
poll_to_end
finish
ok "a client that polls sees done" is "$rc $(tail -n 1 ends)" "0 done 0"
begin_served $endless
wait_for 20 status_has '.phase == "training"'
kill -TERM "$pid"
poll_to_end
finish
ok "and the end by SIGTERM, with its code" is "$rc $(tail -n 1 ends)" "143 failed 143"
begin=$(now_ms)
begin_served $tiny STEPS=1
finish
took=$(($(now_ms) - begin))
begin=$(now_ms)
run $tiny STEPS=1
alone=$(($(now_ms) - begin))
ok "no client polls: no pause at the end ($took ms, $alone without a port)" within $((took - alone)) 900
done_testing
