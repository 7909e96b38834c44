/* scale — what node 0 does for a node must not grow with the number of nodes. Simulated
 * members join, train, lose a node, get a new node 0 and leave; processor time for each node is
 * compared between 128 and 2,048 nodes. `make bench-control` measures more. */
#include "cluster/crowd_sim.h"

#define FEW 128
#define MANY 2048
/* A list over all nodes for each of them would be 16. Caches, and the text of missing nodes, which
 * has at most a kilobyte, are the rest. */
#define GROWTH_MAX 6.0

enum phase { JOIN, HEARTBEAT, LOST, NODE0, LEAVE, PHASES_N };
static const char *const names[] = {"joining", "a heartbeat", "a lost node", "a new node 0",
                                    "leaving"};

struct figures {
    double us[PHASES_N];
    int64_t leave_messages, reply_bytes_max;
    double memory, world;
};

static double lap_us(struct crowd_sim *s, double divisor)
{
    double us = 1e6 * crowd_cost_s(&s->cost) / divisor;
    s->cost = (struct crowd_cost){0};
    return us;
}

static void to_generation(struct crowd_sim *s, int64_t generation)
{
    if (!crowd_run(s, 60000, generation))
        fail_msg("%d nodes are not in generation %lld after 60 s", s->n, (long long)generation);
}

static void lose_one(struct crowd_sim *s)
{
    char want[64];
    int lost = s->n - 1;
    crowd_kill(s, lost);
    crowd_start(s, lost, 3000);
    to_generation(s, 2);
    text_format(want, sizeof(want), "node %d (node, pid %d) was lost: its connection was closed",
                lost, 4000 + lost);
    assert_non_null(strstr(s->line, want));
}

static void measure(int n, struct figures *out)
{
    static struct crowd_sim s;
    *out = (struct figures){0};
    crowd_open(&s, n);
    to_generation(&s, 1);
    assert_true(s.lines_n > n); /* each join has its line, and none was dropped */
    out->us[JOIN] = lap_us(&s, n);
    for (int i = 0; i < s.n; i++)
        s.members[i].rank.call_age_ms = 4000;
    s.members[s.n / 2].rank.call_sequence--;
    crowd_run(&s, 2000, INT64_MAX);
    char want[64];
    text_format(want, sizeof(want), "node %d rank %d has not entered all_reduce 812", s.n / 2,
                s.n / 2);
    assert_non_null(strstr(s.straggler, want));
    s.members[s.n / 2].rank.call_sequence++;
    for (int i = 0; i < s.n; i++)
        s.members[i].rank.call_age_ms = 0;
    lap_us(&s, 1);
    crowd_run(&s, 5000, INT64_MAX);
    assert_true(s.cost.messages_n >= 4 * n);
    out->us[HEARTBEAT] = lap_us(&s, (double)s.cost.messages_n);
    lose_one(&s);
    out->us[LOST] = lap_us(&s, n);
    crowd_replace_node0(&s);
    to_generation(&s, 3);
    out->us[NODE0] = lap_us(&s, n);
    out->memory = (double)s.coordinator_bytes / n;
    out->world = (double)crowd_world_bytes(&s) / n;
    out->leave_messages = crowd_leave(&s, 3000);
    out->us[LEAVE] = lap_us(&s, n);
    out->reply_bytes_max = s.reply_bytes_max;
    crowd_close(&s);
}

TEST(node0_costs_the_same_for_each_node)
{
    struct figures few, many;
    measure(FEW, &few);
    measure(MANY, &many);
    for (int i = 0; i < PHASES_N; i++) {
        print_message("# %s: %.1f us for each of %d nodes, %.1f us for each of %d\n", names[i],
                      few.us[i], FEW, many.us[i], MANY);
        if (many.us[i] > GROWTH_MAX * few.us[i])
            fail_msg("%s takes %.1f times as long for each node", names[i], many.us[i] / few.us[i]);
    }
    assert_true(many.memory < 1.5 * few.memory);
    assert_true(many.world < 1.5 * few.world);
    assert_true(many.reply_bytes_max < 4096);
    /* Each node leaves and sends a heartbeat a second; none is woken by the others. */
    assert_true(many.leave_messages < (int64_t)MANY * 10);
}

HARNESS_RUN_ALL()
