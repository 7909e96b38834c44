/* stuck — see stuck.h. */
#include "meet/stuck.h"

#include "base/text.h"

/* The furthest call that somebody is in; age of who waits there longest. */
struct front {
    const struct meet_rank *rank; /* NULL: nobody is in a call */
    int64_t age_ms;
};

static int64_t age_of(const struct meet_node *node, const struct meet_rank *rank)
{
    double since = node->heartbeat_age_seconds;
    return rank->call_age_ms + (since > 0 ? (int64_t)(since * 1e3) : 0);
}

static struct front find_front(const struct meet_node *nodes, int nodes_n)
{
    struct front front = {0};
    for (int i = 0; i < nodes_n; i++) {
        for (int k = 0; k < nodes[i].ranks_n; k++) {
            const struct meet_rank *rank = &nodes[i].ranks[k];
            int64_t age_ms = age_of(&nodes[i], rank);
            bool is_further = front.rank == NULL || rank->call_sequence > front.rank->call_sequence;
            bool is_older = front.rank != NULL &&
                            rank->call_sequence == front.rank->call_sequence &&
                            age_ms > front.age_ms;
            if (rank->call[0] != 0 && (is_further || is_older))
                front = (struct front){rank, age_ms};
        }
    }
    return front;
}

/* A rank has entered the call when it is in it, or has come out of it: its sequence says so. */
static bool is_behind(const struct meet_rank *rank, const struct meet_rank *front)
{
    return rank->call_sequence < front->call_sequence;
}

/* The supervisors hear each other, or there would be no world; what the workers send goes other
 * ways. */
static const char *between(int nodes_n)
{
    return nodes_n > 1 ? ": what they send does not arrive, or takes this long; workers use other "
                         "ports than MASTER_PORT (is a firewall between the nodes?), on networks "
                         "that DATA_ADDR or UCX_NET_DEVICES chooses"
                       : "";
}

bool stuck_find(const struct meet_node *nodes, int nodes_n, int64_t limit_ms, char *out, size_t cap)
{
    struct front front = find_front(nodes, nodes_n);
    const struct meet_rank *last = NULL;
    int node_id = 0, behind_n = 0;
    out[0] = 0;
    if (front.rank == NULL || front.age_ms < limit_ms)
        return false;
    for (int i = 0; i < nodes_n; i++) {
        for (int k = 0; k < nodes[i].ranks_n; k++) {
            const struct meet_rank *rank = &nodes[i].ranks[k];
            if (!is_behind(rank, front.rank))
                continue;
            behind_n++;
            if (last == NULL || rank->call_sequence < last->call_sequence) {
                last = rank;
                node_id = nodes[i].node_id;
            }
        }
    }
    double age_s = (double)front.age_ms / 1e3;
    long long sequence = (long long)front.rank->call_sequence;
    if (last == NULL && front.age_ms < STUCK_ALL_MS)
        return false; /* slow together: nobody to name */
    if (last == NULL)
        text_format(out, cap, "all ranks are in %s %lld for %.1f s%s", front.rank->call, sequence,
                    age_s, between(nodes_n));
    else if (behind_n == 1)
        text_format(out, cap, "node %d rank %d has not entered %s %lld for %.1f s", node_id,
                    last->rank, front.rank->call, sequence, age_s);
    else
        text_format(out, cap, "node %d rank %d and %d more have not entered %s %lld for %.1f s",
                    node_id, last->rank, behind_n - 1, front.rank->call, sequence, age_s);
    return true;
}

/* is_still — where nothing has been heard for so long the node counts, whatever it was doing. */
static bool is_still(const struct meet_node *node, int64_t limit_ms)
{
    if (node->heartbeat_age_seconds * 1e3 >= (double)limit_ms)
        return true;
    for (int k = 0; k < node->ranks_n; k++)
        if (node->ranks[k].call[0] == 0 || node->ranks[k].call_age_ms < limit_ms)
            return false;
    return node->ranks_n > 0;
}

bool stuck_is_still(const struct meet_node *nodes, int nodes_n, int64_t limit_ms, char *out,
                    size_t cap)
{
    const struct meet_node *silent = NULL;
    const struct meet_rank *rank = NULL;
    out[0] = 0;
    for (int i = 0; i < nodes_n; i++) {
        if (!is_still(&nodes[i], limit_ms))
            return false;
        if (nodes[i].heartbeat_age_seconds * 1e3 >= (double)limit_ms)
            silent = &nodes[i];
        else
            rank = &nodes[i].ranks[0];
    }
    if (silent != NULL)
        text_format(out, cap, "node %d is silent for %.1f s", silent->node_id,
                    silent->heartbeat_age_seconds);
    else if (rank != NULL)
        text_format(out, cap,
                    "all ranks are in calls that get no answer, rank %d in %s %lld for %.1f s",
                    rank->rank, rank->call, (long long)rank->call_sequence,
                    (double)rank->call_age_ms / 1e3);
    return silent != NULL || rank != NULL;
}

void stuck_pace_add(struct stuck_pace *pace, const struct meet_rank *rank)
{
    bool is_further = pace->sequence > 0 && rank->call_sequence > pace->sequence;
    if (is_further && pace->age_ms > pace->longest_ms)
        pace->longest_ms = pace->age_ms;
    pace->sequence = rank->call_sequence;
    pace->age_ms = rank->call[0] != 0 ? rank->call_age_ms : -1;
}
