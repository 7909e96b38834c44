# copies_lib — jobs with copies of the state in peers' memory whose workers and nodes are killed. Source it after nodes_lib.sh. KILLS sets
# how often.
kills=${KILLS:-3}
steps="BATCH_SIZE=1 LR_SCHEDULE=constant MAX_RESTARTS=1000 JOIN_TIMEOUT=60s CHECKPOINT_EVERY=100000000"
resumes() { cat out.log.0 err.0 2>/dev/null | grep -c 'resuming from memory'; }
# was_redone — the most finished steps that a resumption has gone back, by the steps that node 0's ranks printed: a step printed
# again after N later ones.
was_redone() {
    grep -hoE '^step [0-9]+' "$@" | cut -c6- | awk '$1 <= last { back = last - $1 + 1; if (back > most) most = back } { last = $1 } END { print most + 0 }'
}
# killed NODES SETTING… — KILLS kills of a worker or a whole node, then a stop; and a calm run of as many steps.
killed() {
    local nodes=$1 name=$2 k i p hit at before
    shift 2
    : >out.log.0 >redone
    begin_nodes "$nodes" $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$name" "$@"
    wait_for 30 is_past 5
    for k in $(seq "$kills"); do
        before=$(grep -c 'resuming from memory' err.0)
        sleep "0.$((RANDOM % 5 + 1))$((RANDOM % 10))"
        i=$((RANDOM % nodes))
        if [ $((k % 2)) = 0 ]; then
            p=${node[$i]}
            kill_node "$i"
            if [ "$i" = 0 ]; then cat err.0 >>out.log.0; cat out.0 >>redone; before=0; fi
            begin_node "$i" N_NODES="$nodes" $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$name" "$@"
            pid=${node[0]}
        else
            kill -KILL $(workers_of_node "$i" | cut -d' ' -f1)
        fi
        wait_for 30 node_says_times 0 'resuming from memory' $((before + 1)) >/dev/null
        at=$(last_step)
        wait_for 30 is_past $((${at:-0} + 3))
    done
    cat out.0 >>redone
    kill -TERM "${node[0]}"
    finish_nodes "$nodes"
    ok "$name: $kills times from memory, none from a checkpoint" is "$(resumes) $(cat out.log.0 err.0 | grep -c 'resuming from [^mc]')" "$kills 0"
    ok "$name: at most one finished step is done again" [ "$(was_redone redone)" -le 1 ]
    at=$(newest_step "$name")
    "$convoy" verify "$name" JSON=1 >out 2>err
    ok "$name: the ledger has every step" holds out ".[0] | .problem == null and .first_step == 1 and .last_step == $at"
    begin_nodes "$nodes" $tiny $steps STEPS="$at" CHECKPOINT_DIR="$name-calm" "$@"
    finish_nodes "$nodes"
    ok "$name: the weights after $at steps are those of a calm run" is "$(weights "$name/$(newest "$name")")" "$(weights "$name-calm/$(newest "$name-calm")")"
}
# traced_node NAME I SETTING… — one of two nodes, with what it opens in trace-NAME.I.*.
traced_node() { in="$trace_opens trace-$1.$2" begin_node "$2" N_NODES=2 $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$1" CHECKPOINT_EVERY=100 "${@:3}"; }
# traced NAME SETTING… — a worker of node 1 is killed, then the node: no checkpoint is read. When both nodes are, one is.
traced() {
    local name=$1 begin at
    shift
    if ! there strace; then
        skip "$name, strace: no file of a checkpoint is opened for reading" "strace is not installed"
        skip "$name, strace: it is when all nodes were lost" "strace is not installed"
        skip "$name, strace: done" "strace is not installed"
        return
    fi
    traced_node "$name" 1 "$@"
    traced_node "$name" 0 "$@"
    wait_for 60 is_past 150
    begin=$(seconds_now)
    kill -KILL $(workers_of_node 1 | cut -d' ' -f1)
    wait_for 30 node_says_times 0 'resuming from memory' 1
    at=$(last_step)
    wait_for 30 is_past $((${at:-0} + 5))
    kill_node 1
    traced_node "$name" 1 "$@"
    pid=${node[0]}
    wait_for 30 node_says_times 0 'resuming from memory' 2
    at=$(last_step)
    wait_for 30 is_past $((${at:-0} + 5))
    echo "$begin $(seconds_now)" >windows
    ok "$name, strace: no file of a checkpoint is opened for reading" is "$(checkpoint_reads windows trace-"$name".*)" 0
    kill_node 1
    kill_node 0
    seconds_now >control
    traced_node "$name" 1 "$@"
    traced_node "$name" 0 "$@"
    wait_for 30 node_said 0 "resuming from $name"
    wait_for 30 is_past 100
    echo "$(cat control) $(seconds_now)" >control
    ok "$name, strace: it is when all nodes were lost" [ "$(checkpoint_reads control trace-"$name".*)" -gt 0 ]
    kill -TERM "${node[0]}"
    finish_nodes 2
    ok "$name, strace: done" is "$codes" "143 143"
}

# pair_lost NAME SETTING… — of four nodes the last two are killed, which hold one another's copies.
pair_lost() {
    local name=$1 at i
    shift
    begin_nodes 4 $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$name" CHECKPOINT_EVERY=100 "$@"
    wait_for 30 is_past 250
    kill_node 2
    kill_node 3
    for i in 2 3; do begin_node $i N_NODES=4 $tiny $steps STEPS=100000000 CHECKPOINT_DIR="$name" CHECKPOINT_EVERY=100 "$@"; done
    pid=${node[0]}
    wait_for 30 node_said 0 "resuming from .*$name/step-[0-9]+: step [0-9]+ of"
    ok "$name: what is missing is said" node_says 0 "no state is whole in memory: of step [0-9]+ the parts of 2 ranks are lost .*rank 2's with node 2 and node 3; going on from the checkpoint"
    ok "$name: and the checkpoint is read" node_said 0 "resuming from .*$name/step-[0-9]+: step [0-9]+ of"
    at=$(last_step)
    wait_for 30 is_past $((at + 50))
    kill -TERM "${node[0]}"
    finish_nodes 4
    at=$(newest_step "$name")
    begin_nodes 4 $tiny $steps STEPS="$at" CHECKPOINT_DIR="$name-calm" "$@"
    finish_nodes 4
    ok "$name: with the same bits" is "$(weights "$name/$(newest "$name")")" "$(weights "$name-calm/$(newest "$name-calm")")"
}
