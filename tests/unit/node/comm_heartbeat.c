/* comm_heartbeat — the thread publishes while the worker does nothing, and stops once it is
 * closed. */
#include "harness.h"

#include "base/clock.h"
#include "node/worker/comm_heartbeat.h"

static int64_t posted(struct board *board)
{
    struct board_call call;
    return board_call_copy(board, 0, &call) ? call.published_ms : 0;
}

static void beats_until_closed(void **state)
{
    struct board *board;
    struct comm_heartbeat *heartbeat = NULL;
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    assert_int_equal(posted(board), 0);
    assert_int_equal(comm_heartbeat_open(board, 0, &heartbeat), ST_OK);
    int64_t until_ms = clock_ms() + harness_patience_ms(5000), first;
    while (!posted(board) && clock_ms() < until_ms)
        clock_sleep_ms(5);
    first = posted(board);
    while (posted(board) <= first && clock_ms() < until_ms)
        clock_sleep_ms(5);
    assert_true(posted(board) > first);
    comm_heartbeat_close(heartbeat);
    first = posted(board);
    clock_sleep_ms(250);
    assert_int_equal(posted(board), first);
    comm_heartbeat_close(NULL);
    board_close(board);
}

static void tells_of_the_comm(void **state)
{
    struct board *board;
    struct board_call call;
    struct comm_heartbeat *heartbeat = NULL;
    struct comm *comm = NULL;
    char address[COMM_ADDRESS_MAX];
    int64_t bytes = 0;
    struct comm_config config = {
        .kind = COMM_KIND_SELF, .place = {0, 1, 0, 1, 0, 1}, .timeout_ms = 1000, .shm_fd = -1};
    assert_int_equal(board_create(1, 1, &board), ST_OK);
    assert_int_equal(comm_begin_open(&config, &comm, address, &bytes), ST_OK);
    assert_int_equal(comm_end_open(comm, 1, address, &bytes), ST_OK);
    assert_int_equal(comm_barrier(comm), ST_OK);
    assert_int_equal(comm_barrier(comm), ST_OK);
    assert_int_equal(comm_heartbeat_open(board, 0, &heartbeat), ST_OK);
    comm_heartbeat_set_comm(heartbeat, comm);
    assert_true(board_call_copy(board, 0, &call));
    assert_string_equal(call.call, "");
    assert_true(call.sequence >= 2);
    int64_t left_ms = call.left_ms;
    assert_true(left_ms > 0 && left_ms <= clock_ms());
    clock_sleep_ms(20);
    assert_int_equal(comm_barrier(comm), ST_OK);
    comm_heartbeat_set_comm(heartbeat, NULL); /* from here on the comm may go */
    comm_close(comm);
    assert_true(board_call_copy(board, 0, &call));
    assert_int_equal(call.sequence, 0);
    assert_true(call.left_ms > left_ms); /* and this is still known */
    comm_heartbeat_close(heartbeat);
    board_close(board);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(beats_until_closed),
    cmocka_unit_test(tells_of_the_comm),
};
HARNESS_MAIN(tests)
