#!/bin/bash
# test_netns — what the docs say about two machines, word for word, in two network namespaces with addresses of their own; and
# a cable that is pulled.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
a=cva$$ b=cvb$$
if ! make_net 2>/dev/null; then
    give_up "two network namespaces" "they cannot be made here (needs root)"
fi

links_run $a $b
ok "README.md has the commands" is "$(for n in token "node 0" "node 1"; do block "$n" | grep -c .; done | xargs)" "1 2 2"
mkdir a b
for m in a b; do mkdir $m/build && ln -s "$convoy" $m/build/convoy; done
(unset JOB_TOKEN; cd a && block token | bash -e)
ok "the secret: for its owner only" is "$(stat -c %a a/job.token)" 600
cp -p a/job.token b/ # brought to the other machine
unset JOB_TOKEN
# begin_machine I FOLDER NAMESPACE — the docs' command for node I, in a machine of its own.
begin_machine() {
    (cd "$2" && exec nsenter --net="/run/netns/$3" env STATUS_PORT=$((8080 + $1)) bash -c "$(block "node $1" | sed 's/^build/exec build/')") \
        >out.$1 2>err.$1 &
    node[$1]=$!
    track
}
begin_machine 1 b $b
sleep 0.3 # whichever comes first
begin_machine 0 a $a
finish_nodes 2
ok "both end with 0" is "$codes" "0 0"
ok "10.0.0.1 shows the steps and keeps the checkpoints" is "$(grep -c '^step ' out.0) $(newest_step a/two) $([ -e b/two ] && echo b)" "20 20 "
ok "10.0.0.2 shows the first and the last step" is "$(grep -oE '^step [0-9]+/20 ' out.1 | xargs)" "step 1/20 step 20/20"
ok "that it has joined, that it is done, and where the page of the job is" \
    is "$(grep -c 'joined node 0 at 10.0.0.1:1234, as node 1 of 2' err.1) $(grep -c '^done at step 20' out.1) $(grep -c '^page of the whole job, on node 0: http://10.0.0.1:' out.1)" "1 1 1"
(cd a && NO_COLOR=1 "$convoy" train $quiet MODEL=gpt2-nano DATA=/usr/share/common-licenses/GPL-3 SEQ_LEN=32 BATCH_SIZE=2 STEPS=20 \
    GLOBAL_BATCH=4 METRICS_FILE=one.jsonl >out 2>err)
ok "the last loss is that of one machine" is "$(tail -n 1 a/one.jsonl | jq '.loss * 1000 | round')" \
    "$(grep -oE '^step 20/20  loss [0-9.]+' out.0 | awk '{ printf "%.0f", $4 * 1000 }')"

stops_within() { is "$codes" "143 143" && within "$took" "$1"; } # stops_within MS
export JOB_TOKEN=a-secret-for-these-tests-only

# Debian and Ubuntu give a machine's own name the address 127.0.1.1, and other machines have its real one.
cat >with_hosts <<'EOS'
#!/bin/sh
mount --bind "$1" /etc/hosts || exit 99
shift
exec "$@"
EOS
chmod +x with_hosts
printf '127.0.0.1 localhost\n127.0.1.1 head\n' >hosts.0
printf '127.0.0.1 localhost\n10.0.0.1 head\n' >hosts.1
if unshare -m true 2>/dev/null; then
    meeting="MASTER_ADDR=head MASTER_PORT=$port"
    in="nsenter --net=/run/netns/$a unshare -m ./with_hosts $tmp/hosts.0" begin_node 0 $tiny N_NODES=2 STEPS=3
    in="nsenter --net=/run/netns/$b unshare -m ./with_hosts $tmp/hosts.1" begin_node 1 $tiny N_NODES=2 STEPS=3
    finish_nodes 2
    ok "node 0's own name is loopback there: the nodes train all the same" is "$codes $(grep -c 'restart [0-9]' err.0)" "0 0 0"
    ok "its workers listen where node 1 has reached it, and it says so" node_says 0 "its workers listen at 10.0.0.1, where other nodes have reached it"
else
    skip "node 0's own name is loopback there" "no mount namespace can be made here"
fi
meeting="MASTER_ADDR=10.0.0.1 MASTER_PORT=$port"
in="nsenter --net=/run/netns/$a" begin_node 0 $tiny N_NODES=2 STEPS=3 JOIN_TIMEOUT=2s DATA_ADDR=no-such-interface
in="nsenter --net=/run/netns/$b" begin_node 1 $tiny N_NODES=2 STEPS=3 JOIN_TIMEOUT=20s
finish_nodes 2
ok "no address for workers: 78 with JOIN_TIMEOUT, and no second try" is "$codes $(grep -c 'restart [0-9]' err.0)" "78 78 0"
ok "it is named" node_says 0 "found no network address for 2s .JOIN_TIMEOUT.: DATA_ADDR=no-such-interface has no address"

