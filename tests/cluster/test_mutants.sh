#!/bin/bash
# Planted bugs (mutation testing of the simulator). Each is one wrong line in a copy of a state machine's file. The simulator must
# catch every one, and the seed that caught it must fail in the same way again. A row: name | file | the edit, a sed expression.
set -u
. "$(dirname "${BASH_SOURCE[0]}")/../mutants_lib.sh"
repeats=1
rows() {
    cat <<'ROWS'
leases do not grow where processes stall|coordinator|s/peer_timeout_ms + coordinator_nodes_grace(c, node);/peer_timeout_ms;/
a slow round trip gives no lease|coordinator|s/COORDINATOR_LEASE_MS + coordinator_nodes_grace(c, node)/COORDINATOR_LEASE_MS/
a member ignores the length of its lease|member|s/        m->lease_ms = lease_from(m, reply);/        m->lease_ms = lease_from(m, reply) > 0 ? m->config.peer_timeout_ms : 0;/
a readiness is used twice|coordinator_world|s/node->used = node->ready;/;/
a world before all nodes are ready|coordinator_world|s/^           node->ready > node->used;/           true;/
a silent node is never lost|coordinator|s/} else if (silent_ms >= c->config.peer_timeout_ms \&\&$/} else if (silent_ms < 0 \&\&/
a node is lost before its lease ends|coordinator|s/} else if (silent_ms >= c->config.peer_timeout_ms \&\&$/} else if (silent_ms >= 2000 ||/
a longer lease that was promised is cut short|coordinator|s/now_ms - node->lease_end_ms >= COORDINATOR_MARGIN_MS) {/true) {/
a closed connection is a loss without delay|coordinator|s/^            COORDINATOR_DISCONNECTED_MS + coordinator_nodes_lag(c, node)) {/            0) {/
generations do not grow|coordinator|s/ = ++c->generation;/ = c->generation += !c->generation;/
a new node 0 does not adopt the generation|coordinator|s/    if (heartbeat->generation > c->generation) {/    if (0) {/
a second process gets a NODE_ID that is held|coordinator_join|s/^    if (coordinator_is_absent(node) || node->has_departed)$/    if (node != NULL)/
old messages are taken as new|coordinator|s/    if (heartbeat->sequence > node->sequence) {/    if (heartbeat->sequence > 0) {/
a loss that a member reports is ignored|coordinator|s/heartbeat->lost == c->generation : heartbeat->lost == 0/heartbeat->lost == -1 : heartbeat->lost == 0/
a loss during a recovery takes another restart|restart_budget|s/    counts->restarts += counts->losses == 0;/    counts->restarts++;/
a finished step does not end an incident|restart_budget|s/^    budget->counts.losses = 0;/    ;/
a step counts only if it is above all before it|restart_budget|/^void restart_budget_passed/,/^}/s/^{/{ if (step <= budget->calm_checkpoints) return; budget->calm_checkpoints = step;/;s/is_same_step = repeat->n > 0 \&\& repeat->step == loss->step/is_same_step = repeat->n > 0/
the losses of all ranks are repeats of one|restart_budget|s/\&budget->others\[loss->worker - 1\]/\&budget->others[0]/
a report of a failed comm counts beside its cause|coordinator|s/    } else if (is_cause) {/    } else if (1) {/
the member has no lease|member|s/return now_ms - m->answered_ms >= m->lease_ms;/return false;/
the lease counts from the reply|member|s/        m->answered_ms = sent_ms;/        m->answered_ms = now_ms;/
an aborted world is entered again|member|s/m->lost != generation && !m->is_over/!m->is_over/;s/else if (is_mine \&\& m->is_ready)/else if (is_mine)/;s/m->is_joined && m->is_ready && m->running == 0/m->is_joined \&\& m->running == 0/
an abort is ignored|member|s/    if (m->running != 0 && reply->generation >= m->running) {/    if (0) {/
a new node 0 is not noticed|member|s/    if (!is_known) {$/    if (0) {/
a reply without a lease is taken for one|member|s/reply->is_lease \&\& sent_ms > m->answered_ms/sent_ms > m->answered_ms/
a readiness outlives its node 0|member|s/} else if (m->is_ready \&\& m->is_ready_sent/} else if (0 \&\& m->is_ready_sent/
a readiness that is given up keeps its number|member|s/actions->abort = ++m->generation;/actions->abort = m->generation + 1;/
too few nodes begin|coordinator_world|s/    return ready_n >= c->config.min_nodes \&\& /    return /
a lost node is waited for|coordinator_world|s/    if (coordinator_is_absent(node)) {/&return false;/
a node that has left is waited for|coordinator_world|s/    if (node->has_departed)$/    if (0)/
a world has the addresses of other nodes|coordinator_world|s/c->addresses + (size_t)i \* n/c->addresses + (size_t)c->world_n * n/
a world names other nodes|coordinator_world|s/c->world_ids\[c->world_n++\] = i;/c->world_ids[c->world_n] = c->world_n; c->world_n++;/
a node of an earlier world stays in it|coordinator_world|s/node->is_in_world = is_ready(node);/node->is_in_world = node->is_in_world || is_ready(node);/
a node that is back is not taken in|coordinator|s/        regroup_nodes(c, node, "is back and joins the job again", now_ms);/        ;/
a generation goes on when a node is taken in|coordinator|/^static void regroup_nodes/,/^}/s/    stop_running(c, now_ms);/    ;/
a node outside is not heard while the others run|coordinator|s/    if (c->is_running \&\& node->is_in_world)$/    if (c->is_running)/
the loss of a node of the world is none|coordinator|s/c->is_running ? node->is_in_world :/c->is_running ? false :/
a node that leaves ends the job|coordinator|s/^    if (c->is_ended || !coord/    if (1 || !coord/
a node with a fault ends the job|coordinator|s/ || st == ST_FAULT);/);/
a node that cannot load ends the job|coordinator|s/^    if (is_outside(c, node) \&\& st != ST_OK)$/    if (0)/
a node that has left cannot return|coordinator_join|s/    if (coordinator_is_absent(node) || node->has_departed)$/    if (coordinator_is_absent(node))/
both signs of a death wait for the grace|coordinator|/^static void apply_closed/,/^}/s/    if (node \&\& /    if (0 \&\& /
both signs of a death wait, where the connection is closed last|coordinator|s/^    if (!coordinator_nodes_is_dead(node))$/    if (1)/
a closed connection is a death|coordinator_nodes|s/^           node->data_closed_ms >= 0 \&\&$/           node->data_closed_ms >= -1 \&\&/;s/node->disconnected_ms - node->data_closed_ms <= COORDINATOR_DISCONNECTED_MS/true/
a connection for data that ended is a death|coordinator_nodes|s/coordinator_is_present(node) \&\& node->disconnected_ms >= 0 \&\&/coordinator_is_present(node) \&\&/
a report outlives a later message of the node|coordinator|s/^    node->data_closed_ms = -1; .*/    ;/
a report outlives its time|coordinator_nodes|s/node->disconnected_ms - node->data_closed_ms <= COORDINATOR_DISCONNECTED_MS/true/
a report of an older generation counts|coordinator_nodes|s/ || heartbeat->closed != c->world_generation || / || /
a loss that the node explained is a death|coordinator_nodes|s/^        node->lost == heartbeat->closed)/        false)/
a rank is taken for that of another node|coordinator_nodes|s/c->nodes\[c->world_ids\[at\]\]/c->nodes[at]/
a report about an earlier process counts|coordinator_nodes|s/if (!node->is_in_world || !coord/if (!coord/
a report is sent once a process, not once a generation|member|s/    if (generation <= m->closed)$/    if (m->closed > 0)/
a return ends a generation at once|coordinator_world|s/    return !node->is_returning || c->has_stepped ||/    return true ||/
a return waits for a step without end|coordinator_world|s/now_ms - c->world_begun_ms >= COORDINATOR_RETURN_MS;/false;/
a return waits although a step is finished|coordinator_world|s/node->is_returning || c->has_stepped ||/node->is_returning ||/
a step of an earlier generation counts|coordinator|s/node->is_in_world || heartbeat->stepped != c->generation)/node->is_in_world || heartbeat->stepped == 0)/
the steps of the generation before count|coordinator_world|s/^    c->has_stepped = false;/    ;/
the time of the generation before counts|coordinator_world|s/^    c->world_begun_ms = now_ms;/    c->world_begun_ms += c->world_begun_ms ? 0 : now_ms;/
a lost node that is back counts as new|coordinator_join|s/is_back || heartbeat->generation > 0 || c->former_id >= 0,/false,/
a step is reported once a process, not once a generation|member|s/    if (generation <= m->stepped)$/    if (m->stepped > 0)/
a second coordinator needs no majority|succession|s/^            return false;$/            continue;/
half of a world is enough for any coordinator|succession|s/2 \* in_n == world->n \&\& is_incumbent/2 * in_n == world->n/
a third of a world is enough for its coordinator|succession|s/2 \* in_n == world->n \&\& is_incumbent/3 * in_n >= world->n \&\& is_incumbent/
only the first world of a list counts|succession|/^bool succession_permits/,/^}/s/i < s->n; i++/i < (s->n > 1); i++/
a process that has ended in sight counts as living|succession|s/(process->was_in_sight || is_whole)/is_whole/
a process that is replaced counts as living|succession|s/(process->was_in_sight || is_whole)/process->was_in_sight/
an ended process accounts for the others|succession|s/            accounted_n < world->n)/            accounted_n < 2)/
a world that a member brings later has no proofs of ends|succession|/^bool succession_add/,/^}/s/^    copy_ends(.*/    (void)copy_ends;/
a finished world replaces none|succession|s/    drop_replaced(s);/    ;/
a world is not checked against the list|coordinator_world|s/ \&\& is_permitted(c);/;/
a member that loads counts for a world|coordinator_world|s/    return is_ready(node) \&\& message_is_same(node/    return message_is_same(node/
another process of a node counts for it|coordinator_world|s/    return is_ready(node) \&\& message_is_same(node.*/    return is_ready(node);/
a member forgets a world that it enters|member|s/    if (!is_wanted || (past \&\& !succession_add(\&m->past, past)))/    if (!is_wanted)/
no coordinator yields|coordinator|/^bool coordinator_yields/,/^}/s/ || c->is_ended ||/ || 1 ||/
half of a world yields to a former coordinator|coordinator|s/ || other->generation != own)/)/
worlds of members are not merged|coordinator_join|s/^    if (join->past)$/    if (0)/
a world that is formed is not recorded|coordinator_world|s/is_added = succession_add(c->past, \&c->past_world);/is_added = true;/
each end counts as one in sight|coordinator|s/is_own || is_early);/true);/
no end counts as one in sight|coordinator|s/is_own || is_early);/false);/
an end soon after the coordinator's is out of sight|coordinator|s/is_own || is_early);/is_own);/
the end of an own member is out of sight|coordinator|s/is_own || is_early);/is_early);/
a new node 0 does not yield to a running job|coordinator|s/    if (other->has_past != has_past)$/    if (other->has_past != has_past) return false; if (0)/
no node leads the job|member|s/        actions->lead = true;$/        actions->lead = false;/
a node that leaves leads the job|member|/^static void ask_next/,/^}/s/^    if (m->is_leaving)$/    if (0)/
a member follows an answer that another node sent before|member|s/    if (m->config.may_search \&\& reply->leader_id != m->target)/    if (0)/
the next coordinator waits for the lost one|coordinator_world|s/               is_new_to_successor(c, node) || now_ms/               now_ms/
ROWS
}
plant_all tests/cluster/test_sim.c cluster 20000
