/* test_workers — workers that exit, are replaced, freeze and fall silent; on_end is called once for
 * each. This program is its own worker: started as "convoy worker I WORD" it does what WORD
 * names. */
#include "harness.h"

#include <signal.h>

#include "base/clock.h"
#include "base/text.h"
#include "node/supervisor/workers.h"

struct owner {
    struct board *board;
    struct workers *workers;
    int ends_n;
    struct workers_end ends[16];
    char text[16][1280];
};

static void on_end(void *arg, const struct workers_end *end)
{
    struct owner *o = arg;
    assert_true(o->ends_n < 16);
    o->ends[o->ends_n] = *end;
    text_copy(o->text[o->ends_n], sizeof o->text[0], end->decision.text);
    o->ends_n++;
}

static void owner_open(struct owner *o, char **args, int64_t limit_ms,
                       int64_t comm_heartbeat_limit_ms)
{
    memset(o, 0, sizeof *o);
    assert_int_equal(board_create(2, 2, &o->board), ST_OK);
    struct workers_config config = {.board = o->board,
                                    .workers_n = 2,
                                    .rank_first = 4,
                                    .args_n = 1,
                                    .args = args,
                                    .shm_fd = -1,
                                    .limit_set_ms = limit_ms,
                                    .comm_heartbeat_limit_ms = comm_heartbeat_limit_ms,
                                    .on_end = on_end,
                                    .arg = o};
    assert_int_equal(workers_open(&config, &o->workers), ST_OK);
    assert_int_equal(workers_start(o->workers), ST_OK);
}

static void owner_close(struct owner *o)
{
    workers_close(o->workers);
    board_close(o->board);
}

static void until_ends(struct owner *o, int ends_n)
{
    for (int64_t until_ms = clock_ms() + harness_patience_ms(10000);
         o->ends_n < ends_n && clock_ms() < until_ms; clock_sleep_ms(5)) {
        workers_reap(o->workers);
        assert_int_equal(workers_tick(o->workers, clock_ms()), ST_OK);
    }
    assert_int_equal(o->ends_n, ends_n);
}

static void ends_are_told_once(void **state)
{
    struct owner o;
    char *args[] = {"exit"};
    owner_open(&o, args, 0, 60000);
    until_ends(&o, 2);
    assert_int_equal(workers_alive(o.workers), 0);
    for (int i = 0; i < 2; i++) {
        assert_true(o.ends[i].is_exit && !o.ends[i].is_killed);
        assert_int_equal(o.ends[i].decision.st, o.ends[i].worker_i == 0 ? ST_BAD_DATA : ST_OK);
    }
    assert_non_null(strstr(o.text[o.ends[0].worker_i == 0 ? 0 : 1], "worker rank 4"));
    workers_start_later(o.workers, 0, 100);
    assert_true(workers_is_start_due(o.workers));
    assert_int_equal(workers_tick(o.workers, clock_ms()), ST_OK);
    assert_false(workers_is_alive(o.workers, 0));
    until_ends(&o, 3);
    workers_start_later(o.workers, 1, 0);
    workers_forbid_start(o.workers);
    assert_int_equal(workers_tick(o.workers, clock_ms()), ST_OK);
    assert_false(workers_is_start_due(o.workers) || workers_alive(o.workers) > 0);
    owner_close(&o);
}

static void silence_is_a_hang(void **state)
{
    struct owner o;
    char *args[] = {"sleep"};
    owner_open(&o, args, 300, 60000);
    struct board_worker training = {.pid = 1, .rank = 4, .phase = BOARD_PHASE_TRAINING, .step = 7};
    /* the other one is loading: it may take its time */
    board_worker_publish(o.board, 0, &training);
    until_ends(&o, 1);
    assert_int_equal(o.ends[0].worker_i, 0);
    assert_false(o.ends[0].is_exit);
    assert_int_equal(o.ends[0].decision.st, ST_HANG);
    assert_true(workers_is_alive(o.workers, 1));
    owner_close(&o); /* and that one is ended */
}

/* A limit that a test waits out: longer on a busy machine, but not so that the test takes
 * minutes. */
static int64_t short_ms(int64_t ms)
{
    return (int64_t)((double)ms * (harness_slow() < 4 ? harness_slow() : 4));
}

