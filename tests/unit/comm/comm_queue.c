/* comm_queue — items run in order; a sleep inside an item ends when a thread waits. */
#include "harness.h"

#include <stdatomic.h>

#include "comm/core/queue.h"

static struct comm_queue *queue;
static int order[3], order_n;
static int64_t sleep_ns;
static bool slept_through;       /* no thread waited during the sleep */
static _Atomic int64_t slept_ns; /* how long it slept */

static void run_item(struct comm_queue_item *item) { (void)item->job(item->arg); }

static enum status record_number(void *arg)
{
    order[order_n++] = *(int *)arg;
    return ST_OK;
}

static enum status sleep_in_call(void *arg)
{
    (void)arg;
    int64_t begin = clock_ns();
    slept_through = comm_queue_sleep(queue, sleep_ns);
    atomic_store(&slept_ns, clock_ns() - begin);
    return ST_OK;
}

static void open_queue(void)
{
    queue = comm_queue_open(run_item, NULL, NULL);
    order_n = 0;
    atomic_store(&slept_ns, 0);
}

TEST(in_order)
{
    int64_t ticket = 0;
    int numbers[3] = {7, 8, 9};
    open_queue();
    assert_true(comm_queue_is_empty(queue));
    for (int i = 0; i < 3; i++) {
        struct comm_queue_item item = {.job = record_number, .arg = &numbers[i]};
        assert_int_equal(comm_queue_put(queue, &item, &ticket), ST_OK);
        assert_int_equal(ticket, i + 1);
    }
    comm_queue_wait(queue, ticket);
    assert_true(comm_queue_is_empty(queue));
    assert_int_equal(order_n, 3);
    for (int i = 0; i < 3; i++)
        assert_int_equal(order[i], numbers[i]);
    comm_queue_wait(queue, 1); /* long done */
    comm_queue_close(queue);
}

static void sleep_in_item(int64_t ns, bool awaited)
{
    int64_t ticket;
    open_queue();
    sleep_ns = ns;
    assert_int_equal(
        comm_queue_put(queue, &(struct comm_queue_item){.job = sleep_in_call}, &ticket), ST_OK);
    for (int64_t end = clock_ns() + 10000000000;
         !awaited && atomic_load(&slept_ns) == 0 && clock_ns() < end;)
        clock_sleep_ms(1);
    comm_queue_wait(queue, ticket);
    comm_queue_close(queue);
}

TEST(sleeps_to_the_end)
{
    sleep_in_item(30000000, false);
    assert_true(slept_through);
    assert_true(slept_ns >= 30000000);
}

TEST(wakes_for_a_waiting_thread)
{
    sleep_in_item(20000000000, true);
    assert_false(slept_through);
    assert_true(slept_ns < 10000000000);
}

HARNESS_RUN_ALL()