# A firewall lets through what nodes say at MASTER_PORT, and drops what workers send.
drop() {
    nsenter --net="/run/netns/$1" iptables -A INPUT -i eth0 -p tcp --dport "$port" -j ACCEPT \
        && nsenter --net="/run/netns/$1" iptables -A INPUT -i eth0 -p tcp --sport "$port" -j ACCEPT \
        && nsenter --net="/run/netns/$1" iptables -A INPUT -i eth0 -p tcp -j DROP
}
if ! drop $a 2>/dev/null || ! drop $b 2>/dev/null; then
    give_up "a firewall between workers" "iptables is not here, or cannot drop"
fi
for ns in $a $b; do nsenter --net="/run/netns/$ns" iptables -F INPUT; done
# A port of workers that refuses for the first seconds, and one that goes on to refuse.
refuse() { nsenter --net="/run/netns/$a" iptables -A INPUT -i eth0 -p tcp --syn ! --dport "$port" -j REJECT --reject-with tcp-reset; }
refuse
in="nsenter --net=/run/netns/$a" begin_node 0 $tiny N_NODES=2 STEPS=3
in="nsenter --net=/run/netns/$b" begin_node 1 $tiny N_NODES=2 STEPS=3
wait_for 20 node_said 0 "generation 1: "
sleep 1
nsenter --net="/run/netns/$a" iptables -F INPUT
finish_nodes 2
ok "a refused connection is tried again, before a generation ends" is "$codes $(grep -c 'restart [0-9]' err.0)" "0 0 0"
refuse
in="nsenter --net=/run/netns/$a" begin_node 0 $tiny N_NODES=2 STEPS=3 MAX_RESTARTS=0
in="nsenter --net=/run/netns/$b" begin_node 1 $tiny N_NODES=2 STEPS=3 MAX_RESTARTS=0
finish_nodes 2
nsenter --net="/run/netns/$a" iptables -F INPUT
ok "refused for good: 75 on both" is "$codes" "75 75"
ok "the error has address and port, and its last word" \
    node_says 1 "rank 0 at 10\.0\.0\.1:[0-9]+ cannot be reached from here .TCP: Connection refused.; .* names a device of that network; no restart left .MAX_RESTARTS=0.$"
drop $a && drop $b

job="$tiny N_NODES=2 STEPS=10"
in="nsenter --net=/run/netns/$a" begin_node 0 $job
in="nsenter --net=/run/netns/$b" begin_node 1 $job
wait_for 30 node_said 0 "warn.*workers have not connected to each other for 15 s.*firewall.*UCX_NET_DEVICES"
ok "workers that do not reach each other: said, with what to look for" node_said 0 "firewall"
begin=$(now_ms)
stop_nodes 2 TERM 1
took=$(($(now_ms) - begin))
ok "and a stop is obeyed: 143 on both, after $took ms" stops_within 5000
ok "it says that nothing was saved" node_says 0 "waiting for other workers; nothing was saved, because CHECKPOINT_DIR is not set"

# The same in the midst of training: every rank sits in a call that gets no answer.
undrop() { for ns in $a $b; do nsenter --net="/run/netns/$ns" iptables -F INPUT; done; }
begin_both() { # SETTING…
    in="nsenter --net=/run/netns/$a" begin_node 0 $tiny N_NODES=2 STEPS=100000000 CHECKPOINT_EVERY=100 "$@"
    in="nsenter --net=/run/netns/$b" begin_node 1 $tiny N_NODES=2 STEPS=100000000 CHECKPOINT_EVERY=100 "$@"
    pid=${node[0]}
    wait_for 20 is_past 200
}
stop_both() { # NODE…: these get SIGTERM; the time until both have ended in $took
    local begin=$(now_ms)
    for i; do kill -TERM "${node[$i]}"; done
    finish_nodes 2
    took=$(($(now_ms) - begin))
}
undrop
begin_both CHECKPOINT_DIR=$tmp/mid
drop $a && drop $b
sleep 1
kill -KILL "$(workers_of_node 1)"
wait_for 5 node_said 0 "node 1 .*was killed by SIGKILL.*restart [0-9] of 3"
ok "a peer's failure is heard while no call gets an answer" node_says 0 "node 1 .*was killed by SIGKILL.*restart [0-9] of 3"
undrop
last=$(last_step)
wait_for 20 is_past $((last + 200))
drop $a && drop $b
sleep 1
stop_both 1
undrop
ok "SIGTERM where no call gets an answer: 143 on both, after $took ms" stops_within 5000
ok "why there is no checkpoint, and what there is" \
    node_says 0 "after step [0-9]+ without another checkpoint: .*calls that get no answer.*goes on from the checkpoint of step [0-9]+"
ok "on the other node, too" node_says 1 "stopped by SIGTERM after step [0-9]+ without another checkpoint: .*get no answer"
begin_both CHECKPOINT_DIR=$tmp/apart PEER_TIMEOUT=60s
ip -n $b link set eth0 down
stop_both 0 1
ok "SIGTERM with the cable out: 143 on both, after $took ms of PEER_TIMEOUT=60s" stops_within 5000
ok "with the reason" is "$(grep -cE 'without another checkpoint: .*node [01] has been silent for' err.0 err.1 | cut -d: -f2 | xargs)" "1 1"
done_testing
