/* stop_request — each request has its status and its signal. */
#include "harness.h"

#include "train/trainer/stop_request.h"

static void test_requests(void **state)
{
    assert_false(stop_request_is_stop(BOARD_REQUEST_NONE));
    assert_false(stop_request_is_stop(BOARD_REQUEST_SAVE));
    assert_int_equal(stop_request_status(BOARD_REQUEST_NONE), ST_OK);
    assert_int_equal(stop_request_status(BOARD_REQUEST_SAVE), ST_OK);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_SAVE), "");
    assert_int_equal(stop_request_status(BOARD_REQUEST_PREEMPT), ST_RETRY);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_PREEMPT), "SIGUSR1");
    assert_int_equal(stop_request_status(BOARD_REQUEST_TERMINATE), ST_TERMINATED);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_TERMINATE), "SIGTERM");
    assert_int_equal(stop_request_status(BOARD_REQUEST_INTERRUPT), ST_INTERRUPTED);
    assert_string_equal(stop_request_signal(BOARD_REQUEST_INTERRUPT), "SIGINT");
    for (int r = BOARD_REQUEST_PREEMPT; r <= BOARD_REQUEST_INTERRUPT; r++)
        assert_true(stop_request_is_stop((enum board_request)r));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_requests),
};
HARNESS_MAIN(tests)
