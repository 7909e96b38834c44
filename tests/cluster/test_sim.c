/* The coordinator and 3 to 8 members under a seeded simulator: crashes, restarts, second starts,
 * frozen processes, lost, doubled, late and reordered messages, partitions of one or both
 * directions, reset connections, dying workers. One seed is one history: the same seed is the same
 * history again.
 *
 * Safety, after every event: a member enters worlds of rising generations only · at most one world
 * is alive among processes that are not frozen · a world is made of one readiness of each node,
 * each used for one world only · who enters is in it · only a second process of a node is refused
 * as one. Liveness: with faults off, all are in one generation within 16 s. And where hosts only
 * have too much to do,
 * so that processes stand still for 1.2 s at a time (2 s, where that was seen to come), nobody is
 * lost.
 *
 * test_sim runs the suite; `test_sim FIRST COUNT` prints the first seed that fails (the mutants use
 * it). */
#include "cluster/sim.h"

static struct sim sim;

static void many_histories(void **state)
{
    (void)state;
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

static void no_loss_where_hosts_are_busy(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 2000; seed++)
        if (!sim_starve(&sim, seed))
            fail_msg("%s", sim.failure);
}

static void a_seed_is_a_history(void **state)
{
    (void)state;
    for (uint64_t seed = 500; seed < 600; seed++) {
        sim_run(&sim, seed);
        uint64_t digest = sim.digest, draws = sim.draws;
        sim_run(&sim, seed);
        assert_true(digest == sim.digest && draws == sim.draws);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(many_histories),
    cmocka_unit_test(no_loss_where_hosts_are_busy),
    cmocka_unit_test(a_seed_is_a_history),
};

int main(int argc, char **argv)
{
    if (argc == 3) {
        uint64_t first = (uint64_t)atoll(argv[1]), n = (uint64_t)atoll(argv[2]);
        for (uint64_t seed = first; seed < first + n; seed++) {
            if (!sim_run(&sim, seed) || (seed % 10 == 0 && !sim_starve(&sim, seed))) {
                printf("%s\n", sim.failure);
                sim_show(&sim);
                return 1;
            }
        }
        return 0;
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    harness_quiet();
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
