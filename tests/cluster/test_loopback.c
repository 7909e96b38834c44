/* cluster between processes over loopback: any order of start, losses of every kind, stops and
 * ends. Limits: a closed connection is found within 1 s, silence within 7 s, a difference of
 * settings within 3 s. */
#include "cluster/nodes.h"

TEST(nodes_join_in_any_order)
{
    struct node nodes[4];
    char line[1024], all[1024];
    int port = free_port();
    start(&nodes[2], 2, 4, port);
    start(&nodes[0], 0, 4, port);
    harness_wait_ms(300);
    start(&nodes[3], 3, 4, port);
    start(&nodes[1], 1, 4, port);
    expect(&nodes[0], "world 1 4 node 0 worker 0", 3000, all, sizeof(all));
    for (int i = 1; i < 4; i++) {
        expect(&nodes[i], "world 1", 2000, line, sizeof(line));
        assert_string_equal(line, all);
    }
    for (int i = 0; i < 4; i++)
        command(&nodes[i], "leave");
    for (int i = 0; i < 4; i++)
        expect(&nodes[i], "end 0", 2000, NULL, 0);
    for (int i = 0; i < 4; i++)
        assert_int_equal(exit_of(&nodes[i]), 0);
}

TEST(a_killed_node_is_found_and_replaced)
{
    struct node nodes[3];
    char line[1024], want[32];
    int port = free_port();
    int64_t worst_ms = 0, worst_back_ms = 0;
    start_all(nodes, 3, port);
    for (int round = 0; round < 6; round++) {
        int victim = 1 + round % 2, other = 3 - victim;
        end_node(&nodes[victim]);
        int64_t ms = expect(&nodes[0], "abort", 1000, line, sizeof(line));
        worst_ms = ms > worst_ms ? ms : worst_ms;
        text_format(want, sizeof(want), "node %d (", victim);
        assert_non_null(strstr(line, want));
        expect(&nodes[other], "abort", 500, NULL, 0);
        start(&nodes[victim], victim, 3, port);
        ms = 0;
        for (int i = 0; i < 3; i++)
            ms += expect(&nodes[i], "world", 2000, NULL, 0);
        worst_back_ms = ms > worst_back_ms ? ms : worst_back_ms;
        command(&nodes[0], "step"); /* so that the recovery made progress */
    }
    print_message("# kill -9: noticed within %lld ms, a new world within %lld ms of the "
                  "replacement's start\n",
                  (long long)worst_ms, (long long)worst_back_ms);
    for (int i = 0; i < 3; i++)
        end_node(&nodes[i]);
}

/* Kills node 1 of three, of which node 2 reports a closed connection. Returns true if node 0 had
 * both signs before it gave up waiting for the second. */
static bool kill_with_report(void)
{
    struct node nodes[3];
    char line[1024];
    int port = free_port();
    start_all(nodes, 3, port);
    end_node(&nodes[1]);
    command(&nodes[2], "closed 1");
    int64_t ms = expect(&nodes[0], "abort", 1000, line, sizeof(line));
    bool has_both = strstr(line, "its connections to node 0 and to a rank of another node") != NULL;
    print_message("# kill -9, with a report: noticed within %lld ms: %s\n", (long long)ms, line);
    assert_non_null(strstr(line, "node 1 ("));
    assert_true(!has_both || ms <= harness_patience_ms(400));
    expect(&nodes[2], "abort", 500, NULL, 0);
    for (int i = 0; i < 3; i += 2)
        end_node(&nodes[i]);
    return has_both;
}

/* Another node reports that its connection to the rank was closed: no grace. Node 0 waits 500 ms
 * for such a report; on a busy machine it may come later. */
TEST(a_killed_node_is_lost_at_once_with_both_signs)
{
    int tries = 1;
    while (tries < 4 && !kill_with_report())
        tries++;
    assert_true(tries < 4);
}