/* A worker that waits in a collective is not silent while its comm heartbeat says so; one whose
 * comm heartbeat stops is frozen. */
static void comm_heartbeats_count(void **state)
{
    struct owner o;
    char *args[] = {"sleep"};
    const int64_t hang_ms = short_ms(300);
    owner_open(&o, args, hang_ms, 3 * hang_ms);
    struct board_worker training = {.pid = 1, .rank = 4, .phase = BOARD_PHASE_TRAINING, .step = 7};
    board_worker_publish(o.board, 0, &training);
    for (int64_t until_ms = clock_ms() + 3 * hang_ms; clock_ms() < until_ms; clock_sleep_ms(20)) {
        board_call_publish(o.board, 0,
                           &(struct board_call){.call = "all_reduce", .published_ms = clock_ms()});
        workers_reap(o.workers);
        assert_int_equal(workers_tick(o.workers, clock_ms()), ST_OK);
    }
    assert_int_equal(o.ends_n, 0);
    until_ends(&o, 1);
    assert_int_equal(o.ends[0].decision.st, ST_HANG);
    owner_close(&o);

    /* a limit on silence of a minute does not help a frozen process */
    owner_open(&o, args, 0, 300);
    board_worker_publish(o.board, 1, &training);
    board_call_publish(o.board, 1, &(struct board_call){.published_ms = clock_ms()});
    until_ends(&o, 1);
    assert_int_equal(o.ends[0].worker_i, 1);
    assert_int_equal(o.ends[0].decision.st, ST_HANG);
    owner_close(&o);
}

/* It comes out of a call in which it has waited for longer than the limit, and has not beaten yet:
 * no hang of its own. */
static void waiting_is_not_held_against_it(void **state)
{
    struct owner o;
    char *args[] = {"sleep"};
    const int64_t limit_ms = short_ms(400);
    owner_open(&o, args, limit_ms, harness_patience_ms(60000));
    struct board_worker training = {.pid = 1, .rank = 4, .phase = BOARD_PHASE_TRAINING, .step = 7};
    board_worker_publish(o.board, 0, &training);
    struct board_call call = {.call = "all_reduce"};
    for (int64_t until_ms = clock_ms() + 2 * limit_ms; clock_ms() < until_ms; clock_sleep_ms(20)) {
        call.published_ms = clock_ms();
        board_call_publish(o.board, 0, &call);
        assert_int_equal(workers_tick(o.workers, clock_ms()), ST_OK);
    }
    call = (struct board_call){.left_ms = clock_ms(), .published_ms = clock_ms()};
    board_call_publish(o.board, 0, &call);
    assert_int_equal(workers_tick(o.workers, call.left_ms + 1), ST_OK);
    /* and the generation's end gives it the whole limit again */
    workers_rearm(o.workers, call.left_ms + limit_ms * 3 / 4);
    assert_int_equal(workers_tick(o.workers, call.left_ms + limit_ms * 3 / 2), ST_OK);
    clock_sleep_ms(30);
    workers_reap(o.workers);
    assert_int_equal(o.ends_n, 0);
    assert_int_equal(workers_tick(o.workers, call.left_ms + 2 * limit_ms), ST_OK);
    until_ends(&o, 1);
    assert_int_equal(o.ends[0].decision.st, ST_HANG);
    owner_close(&o);
}

static void cutting_ends_all(void **state)
{
    struct owner o;
    char *args[] = {"sleep"};
    owner_open(&o, args, 0, 60000);
    workers_kill(o.workers);
    until_ends(&o, 2);
    assert_true(o.ends[0].is_killed && o.ends[1].is_killed);
    owner_close(&o);
    workers_close(NULL);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ends_are_told_once),    cmocka_unit_test(silence_is_a_hang),
    cmocka_unit_test(comm_heartbeats_count), cmocka_unit_test(waiting_is_not_held_against_it),
    cmocka_unit_test(cutting_ends_all),
};

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "worker") == 0) {
        if (argc == 4 && strcmp(argv[3], "exit") == 0)
            return strcmp(argv[2], "0") == 0 ? 65 : 0;
        for (;;)
            pause();
    }
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests_name(__FILE__, tests, NULL, NULL);
}
