/* Many nodes at once over loopback: node 0 in a process of its own, all others in this one.
 * Measures the time until all are in a world, and the CPU time that heartbeats take on node 0.
 * CLUSTER_NODES sets the number of nodes (96 by default). `make bench-control` has more. */
#include "cluster/crowd_load.h"

TEST(all_join_and_send_heartbeats)
{
    const int nodes_n = harness_number("CLUSTER_NODES", 96);
    struct crowd_load_result result;
    if (!crowd_load_run(nodes_n, nodes_n > 500 ? 10 : 3, true, &result))
        HARNESS_SKIP("not so many open files are allowed here for %d nodes", nodes_n);
    print_message("# %d nodes: all joined after %.2f s (node 0: %.2f s of a core); heartbeats: "
                  "%.1f %% of a core; memory: %.0f KiB a node\n",
                  nodes_n, result.joined_s, result.join_cpu_s, 100 * result.share,
                  1024 * (result.rss_mib - result.before_mib) / nodes_n);
    assert_int_equal(result.aborts_n, 0);
    assert_true(result.joined_s < (double)harness_patience_ms(10000) / 1e3);
    assert_true(result.share < 0.10);
    assert_true(result.oldest_s < (double)harness_patience_ms(6000) / 1e3);
}

NODES_MAIN(NULL)
