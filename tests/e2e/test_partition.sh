#!/bin/bash
# test_partition — ON_LOSS=shrink, and a network that falls apart: four nodes with network namespaces and addresses of their own, two on
# each of two switches (bridges) with a cable (veth) between them. Only one side trains meanwhile, and at the end all nodes train together,
# with the weights of one worker that nobody disturbed.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
space=cvp$$
leave_switches() {
    for i in 0 1 2 3 left right; do ip netns del $space-$i 2>/dev/null; done
    cleanup
}
make_switches() {
    local i side
    trap leave_switches EXIT
    for side in left right; do
        ip netns add $space-$side && ip -n $space-$side link add switch type bridge && ip -n $space-$side link set switch up || return 1
    done
    ip link add trunk netns $space-left type veth peer name trunk netns $space-right || return 1
    for side in left right; do ip -n $space-$side link set trunk master switch up || return 1; done
    for i in 0 1 2 3; do
        side=$([ $i -lt 2 ] && echo left || echo right)
        ip netns add $space-$i && ip link add eth0 netns $space-$i type veth peer name port$i netns $space-$side || return 1
        ip -n $space-$side link set port$i master switch up && ip -n $space-$i addr add 10.0.0.$((i + 1))/24 dev eth0 || return 1
        ip -n $space-$i link set eth0 up && ip -n $space-$i link set lo up || return 1
    done
}
if ! make_switches 2>/dev/null; then
    give_up "four network namespaces on two switches" "they cannot be made here (needs root)"
fi
links_run $space-0 $space-1 $space-2 $space-3
meeting="MASTER_ADDR=10.0.0.1 MASTER_PORT=$port"
job="$steady N_NODES=4 ON_LOSS=shrink MIN_NODES=1 MAX_RESTARTS=1000 JOIN_TIMEOUT=600s CHECKPOINT_EVERY=100000000 STEPS=100000000"
begin_host() { in="nsenter --net=/run/netns/$space-$1" begin_node $1 $job CHECKPOINT_DIR=$tmp/apart-$1; } # begin_host NODE, with a disk of its own
plug() { ip -n $space-left link set "$1" "$2"; } # plug port0|trunk up|down
begun() { grep -cE 'generation [0-9]+: ' "err.$1"; } # begun NODE — how many generations it has begun as the leader
copied() { grep -oE 'memory:( of)? step [0-9]+' "err.$1" | grep -oE '[0-9]+$'; } # copied NODE — the steps of the copies from which it led a start
# expect_cut LONE OTHER — the nodes that lead the two sides after the next cut; OTHER trains on.
expect_cut() { lone=$1 other=$2 before=$(begun "$1") starts=$(copied "$2" | wc -l); }
has_begun() { [ "$(begun $lone)" -gt $before ]; }
# stays SECONDS COMMAND… — during SECONDS, and until the command succeeds, LONE begins no generation, and it shows no step that the generation
# before the cut cannot have finished: the side that trains on repeats one finished step at most. The line of that step may come late, when
# the worker of LONE leaves the generation: a node without rank 0 shows its last step then. SECONDS: longer than LONE waits without a fault,
# PEER_TIMEOUT for nodes that it has not seen as their leader, or 10 s for its network; a slow machine makes no wait of LONE longer.
stays() {
    local at end=$(($(now_ms) + 1000 * $1))
    until [ "$(now_ms)" -ge $end ] || has_begun; do sleep 0.1; done
    "${@:2}" || return 1
    at=$(copied $other | sed -n $((starts + 1))p)
    ! has_begun && [ "$(step_of $lone)" -le $((at + 1)) ] ||
        { echo "# node $lone has begun $(begun $lone) generations, not $before, or its step $(step_of $lone) is not at most one after '$at'"; false; }
}

