#!/bin/bash
# test_check_killed — a check that is killed while it writes a checkpoint: a later check removes what it has left in CHECKPOINT_DIR;
# where only a worker was killed, or a person stopped the check, it is removed at once.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"
does=check
mkdir -p host/sys/class/net/eth0 host/proc ckpt
echo up >host/sys/class/net/eth0/operstate
export DEVICE=cpu CHECK_ROOT=$PWD/host

folders() { ls -A ckpt | grep -c '^\.convoy-check-'; }
# A folder with a lock that its maker holds.
has_folder() { [ -n "$(find ckpt -path '*/.convoy-check-*/lock' -size +0 2>/dev/null)" ]; }
# catch — a check, stopped while it writes its checkpoint; it is fast, and the machine busy: several tries.
catch() {
    local tries
    for tries in $(seq 20); do
        begin_node 0 BUDGET=300ms CHECKPOINT_DIR=ckpt REPORT=killed.json
        until has_folder || is_gone "${node[0]}"; do :; done
        worker=$(workers_of_node 0)
        for w in $worker; do kill -STOP "$w" 2>/dev/null; done
        writers=$(for w in $worker; do workers_of "$w"; done)
        has_folder && return 0
        for w in $worker; do kill -CONT "$w" 2>/dev/null; done
        finish_node 0
    done
    return 1
}
all_gone() { for p in $worker $writers; do is_gone "$p" || return 1; done; }

# 1. All processes die at once: a check ten minutes later cleans up, and touches no checkpoint.
mkdir ckpt/step-00000001
ok "a check is stopped while it writes" catch
kill -KILL "${node[0]}"
for p in $worker $writers; do kill -KILL "$p" 2>/dev/null; done
finish_node 0
pid=$$
wait_for 60 all_gone
ok "kill -9 leaves a folder" is "$(folders)" 1
touch -d '11 minutes ago' ckpt/.convoy-check-*/lock
"$convoy" check CHECK=quick CHECKPOINT_DIR=ckpt >out 2>err
ok "which a check after ten minutes removes, and nothing else" is "$(ls -A ckpt)" step-00000001

# 2. The supervisor is not killed: it removes what its worker has left, at once.
ok "a check is stopped while it writes" catch
for p in $worker; do kill -KILL "$p"; done
finish_node 0
ok "a killed worker: 75" is "${rcs[0]}" 75
ok "its folder is gone when the check ends" is "$(folders)" 0
for signal in INT TERM; do
    ok "a check is stopped while it writes" catch
    kill -$signal "${node[0]}"
    for p in $worker; do kill -CONT "$p"; done
    finish_node 0
    ok "SIG$signal: its own code, and no folder" is "${rcs[0]} $(folders)" "$((128 + $(kill -l $signal))) 0"
done

# 3. Two nodes share the folder: one that starts while the other one writes leaves that one's folder alone.
ok "a check is stopped while it writes" catch
"$convoy" check CHECK=quick CHECKPOINT_DIR=ckpt STATUS_PORT=0 >out 2>err
ok "the folder of a check that runs stays" is "$(folders)" 1
for p in $worker; do kill -CONT "$p"; done
finish_node 0
ok "and that one restores its checkpoint" holds killed.json '.[0].rows | any(.name == "checkpoint and restart" and .verdict == "pass")'
ok "and removes its folder" is "$(folders)" 0
done_testing
