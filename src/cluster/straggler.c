/* straggler — see straggler.h. */
#include "cluster/straggler.h"

#include "base/text.h"

/* The latest call that a rank is in, and the longest time that a rank has waited in it. */
struct furthest_call {
    const struct cluster_rank *rank; /* NULL: no rank is in a call */
    int64_t age_ms;
};

/* Finds the latest call. differ: numbers of calls cannot be compared, so the longest wait
 * decides. */
static struct furthest_call find_furthest_call(const struct cluster_node *nodes, int nodes_n,
                                               bool differ)
{
    struct furthest_call furthest = {0};
    for (int i = 0; i < nodes_n; i++) {
        for (int k = 0; k < nodes[i].ranks_n && !nodes[i].is_outside; k++) {
            const struct cluster_rank *rank = &nodes[i].ranks[k];
            double since = nodes[i].heartbeat_age_seconds;
            int64_t age_ms = rank->call_age_ms + (since > 0 ? (int64_t)(since * 1e3) : 0);
            bool is_further =
                !furthest.rank || (!differ && rank->call_sequence > furthest.rank->call_sequence);
            bool is_older = furthest.rank &&
                            (differ || rank->call_sequence == furthest.rank->call_sequence) &&
                            age_ms > furthest.age_ms;
            if (rank->call[0] != 0 && (is_further || is_older))
                furthest = (struct furthest_call){rank, age_ms};
        }
    }
    return furthest;
}

/* Returns a hint about the network. The supervisors reach each other, or there would be no world.
 * The workers use other ports and perhaps other networks. */
static const char *network_hint(int nodes_n)
{
    return nodes_n > 1
               ? ": their messages do not arrive, or take this long; check that no firewall "
                 "blocks the workers' ports (other ports than MASTER_PORT), and that DATA_ADDR "
                 "or UCX_NET_DEVICES name a network that connects the nodes"
               : "";
}

/* The first of the ranks that the others wait for. */
struct behind {
    const struct cluster_rank *rank; /* NULL: none */
    int node_id, ranks_n;
};

static struct behind find_behind(const struct cluster_node *nodes, int nodes_n,
                                 const struct cluster_rank *furthest, bool differ)
{
    struct behind behind = {0};
    for (int i = 0; i < nodes_n; i++) {
        for (int k = 0; k < nodes[i].ranks_n && !nodes[i].is_outside; k++) {
            const struct cluster_rank *rank = &nodes[i].ranks[k];
            if (!(differ ? rank->call[0] == 0 : rank->call_sequence < furthest->call_sequence))
                continue;
            behind.ranks_n++;
            if (!behind.rank || (!differ && rank->call_sequence < behind.rank->call_sequence)) {
                behind.rank = rank;
                behind.node_id = nodes[i].node_id;
            }
        }
    }
    return behind;
}

/* Writes "rank 2 (stage 1, tensor 0)". */
static const char *format_rank(const struct cluster_places *places, int rank, char *out, size_t cap)
{
    char place[64] = "";
    if (places && places->describe)
        places->describe(places->arg, rank, 1, place, sizeof place);
    text_format(out, cap, place[0] ? "rank %d (%s)" : "rank %d", rank, place);
    return out;
}

bool straggler_find(const struct cluster_node *nodes, int nodes_n, int64_t limit_ms,
                    const struct cluster_places *places, char *out, size_t cap)
{
    const bool differ = places && places->calls_differ;
    struct furthest_call furthest = find_furthest_call(nodes, nodes_n, differ);
    char late[96], waiting[96], more[32] = "";
    out[0] = 0;
    if (!furthest.rank || furthest.age_ms < limit_ms)
        return false;
    struct behind behind = find_behind(nodes, nodes_n, furthest.rank, differ);
    double age_s = (double)furthest.age_ms / 1e3;
    const char *call = furthest.rank->call;
    long long sequence = (long long)furthest.rank->call_sequence;
    bool is_one = behind.ranks_n == 1;
    if (!behind.rank && furthest.age_ms < STRAGGLER_ALL_MS)
        return false; /* all are slow, none is late */
    if (behind.rank)
        format_rank(places, behind.rank->rank, late, sizeof late);
    if (!is_one)
        text_format(more, sizeof more, " and %d more", behind.ranks_n - 1);
    format_rank(places, furthest.rank->rank, waiting, sizeof waiting);
    if (!behind.rank && differ)
        text_format(out, cap, "all ranks are in calls, %s in %s %lld for %.1f s%s", waiting, call,
                    sequence, age_s, network_hint(nodes_n));
    else if (!behind.rank)
        text_format(out, cap, "all ranks are in %s %lld for %.1f s%s", call, sequence, age_s,
                    network_hint(nodes_n));
    else if (differ)
        text_format(out, cap, "node %d %s%s %s in no call, while %s waits in %s %lld for %.1f s",
                    behind.node_id, late, more, is_one ? "is" : "are", waiting, call, sequence,
                    age_s);
    else
        text_format(out, cap, "node %d %s%s %s not entered %s %lld for %.1f s", behind.node_id,
                    late, more, is_one ? "has" : "have", call, sequence, age_s);
    return true;
}

/* Returns true if no rank moves. A node that has been silent for limit_ms counts as stalled,
 * whatever its ranks did last. */
static bool is_stalled(const struct cluster_node *node, int64_t limit_ms)
{
    if (node->heartbeat_age_seconds * 1e3 >= (double)limit_ms)
        return true;
    for (int k = 0; k < node->ranks_n; k++)
        if (node->ranks[k].call[0] == 0 || node->ranks[k].call_age_ms < limit_ms)
            return false;
    return node->ranks_n > 0;
}

bool straggler_is_stalled(const struct cluster_node *nodes, int nodes_n, int64_t limit_ms,
                          char *out, size_t cap)
{
    const struct cluster_node *silent = NULL;
    const struct cluster_rank *rank = NULL;
    out[0] = 0;
    for (int i = 0; i < nodes_n; i++) {
        if (nodes[i].is_outside)
            continue;
        if (!is_stalled(&nodes[i], limit_ms))
            return false;
        if (nodes[i].heartbeat_age_seconds * 1e3 >= (double)limit_ms)
            silent = &nodes[i];
        else
            rank = &nodes[i].ranks[0];
    }
    if (silent)
        text_format(out, cap, "node %d has been silent for %.1f s", silent->node_id,
                    silent->heartbeat_age_seconds);
    else if (rank)
        text_format(out, cap,
                    "all ranks wait in calls that get no answer: rank %d in %s %lld for %.1f s",
                    rank->rank, rank->call, (long long)rank->call_sequence,
                    (double)rank->call_age_ms / 1e3);
    return silent || rank;
}

void straggler_pace_add(struct straggler_pace *pace, const struct cluster_rank *rank)
{
    bool is_further = pace->sequence > 0 && rank->call_sequence > pace->sequence;
    if (is_further && pace->age_ms > pace->longest_ms)
        pace->longest_ms = pace->age_ms;
    pace->sequence = rank->call_sequence;
    pace->age_ms = rank->call[0] != 0 ? rank->call_age_ms : -1;
}
