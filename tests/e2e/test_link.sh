#!/bin/bash
# test_link — LINK=auto: after the first steps node 0 says once what they wait for, what each form would take and which one it
# proposes; a run of one node says that there is nothing to propose; what it cannot go with is refused.
. "$(dirname "$0")/lib.sh"
. "$root/tests/e2e/nodes_lib.sh"

begin_nodes 2 $tiny GLOBAL_BATCH=4 STEPS=12 LINK=auto
finish_nodes 2
ok "two nodes train with LINK=auto" is "$codes" "0 0"
said='LINK=auto: of a step of [0-9.]+ m?s, [0-9.]+ m?s wait for other ranks; this worker sent [0-9.]+ .*B in it, at [0-9.]+ Mb/s'
ok "node 0 says what was measured" node_said 0 "$said; expected: COMPRESS=none [0-9.]+ m?s, [0-9]+% of it waiting, COMPRESS=bf16 .*; proposed: "
ok "once" is "$(cat err.0 out.0 | grep -c LINK=auto:)" 1
ok "node 1 does not" is "$(cat err.1 out.1 | grep -c LINK=auto:)" 0
begin_nodes 2 $tiny GLOBAL_BATCH=4 STEPS=3 LINK=auto
finish_nodes 2
ok "three steps are too few: nothing is said" is "$codes $(cat err.0 out.0 | grep -c LINK=auto:)" "0 0 0"
run $tiny STEPS=1 LINK=auto
ok "one node: nothing is proposed, and why" says 'LINK=auto: nothing is proposed: there is one node'
run $tiny STEPS=1 LINK=auto LOCAL_STEPS=5
ok "with LOCAL_STEPS it is refused" is "$rc $(grep -c 'LINK=auto (argument) does not go with LOCAL_STEPS=5' err)" "78 1"
done_testing
