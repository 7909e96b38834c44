#!/bin/bash
# test_containers — the Dockerfile's image `cpu`, built from a Debian made here and run by podman as on a cluster: not as
# root, only its volumes writable, no capabilities. Healthy, stopped, killed, started again; and the docs' commands for docker
# and docker compose. Only when CONTAINERS=1 (make containers): the first run makes the Debian and installs compilers in it;
# later ones take them from a cache folder.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/containers_lib.sh"
[ "${SAN:-}" = "" ] || give_up "containers" "a build with a sanitizer is no release"
[ "${CONTAINERS:-0}" = 1 ] || give_up "containers" "the first time takes many minutes; CONTAINERS=1 asks for it"
begin_store && make_base || give_up "containers" "$why"
export JOB_TOKEN=a-secret-for-these-tests-only
net=cvnet$$
leave() {
    end_store
    ip netns del cvm0$$ 2>/dev/null
    ip netns del cvm1$$ 2>/dev/null
    podman network rm -f $net convoy_default >/dev/null 2>&1
    cleanup
}
trap leave EXIT
make_image
ok "podman builds the target cpu" is "$? ${why:-}" "0 "

# 1. What the image is.
show() { podman image inspect $image | jq -r "$1"; }
size=$(show '.[0].Size')
ok "it has at most 60 MB ($size bytes)" test "$size" -le 60000000
podman export "$(podman create --no-healthcheck $image)" 2>/dev/null | tar -t >list 2>/dev/null
podman rm -a -v >/dev/null 2>&1
ok "it has the executable, libc, libm, the loader, certificates, licences, and nothing else" is \
    "$(grep -vE '/$|^(dev|etc/(hosts|hostname|resolv.conf|mtab)|proc|run|sys)' list | sed 's,.*/,,' | sort | xargs)" \
    "ca-certificates.copyright ca-certificates.crt convoy ld-linux-x86-64.so.2 libc.so.6 libc6.copyright libm.so.6 licences.txt"
ok "user, entry point, signal to stop" is "$(show '.[0].Config | [.User, .Entrypoint[0], .Cmd[0], .StopSignal] | join(" ")')" \
    "65532:65532 /usr/bin/convoy train SIGTERM"
ok "its health is told by convoy status" is "$(show '.[0].Healthcheck.Test | join(" ")')" "CMD /usr/bin/convoy status"
ok "volumes for data and checkpoints" is "$(show '.[0].Config.Volumes | keys | join(" ")')" "/checkpoints /data"
ok "labels: version and commit" is "$(show '.[0].Labels | [."org.opencontainers.image.version", ."org.opencontainers.image.revision"] | join(" ")')" \
    "$(cat "$root/VERSION") $commit"
ok "the commit is inside too" is "$(podman run --rm --no-healthcheck $limits $image version 2>err | sed -n 's/^commit //p')" \
    "$commit"

# start NAME FLAGS… -- SETTING… — a container in the background, locked up as far as it goes.
start() {
    local name=$1 flags=
    shift
    while [ "$1" != -- ]; do flags="$flags $1"; shift; done
    shift
    podman run -d --name "$name" $limits --read-only --cap-drop all --security-opt no-new-privileges -e JOB_TOKEN \
        $flags $image train "$@" >/dev/null 2>err.$name || tail -n 2 err.$name
}
code_of() { podman wait "$1"; }
volume() { mkdir -p "$1" && chown 65532:65532 "$1"; }
phase() { curl -s -m 2 "http://$1/status" | jq -r .phase; }
is_phase() { [ "$(phase "$1")" = "$2" ]; }
code() { curl -s -m 2 -o /dev/null -w '%{http_code}' "http://$1"; }
job="MODEL=gpt2-nano DATA=/data SEQ_LEN=32 BATCH_SIZE=1 GLOBAL_BATCH=2 STEPS=30 CACHE_DIR=/checkpoints/cache METRICS_FILE=/checkpoints/m.jsonl"
mkdir data
cp /usr/share/common-licenses/Apache-2.0 data/a.txt

