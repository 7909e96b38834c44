/* The coordinator and 3 to 8 members in a simulator with a seed (sim.h). Faults: crashes, restarts,
 * second processes of a node, frozen processes, lost, repeated, late and reordered messages,
 * partitions of one or both directions, reset connections to node 0 and for data, lost workers. The
 * same seed gives the same history.
 *
 * Safety, checked after every event:
 *   - A member enters generations of rising numbers only.
 *   - At most one world runs among the processes that are not frozen.
 *   - A world is made of one readiness of each node, and no readiness is used twice.
 *   - A process that enters a world is part of it.
 *   - A process is refused as a second one only if its node has another.
 *   - A node is lost before its grace or lease ends if, and only if, node 0 has received both signs
 *     of its death: its connection was closed, and so was one for data (sim_death.h).
 *   - A generation finishes a step, or runs for 10 s, before a node that returns ends it; after a
 *     step such a node does not wait (sim_return.h).
 *   - A node that joins a job that has trained, and cannot load, does not end the job.
 *   - The losses until a step is finished take one restart; only three losses of one node give the
 *     job up (sim_incident.h).
 * Liveness: 16 s after the last fault all nodes are in one generation, 26 s where some may be left
 * out and one of them waits for a step. Overload: where processes only stall, for 1.2 s at a time
 * (2 s if the stalls have grown to that slowly), no node is lost. Losses in a row: all nodes but
 * MIN_NODES within 5 s, and losses after returns to a checkpoint, do not end the job. Succession
 * (sim_succession.h): any number of nodes killed at once, 3 s later the rest train; a node that is
 * asked to stop while it searches for the coordinator ends no other one; while the network falls
 * into other parts again and again, the part that may train does so within 20 s.
 *
 * `test_sim` runs the suite. `test_sim FIRST COUNT` prints the first seed that fails;
 * test_mutants.sh uses it. */
#include "cluster/sim_succession.h"

static struct sim sim;

TEST(safety_and_liveness_in_many_histories)
{
    int64_t worlds_n = 0, processes_n = 0;
    for (uint64_t seed = 1; seed <= 10000; seed++) {
        if (!sim_run(&sim, seed))
            fail_msg("%s", sim.failure);
        worlds_n += sim.worlds_n;
        processes_n += sim.processes_n;
    }
    print_message("# 10000 histories: %lld processes, %lld worlds\n", (long long)processes_n,
                  (long long)worlds_n);
}

TEST(overloaded_hosts_lose_no_node)
{
    for (uint64_t seed = 1; seed <= 2000; seed++)
        if (!sim_overload(&sim, seed))
            fail_msg("%s", sim.failure);
}

TEST(one_incident_does_not_end_the_job)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        if (!sim_incident(&sim, seed))
            fail_msg("%s", sim.failure);
}

TEST(returns_to_a_checkpoint_do_not_end_the_job)
{
    for (uint64_t seed = 1; seed <= 200; seed++)
        if (!sim_rollback(&sim, seed))
            fail_msg("%s", sim.failure);
}

TEST(lost_nodes_do_not_stop_the_job_with_or_without_the_coordinators)
{
    for (uint64_t seed = 1; seed <= 2000; seed++)
        if (!sim_handover(&sim, seed))
            fail_msg("%s", sim.failure);
}

TEST(a_node_that_leaves_ends_no_other_node)
{
    for (uint64_t seed = 1; seed <= 500; seed++)
        if (!sim_leave(&sim, seed))
            fail_msg("%s", sim.failure);
}

TEST(one_part_of_a_network_trains_on)
{
    for (uint64_t seed = 1; seed <= 1000; seed++)
        if (!sim_partition(&sim, seed))
            fail_msg("%s", sim.failure);
}

TEST(the_same_seed_gives_the_same_history)
{
    for (uint64_t seed = 500; seed < 600; seed++) {
        sim_run(&sim, seed);
        uint64_t digest = sim.digest, draws = sim.draws;
        sim_run(&sim, seed);
        assert_true(digest == sim.digest && draws == sim.draws);
    }
}

int main(int argc, char **argv)
{
    if (argc == 3) {
        uint64_t first = (uint64_t)atoll(argv[1]), n = (uint64_t)atoll(argv[2]);
        for (uint64_t seed = first; seed < first + n; seed++) {
            if (!sim_run(&sim, seed) || (seed % 10 == 0 && !sim_overload(&sim, seed)) ||
                (seed % 2 == 0 && !sim_handover(&sim, seed)) ||
                (seed % 10 == 8 && !sim_leave(&sim, seed)) ||
                (seed % 10 == 7 && !sim_partition(&sim, seed)) ||
                (seed % 10 == 5 && (!sim_incident(&sim, seed) || !sim_rollback(&sim, seed)))) {
                printf("%s\n", sim.failure);
                sim_print(&sim);
                return 1;
            }
        }
        return 0;
    }
    harness_quiet();
    return harness_run_all(__FILE__, NULL, NULL);
}