# Node 0 is cut off: three of four are a majority.
for i in 3 2 1 0; do begin_host $i; done
wait_for 60 is_past_on 0 5
pid=${node[1]}
expect_cut 0 1
plug port0 down
ok "node 0's cable is out: node 1 leads" wait_for 60 node_said 1 'node 0 is lost; node 1 leads the job now, at 10\.0\.0\.2:[0-9]+'
ok "… the other nodes train" wait_for 60 node_said 1 'generation [0-9]+: 3 of 4 nodes \(1-3\)'
ok "… node 0 finds that they are lost" wait_for 60 node_said 0 'node 3 .* was lost: silent for'
ok "… it does not train, although MIN_NODES allows one node" stays 14 goes_on_at 1 30
plug port0 up
ok "its cable is back: it joins node 1" wait_for 60 node_said 0 'node 1 leads the job, at 10\.0\.0\.2:[0-9]+; this node joins it'
ok "… all train" wait_for 60 node_said 1 'generation [0-9]+: 4 nodes'
ok "… past more steps" goes_on_at 0 10

# The leader receives everything and nothing that it sends arrives: its packets go to a machine that does not exist.
expect_cut 1 0
pid=${node[0]}
for i in 1 3 4; do ip -n $space-1 neigh replace 10.0.0.$i lladdr 02:00:00:00:00:99 dev eth0 nud permanent; done
ok "nothing from node 1 arrives: node 0 leads" wait_for 60 node_said 0 'generation [0-9]+: 3 of 4 nodes \(0, 2-3\)'
ok "… node 1 finds that they are lost" wait_for 60 node_said 1 'node 3 .* was lost: '
ok "… it does not train" stays 3 goes_on_at 0 30
for i in 1 3 4; do ip -n $space-1 neigh del 10.0.0.$i dev eth0; done
ok "node 1 is heard again: all train" wait_for 60 node_says_times 0 'generation [0-9]+: 4 nodes' 2
ok "… past more steps" goes_on_at 0 10

# Two halves: the half with the leader goes on.
expect_cut 2 0
plug trunk down
ok "two and two: the half with the leader trains" wait_for 60 node_said 0 'generation [0-9]+: 2 of 4 nodes \(0-1\)'
ok "… the other half searches for a leader" wait_for 60 node_said 2 'node 0 is lost; node 2 leads the job now, at 10\.0\.0\.3:[0-9]+'
ok "… but does not train" stays 9 goes_on_at 0 30
pid=${node[1]}
kill_node 0
ok "the leader is killed: one of four trains, because the other half has no majority" wait_for 60 node_said 1 'generation [0-9]+: 1 of 4 nodes \(1\)'
ok "… the other half still does not train" stays 3 goes_on_at 1 30
plug trunk up
ok "the halves are together again" wait_for 60 node_says_times 1 'generation [0-9]+: 3 of 4 nodes \(1-3\)' 2
ok "… the other half has joined node 1" node_says 2 'node 1 leads the job, at 10\.0\.0\.2:[0-9]+; this node joins it'
begin_host 0
pid=${node[1]}
ok "node 0 is started again: all train" wait_for 60 node_says_times 1 'generation [0-9]+: 4 nodes' 2
ok "… past more steps" goes_on_at 0 10
stop_nodes 4 TERM 1
ok "a stop of node 1, which leads, is for all" is "$codes" "143 143 143 143"
same_as_calm apart-0 LOCAL

# Node 0 is killed and its name does not resolve any more, as the name of a pod that is gone.
cat >with_hosts <<'EOS'
#!/bin/sh
mount --bind "$1" /etc/hosts || exit 99
shift
exec "$@"
EOS
chmod +x with_hosts
echo '10.0.0.1 head' >hosts
if unshare -m true 2>/dev/null; then
    meeting="MASTER_ADDR=head MASTER_PORT=$port"
    for i in 2 1 0; do
        in="nsenter --net=/run/netns/$space-$i unshare -m ./with_hosts $tmp/hosts" begin_node $i $steady N_NODES=3 ON_LOSS=shrink MIN_NODES=1 \
            MAX_RESTARTS=1000 JOIN_TIMEOUT=600s STEPS=100000000 DATA_ADDR=eth0
    done
    wait_for 60 is_past_on 0 5
    pid=${node[1]}
    : >hosts
    kill_node 0
    ok "node 0 and its name are gone: with DATA_ADDR the others train" wait_for 60 node_said 1 'generation [0-9]+: 2 of 3 nodes \(1-2\)'
    ok "… past more steps" goes_on_at 1 10
else
    skip "node 0 and its name are gone" "no mount namespace can be made here"
fi
done_testing