TEST(a_stopped_node_is_lost_and_kept_out)
{
    struct node nodes[2], second;
    char line[1024];
    int port = free_port();
    start_all(nodes, 2, port);
    kill(nodes[1].pid, SIGSTOP);
    int64_t ms = expect(&nodes[0], "abort 1", 7000, line, sizeof(line));
    print_message("# SIGSTOP: noticed within %lld ms: %s\n", (long long)ms, line);
    assert_non_null(strstr(line, "node 1 ("));
    start(&second, 1, 2, port);
    expect(&nodes[0], "world 2", 3000, NULL, 0);
    kill(nodes[1].pid, SIGCONT);
    expect(&nodes[1], "end 75", 3000, line, sizeof(line));
    assert_non_null(strstr(line, "its place was taken"));
    command(&nodes[0], "lost"); /* the job goes on without it */
    expect(&second, "world 3", 2000, NULL, 0);
    exit_of(&nodes[1]);
    end_node(&nodes[0]);
    end_node(&second);
}

TEST(a_new_node_0_gets_the_generation)
{
    struct node nodes[3];
    char line[1024];
    int port = free_port();
    start_all(nodes, 3, port);
    command(&nodes[1], "lost");
    for (int i = 0; i < 3; i++)
        expect(&nodes[i], "world 2", 2000, NULL, 0);
    end_node(&nodes[0]);
    int64_t ms = expect(&nodes[1], "abort 2", 1500, line, sizeof(line));
    print_message("# node 0 killed: noticed within %lld ms: %s\n", (long long)ms, line);
    expect(&nodes[2], "abort 2", 1000, NULL, 0);
    harness_wait_ms(500);
    start(&nodes[0], 0, 3, port);
    /* Generation 3 was given up by the nodes that were ready while node 0 was away. None of them
     * may enter it now. */
    for (int i = 0; i < 3; i++)
        expect(&nodes[i], "world 4 3", 4000, NULL, 0);
    command(&nodes[1], "step");
    harness_wait_ms(1200);       /* the next heartbeat reports it */
    kill(nodes[0].pid, SIGSTOP); /* silent, not closed */
    ms = expect(&nodes[1], "abort 4", 7000, line, sizeof(line));
    print_message("# node 0 stopped: noticed within %lld ms: %s\n", (long long)ms, line);
    kill(nodes[0].pid, SIGCONT);
    expect(&nodes[2], "world 5", 4000, NULL, 0);
    for (int i = 0; i < 3; i++)
        end_node(&nodes[i]);
}

TEST(a_stop_and_an_error_reach_all_nodes)
{
    struct node nodes[3];
    char line[1024];
    int port = free_port();
    start_all(nodes, 3, port);
    command(&nodes[2], "stop");
    expect(&nodes[0], "stop 3", 1000, NULL, 0);
    expect(&nodes[1], "stop 3", 1000, NULL, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(exit_of(&nodes[i]), 143);
    start_all(nodes, 3, port);
    command(&nodes[1], "store");
    expect(&nodes[0], "end 74", 1000, line, sizeof(line));
    assert_non_null(strstr(line, "node 1 ("));
    assert_non_null(strstr(line, "disk full"));
    expect(&nodes[2], "end 74", 1000, NULL, 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(exit_of(&nodes[i]), 74);
}

TEST(restarts_are_limited)
{
    struct node nodes[2];
    char line[1024];
    int port = free_port();
    start_all(nodes, 2, port);
    for (int i = 0; i < 10; i++) {
        end_node(&nodes[1]);
        expect(&nodes[0], i < 2 ? "abort" : "end 75", 1500, line, sizeof(line));
        if (i == 2)
            break;
        start(&nodes[1], 1, 2, port);
        expect(&nodes[0], "world", 3000, NULL, 0);
    }
    assert_non_null(strstr(line, "the same rank was lost three times"));
    exit_of(&nodes[0]);
}

NODES_MAIN(NULL)