# 2. Two containers with addresses of their own, and two bare processes.
. "$root/tests/e2e/nodes_lib.sh"
train_nodes 2 $job DATA=$tmp/data CACHE_DIR=$tmp/cache METRICS_FILE=bare.jsonl CHECKPOINT_DIR=bare
ok "bare processes: done" is "$codes $(steps_of bare.jsonl)" "0 0 30"
third=$((RANDOM % 200 + 20))
podman network create --subnet 10.89.$third.0/24 $net >out 2>err || cat err
a=10.89.$third.10 b=10.89.$third.11
volume c0
volume c1
meet="N_NODES=2 MASTER_ADDR=$a"
start cv0-$$ --network $net --ip $a -v $tmp/data:/data:ro -v $tmp/c0:/checkpoints -- $job $meet NODE_ID=0
pid=$$
ok "alone it is joining" wait_for 10 is_phase $a:8080 joining
ok "alive, not ready" is "$(code $a:8080/livez) $(code $a:8080/readyz)" "200 503"
podman healthcheck run cv0-$$ >out 2>&1
ok "and healthy" is $? 0
start cv1-$$ --network $net --ip $b -v $tmp/data:/data:ro -v $tmp/c1:/checkpoints -- $job $meet NODE_ID=1
ok "both go on showing that they are done" wait_for 60 eval 'is_phase $a:8080 done && is_phase $b:8080 done'
podman kill -s TERM cv0-$$ cv1-$$ >out 2>&1
ok "and end at once, with 0" is "$(code_of cv0-$$) $(code_of cv1-$$)" "0 0"
ok "the same losses as bare processes, bit for bit" is "$(losses c0/m.jsonl)" "$(losses bare.jsonl)"
ok "a checkpoint, of the user 65532" is "$(newest_step c0) $(stat -c %u c0/step-00000030)" "30 65532"
podman rm -f -v cv0-$$ cv1-$$ >/dev/null 2>&1

# 3. The machine's own network.
volume h0
volume h1
hosts="N_NODES=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$(free_port)"
start cv0-$$ --network host -v $tmp/data:/data:ro -v $tmp/h0:/checkpoints -- $job $hosts NODE_ID=0 STATUS_PORT=0
start cv1-$$ --network host -v $tmp/data:/data:ro -v $tmp/h1:/checkpoints -- $job $hosts NODE_ID=1 STATUS_PORT=0
ok "host network: both end with 0, the same losses" is "$(code_of cv0-$$) $(code_of cv1-$$) $(losses h0/m.jsonl)" "0 0 $(losses bare.jsonl)"
podman rm -f -v cv0-$$ cv1-$$ >/dev/null 2>&1

# 4. A node that is killed and started again; its health throughout.
endless="MODEL=gpt2-nano DATA=synthetic LAYERS=2 EMBED=32 VOCAB=64 CONTEXT=32 SEQ_LEN=16 BATCH_SIZE=1 CHECKPOINT_EVERY=200 STEPS=3000"
volume k0
volume k1
# watch URL FILE — what a poll of its health sees, each phase once when it begins.
watch() {
    local now last=
    while :; do
        now=$(curl -s -m 1 --connect-timeout 0.2 "http://$1/status" | jq -r '.phase // empty' 2>/dev/null)
        [ -z "$now" ] || [ "$now" = "$last" ] || { echo "$now" >>"$2"; last=$now; }
        sleep 0.05
    done
}
: >seen
watch $a:8080 seen &
watcher=$!
started+=($watcher)
start cv0-$$ --network $net --ip $a -v $tmp/k0:/checkpoints -- $endless $meet NODE_ID=0
wait_for 10 grep -qx joining seen
start cv1-$$ --network $net --ip $b -v $tmp/k1:/checkpoints -- $endless $meet NODE_ID=1
ok "training, and ready" wait_for 20 is_phase $a:8080 training
ok "the other node is ready too" is "$(code $b:8080/readyz)" 200
podman kill -s KILL cv1-$$ >/dev/null 2>&1
ok "a node is killed: the other is recovering" wait_for 15 is_phase $a:8080 recovering
ok "alive, not ready" is "$(code $a:8080/livez) $(code $a:8080/readyz)" "200 503"
podman start cv1-$$ >/dev/null 2>&1
ok "started again: training goes on" wait_for 20 is_phase $a:8080 training
ok "both end with 0, all steps are done" is "$(code_of cv0-$$) $(code_of cv1-$$) $(newest_step k0)" "0 0 3000"
disown $watcher
kill $watcher
ok "its health, polled throughout: joining, training, recovering, training, done" is \
    "$(grep -xE 'joining|training|recovering|done|failed' seen | uniq | xargs)" "joining training recovering training done"
