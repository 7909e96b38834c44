/* conn_limit — evicted are the silent connections, of the address with the most, the oldest
 * first. */
#include "harness.h"

#include "net/conn_limit.h"

static struct conn_limit_slot silent(uint64_t from, int64_t since_ms)
{
    return (struct conn_limit_slot){.from = from, .since_ms = since_ms, .is_silent = true};
}

static struct conn_limit_slot heard(uint64_t from, int64_t since_ms)
{
    return (struct conn_limit_slot){.from = from, .since_ms = since_ms};
}

TEST(room_for_all)
{
    struct conn_limit_slot slots[] = {silent(1, 10), silent(1, 20), heard(2, 5)};
    assert_int_equal(conn_limit_evict(slots, 3, 3, 2), 0);
    assert_int_equal(conn_limit_evict(slots, 0, 3, 2), 0);
}

TEST(the_oldest_silent_goes_first)
{
    struct conn_limit_slot slots[] = {heard(1, 1), silent(2, 30), silent(3, 20), silent(4, 40)};
    assert_int_equal(conn_limit_evict(slots, 4, 3, 8), 1);
    assert_true(slots[2].is_evicted);
    assert_int_equal(conn_limit_evict(slots, 4, 2, 8), 1);
    assert_true(slots[1].is_evicted && !slots[0].is_evicted);
    /* no room at all: who has spoken goes last */
    assert_int_equal(conn_limit_evict(slots, 4, 0, 8), 2);
    assert_true(slots[0].is_evicted);
}

/* One that came first and is slow keeps its place against many of one address, whatever their
 * age. */
TEST(many_of_one_address_make_room)
{
    struct conn_limit_slot slots[101];
    slots[0] = silent(7, 0);
    for (int i = 1; i <= 100; i++)
        slots[i] = silent(8, i);
    assert_int_equal(conn_limit_evict(slots, 101, 10, 50), 91);
    assert_false(slots[0].is_evicted);
    for (int i = 1; i <= 100; i++)
        assert_int_equal(slots[i].is_evicted, i <= 91);
}

TEST(a_cap_for_each_address)
{
    struct conn_limit_slot slots[] = {silent(1, 5), silent(1, 3), silent(1, 4),
                                      silent(2, 1), heard(1, 0),  heard(1, 0)};
    assert_int_equal(conn_limit_evict(slots, 6, 100, 2), 1);
    assert_true(slots[1].is_evicted);
    int held, most = conn_limit_busiest(slots, 6, &held);
    assert_int_equal(most, 0);
    assert_int_equal(held, 5);
    assert_int_equal(conn_limit_busiest(slots, 0, &held), -1);
}

/* Nodes behind one address all come at once: they are no crowd of silent ones before they had time
 * to speak. */
TEST(the_new_do_not_count_for_their_address)
{
    struct conn_limit_slot slots[7];
    for (int i = 0; i < 7; i++) {
        slots[i] = silent(1, i);
        slots[i].is_new = i >= 3;
    }
    assert_int_equal(conn_limit_evict(slots, 7, 100, 2), 1);
    assert_true(slots[0].is_evicted);
    /* without room they go, too, the oldest first */
    assert_int_equal(conn_limit_evict(slots, 7, 3, 2), 3);
    for (int i = 0; i < 7; i++)
        assert_int_equal(slots[i].is_evicted, i < 4);
}

HARNESS_RUN_ALL()
