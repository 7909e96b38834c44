#!/bin/bash
# test_dataplane — the ports between workers of different nodes: on which addresses and how long they are open, and what
# hostile hosts can do there. Sums, processes and restarts stay those of an undisturbed run.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
unset UCX_TLS UCX_NET_DEVICES
batch="BATCH_SIZE=1 GLOBAL_BATCH=12 STEPS=1500"
in="nice -n 5" # the nodes yield to this script, which looks at them on their way

# ports_of PID — where a process listens: "address:port …", from /proc (the table that ss reads).
ports_of() {
    perl -e 'my ($pid) = @ARGV; my (%mine, @out);
        for (glob "/proc/$pid/fd/*") { my $l = readlink $_; $mine{$1} = 1 if defined $l && $l =~ /^socket:\[(\d+)\]/ }
        for my $f ("tcp", "tcp6") {
            open my $t, "<", "/proc/$pid/net/$f" or next;
            while (<$t>) { my @c = split; next unless @c > 9 && $c[3] eq "0A" && $mine{$c[9]};
                my ($a, $p) = split /:/, $c[1];
                my $host = length $a == 8 ? join ".", reverse map { hex } $a =~ /../g : $a;
                push @out, "$host:" . hex $p } }
        print join " ", sort @out' "$1"
}
hosts_of() { ports_of "$1" | tr ' ' '\n' | sed 's/:[0-9]*$//' | sort -u | tr '\n' ' ' | sed 's/ $//'; }
count_ports() { ports_of "$1" | wc -w; }
first_worker() { local w; w=$(workers_of_node "$1"); echo "${w%% *}"; }
listens() { local w; w=$(first_worker "$1"); [ -n "$w" ] && [ -n "$(ports_of "$w")" ]; }
# attack ADDRESS PORT — 400 hostile clients: UCX's own magic and a length that its library asserts, noise, our magic and
# noise, a beginning without an end, silence. Prints how many could connect.
attack() {
    perl -MIO::Socket::INET -e 'my ($host, $port, $wait) = @ARGV; my ($n, @held) = (0);
        for my $i (0 .. 399) {
            my $s = IO::Socket::INET->new(PeerAddr => $host, PeerPort => $port, Timeout => $wait) or next;
            $n++;
            my $kind = $i % 5;
            $s->syswrite(pack("Q<", 0x43455855) . "\x01" . "\xff" x 63) if $kind == 0;
            $s->syswrite(join "", map { chr rand 256 } 1 .. 4096) if $kind == 1;
            $s->syswrite("convoyD1" . join "", map { chr rand 256 } 1 .. 88) if $kind == 2;
            $s->syswrite("convoyD1") if $kind == 3;
            push @held, $s if $i % 2;
        }
        print $n' "$1" "$2" $((2 * $(slow)))
}

# 1. Where workers listen, and until when.
begin_node 0 N_NODES=2 $tiny STEPS=100000000
wait_for 20 listens 0
ok "a worker that waits listens on MASTER_ADDR's address alone" is "$(hosts_of "$(first_worker 0)")" 127.0.0.1
ok "…at one port" is "$(count_ports "$(first_worker 0)")" 1
ok "node 0 itself too" is "$(hosts_of "${node[0]}")" 127.0.0.1
begin_node 1 N_NODES=2 $tiny STEPS=100000000
wait_for 30 is_past 5
ok "workers that train listen nowhere" is "$(count_ports "$(first_worker 0)") $(count_ports "$(first_worker 1)")" "0 0"
ok "a node other than 0 listens nowhere" is "$(count_ports "${node[1]}")" 0
ok "the log names the transport and the reason" node_says 0 "BACKEND=auto uses tcp: rank 0 has no InfiniBand"
kill "${node[0]}"
finish_nodes 2

hosts_are() { [ "$(hosts_of "$(first_worker 0)")" = "$1" ]; }
# where NAME WANT SETTING… — the addresses of a worker with these settings.
where() {
    local name=$1 want=$2
    shift 2
    begin_node 0 N_NODES=2 $tiny STEPS=5 "$@"
    ok "$name" wait_for 20 hosts_are "$want"
    kill "${node[0]}"
    finish_node 0
}
where "DATA_ADDR, an address" 127.0.0.2 DATA_ADDR=127.0.0.2
where "DATA_ADDR, an interface" 127.0.0.1 DATA_ADDR=lo
where "DATA_ADDR, a name" 127.0.0.1 DATA_ADDR=localhost.localdomain MASTER_ADDR=127.0.0.1 DATA_ADDR=127.0.0.1
if [ -e /proc/net/if_inet6 ] && grep -q '^0*1 ' /proc/net/if_inet6; then
    where "IPv6" 00000000000000000000000001000000 DATA_ADDR=::1
    train_nodes 2 $tiny STEPS=5 MASTER_ADDR=::1
    ok "a job over IPv6" is "$codes" "0 0"
else
    skip "IPv6" "no ::1 here"
fi
begin_node 0 N_NODES=2 $tiny STEPS=5 MASTER_ADDR=0.0.0.0
finish_node 0
ok "MASTER_ADDR=0.0.0.0 is refused: 78" is "${rcs[0]} $(grep -c 'error.*DATA_ADDR' err.0)" "78 1"

# 2. A run without attack, and one with: while a worker waits for the other node, and while they train.
# grown PID — the most memory that a process has had, KiB.
grown() { awk '/^VmHWM/ { print $2 }' "/proc/$1/status"; }
begin_nodes 2 $tiny $batch METRICS_FILE=calm.jsonl CHECKPOINT_DIR=calm
wait_for 30 is_past 400
calm=$(grown "$(first_worker 0)")
finish_nodes 2
ok "without attack: done" is "$codes" "0 0"
begin_node 0 N_NODES=2 $tiny $batch METRICS_FILE=hostile.jsonl CHECKPOINT_DIR=hostile
wait_for 20 listens 0
victim=$(first_worker 0) address=$(ports_of "$victim")
ok "400 hostile clients find the port open while the other node is missing" is "$(attack "${address%:*}" "${address##*:}")" 400
begin_node 1 N_NODES=2 $tiny $batch
pid=${node[0]}
wait_for 30 is_past 50
ok "…and closed while the nodes train" is "$(attack 127.0.0.1 "${address##*:}") $(count_ports "$victim")" "0 0"
wait_for 30 is_past 400
hostile=$(grown "$victim")
finish_nodes 2
ok "with attack: done, without a restart" is "$codes $(grep -c 'restart [0-9]' err.0)" "0 0 0"
ok "by the same worker from beginning to end" [ "${hostile:-0}" -gt 0 ]
ok "its memory has not grown by what they sent" [ "${hostile:-999999999}" -lt $((calm + 8192)) ]
ok "a warning counts the closed connections" node_says 0 "warn.*closed [0-9]* connections* to the port of workers"
ok "the losses are those without attack" cmp <(losses calm.jsonl) <(losses hostile.jsonl)
ok "the weights are, to the last bit" is "$(weights hostile/step-*1500)" "$(weights calm/step-*1500)"
done_testing