echo "# all that was seen: $(xargs <seen)"
podman rm -f -v cv0-$$ cv1-$$ >/dev/null 2>&1

# 5. podman stop: 143, with a checkpoint, within five seconds. STOPS=10 for more of them. Under load podman may take seconds before it
# sends the signal: so it needs a quiet machine; how the time was spent is printed beside it, from the call that sends it, seen by strace.
volume s
stops=0 worst=0 before_worst=0
for i in $(seq 1 ${STOPS:-3}); do
    start one-$$ --network host -v $tmp/s:/checkpoints -- $tiny DATA=synthetic STATUS_PORT=0 STEPS=100000000
    wait_for 10 eval 'podman logs one-$$ 2>/dev/null | grep -q "^step "'
    before=$(newest_step s)
    began=$(date +%s%N)
    first="strace -f -qq -ttt -e trace=kill -o $tmp/calls" podman stop -t 10 one-$$ >/dev/null 2>&1
    ended=$(date +%s%N)
    sent=$(awk '/SIGTERM/ { split($2, t, "."); print t[1] t[2] "000"; exit }' calls 2>/dev/null)
    sent=${sent:-$began}
    took=$(((ended - began) / 1000000)) waited=$(((sent - began) / 1000000))
    [ $took -gt $worst ] && worst=$took
    [ $waited -gt $before_worst ] && before_worst=$waited
    [ "$(code_of one-$$) $((took < 5000))" = "143 1" ] && [ "$(newest_step s)" -gt "${before:-0}" ] && stops=$((stops + 1))
    podman rm -f -v one-$$ >/dev/null 2>&1
done
ok "stopped: 143 and a newer checkpoint within 5 s, each time (the slowest took $worst ms; podman took $before_worst at most to send the signal)" \
    is $stops ${STOPS:-3}

# 6. README.md's commands as they stand there: one machine, two containers; then two machines.
quick() { # with time limits, for they are not ours
    mkdir user
    (cd user && unset JOB_TOKEN && DATA=/data DATA_DIR=$tmp/data STEPS=10 CHECKPOINT_EVERY=5 limit 500 bash -e <(block compose | sed "s,URL,$root,")) >out 2>err
}
if give_commands; then
    podman tag $base_image docker.io/library/debian:bookworm
    export PATH=$tmp/bin:$PATH
    quick
    ok "git clone, cd, docker compose up: three commands" is "$? $(block compose | wc -l)" "0 3"
    for i in 0 1; do
        ok "node $i is done" is "$(podman inspect convoy_node${i}_1 2>/dev/null | jq -r '.[0].State.ExitCode')" 0
    done
    ok "two nodes, all steps" is "$(grep -cE 'generation 1: 2 nodes' err out | awk -F: '{ n += $2 } END { print (n > 0) }') $(cat out err | grep -cE 'step 10/10 ')" "1 1"
    (cd user/convoy && limit 60 docker compose down -v) >out 2>err
    m0=cvm0$$ m1=cvm1$$
    ip netns add $m0 && ip netns add $m1 && ip link add eth0 netns $m0 type veth peer name eth0 netns $m1
    ip -n $m0 addr add 10.0.0.1/24 dev eth0 && ip -n $m1 addr add 10.0.0.2/24 dev eth0
    for m in $m0 $m1; do ip -n $m link set eth0 up && ip -n $m link set lo up; done
    block "docker build" >commands
    (cd "$root" && limit 900 bash -e $tmp/commands) >out 2>err
    ok "docker build" is $? 0
    block "docker run" | sed 's/STEPS=100/STEPS=10/; s/^docker run/exec & -e LINGER=1s/' >commands.0
    sed 's/NODE_ID=0/NODE_ID=1/; s/convoy:\/checkpoints/convoy-1:\/checkpoints/' commands.0 >commands.1
    for i in 0 1; do
        mkdir machine$i
        (cd machine$i && limit 120 nsenter --net=/run/netns/cvm$i$$ bash -e ../commands.$i) >out.$i 2>err.$i &
        node[$i]=$!
    done
    finish_nodes 2
    ok "docker run on two machines: done" is "$codes $(grep -cE '^step 10/10 ' out.0)" "0 0 1"
    [ "$codes" = "0 0" ] || tail -n 5 out.0 err.0 | sed 's/^/# /'
    podman volume rm -f convoy convoy-1 >/dev/null 2>&1
else
    skip "README.md's commands" "$why"
fi
done_testing
