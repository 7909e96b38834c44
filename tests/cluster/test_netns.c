/* cluster between hosts: two network namespaces, connected by a cable (veth). The cable is pulled
 * out, or carries nothing in one direction. Both sides find that within 7 s and name the other
 * node. When the cable is back, they are in one generation again. CLUSTER_CUTS sets the number of
 * cuts (2 by default). */
#include "cluster/nodes.h"

static int did(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static int did(const char *fmt, ...)
{
    char line[512];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    strncat(line, " >/dev/null 2>&1", sizeof(line) - strlen(line) - 1);
    return system(line);
}

static char spaces[2][32];

static bool make_hosts(void)
{
    for (int i = 0; i < 2; i++) {
        text_format(spaces[i], sizeof(spaces[i]), "cluster%d-%d", i, getpid());
        if (did("ip netns add %s", spaces[i]) != 0)
            return false;
        text_format(nodes_netns[i], sizeof(nodes_netns[i]), "/run/netns/%s", spaces[i]);
    }
    bool is_made = did("ip -n %s link add cable0 type veth peer name cable1 netns %s", spaces[0],
                       spaces[1]) == 0;
    for (int i = 0; i < 2; i++)
        is_made = is_made &&
                  did("ip -n %s addr add 10.77.0.%d/24 dev cable%d", spaces[i], i + 1, i) == 0 &&
                  did("ip -n %s link set cable%d up", spaces[i], i) == 0 &&
                  did("ip -n %s link set lo up", spaces[i]) == 0;
    return is_made;
}

static void cut(int kind)
{
    if (kind == 0)
        assert_int_equal(did("ip -n %s link set cable1 down", spaces[1]), 0);
    else /* packets go to a machine that does not exist: one direction is dead, the other works */
        assert_int_equal(did("ip -n %s neigh replace 10.77.0.%d lladdr 02:00:00:00:00:99 dev "
                             "cable%d nud permanent",
                             spaces[kind - 1], 3 - kind, kind - 1),
                         0);
}

static void mend(int kind)
{
    if (kind == 0)
        assert_int_equal(did("ip -n %s link set cable1 up", spaces[1]), 0);
    else
        assert_int_equal(
            did("ip -n %s neigh del 10.77.0.%d dev cable%d", spaces[kind - 1], 3 - kind, kind - 1),
            0);
}

static int next_world(struct node *node)
{
    char line[1024];
    expect(node, "world ", 8000, line, sizeof(line));
    return atoi(strstr(line, "world ") + strlen("world "));
}

/* Waits until both nodes are in the same generation, later than *world, and sets *world to it. Its
 * number may be higher by more than one: a generation that was given up, even one that only one
 * node had entered, keeps its number. */
static void expect_later_world(struct node *nodes, int *world)
{
    int number[2] = {next_world(&nodes[0]), next_world(&nodes[1])};
    while (number[0] != number[1]) {
        int behind = number[0] < number[1] ? 0 : 1;
        number[behind] = next_world(&nodes[behind]);
    }
    assert_true(number[0] > *world);
    *world = number[0];
}

static int after(void **state)
{
    for (int i = 0; i < 2; i++)
        did("ip netns del %s", spaces[i]);
    return 0;
}

TEST_WITH(a_cut_cable_is_noticed_and_mended, NULL, after)
{
    struct node nodes[2];
    char line[1024];
    int cuts_n = harness_number("CLUSTER_CUTS", 2);
    int64_t worst_ms = 0, worst_back_ms = 0;
    int world = 1;
    if (getuid() != 0 || !make_hosts())
        HARNESS_SKIP("network namespaces cannot be made here");
    for (int i = 1; i >= 0; i--)
        start_words(&nodes[i], i,
                    (const char *[]){"2", "10.77.0.1", "1234", "a secret of tests", agree}, 5);
    expect(&nodes[0], "world 1 ", 5000, NULL, 0);
    expect(&nodes[1], "world 1 ", 5000, NULL, 0);
    for (int i = 0; i < cuts_n; i++) {
        command(&nodes[i % 2], "step");
        harness_wait_ms(1200 + 100 * (i % 7));
        int kind = cuts_n > 2 ? i % 3 : i;
        int64_t start_ms = clock_ms();
        cut(kind);
        for (int k = 0; k < 2; k++) {
            expect(&nodes[k], "abort", 7000, line, sizeof(line));
            assert_non_null(strstr(line, k == 0 ? "node 1 (" : "node 0 was lost"));
        }
        int64_t ms = clock_ms() - start_ms;
        worst_ms = ms > worst_ms ? ms : worst_ms;
        mend(kind);
        start_ms = clock_ms();
        expect_later_world(nodes, &world);
        ms = clock_ms() - start_ms;
        worst_back_ms = ms > worst_back_ms ? ms : worst_back_ms;
    }
    print_message("# %d cuts: noticed and named by both within %lld ms, together again within %lld "
                  "ms of the mending\n",
                  cuts_n, (long long)worst_ms, (long long)worst_back_ms);
    end_node(&nodes[0]);
    end_node(&nodes[1]);
}

NODES_MAIN(NULL)
