/* test_crowd — who loses its place: the silent, of the address that holds the most, the oldest. */
#include "harness.h"

#include "meet/crowd.h"

static struct crowd_place silent(uint64_t from, int64_t since_ms)
{
    return (struct crowd_place){.from = from, .since_ms = since_ms, .is_silent = true};
}

static struct crowd_place heard(uint64_t from, int64_t since_ms)
{
    return (struct crowd_place){.from = from, .since_ms = since_ms};
}

static void room_for_all(void **state)
{
    (void)state;
    struct crowd_place places[] = {silent(1, 10), silent(1, 20), heard(2, 5)};
    assert_int_equal(crowd_thin(places, 3, 3, 2), 0);
    assert_int_equal(crowd_thin(places, 0, 3, 2), 0);
}

static void the_oldest_silent_goes_first(void **state)
{
    (void)state;
    struct crowd_place places[] = {heard(1, 1), silent(2, 30), silent(3, 20), silent(4, 40)};
    assert_int_equal(crowd_thin(places, 4, 3, 8), 1);
    assert_true(places[2].is_out);
    assert_int_equal(crowd_thin(places, 4, 2, 8), 1);
    assert_true(places[1].is_out && !places[0].is_out);
    assert_int_equal(crowd_thin(places, 4, 0, 8), 2); /* no room at all: who has spoken goes last */
    assert_true(places[0].is_out);
}

/* One that came first and is slow keeps its place against many of one address, whatever their
 * age. */
static void many_of_one_address_make_room(void **state)
{
    (void)state;
    struct crowd_place places[101];
    places[0] = silent(7, 0);
    for (int i = 1; i <= 100; i++)
        places[i] = silent(8, i);
    assert_int_equal(crowd_thin(places, 101, 10, 50), 91);
    assert_false(places[0].is_out);
    for (int i = 1; i <= 100; i++)
        assert_int_equal(places[i].is_out, i <= 91);
}

static void a_cap_for_each_address(void **state)
{
    (void)state;
    struct crowd_place places[] = {silent(1, 5), silent(1, 3), silent(1, 4),
                                   silent(2, 1), heard(1, 0),  heard(1, 0)};
    assert_int_equal(crowd_thin(places, 6, 100, 2), 1);
    assert_true(places[1].is_out);
    int held, most = crowd_most(places, 6, &held);
    assert_int_equal(most, 0);
    assert_int_equal(held, 5);
    assert_int_equal(crowd_most(places, 0, &held), -1);
}

/* Nodes behind one address all come at once: they are no crowd of silent ones before they had time
 * to speak. */
static void the_new_do_not_count_for_their_address(void **state)
{
    (void)state;
    struct crowd_place places[7];
    for (int i = 0; i < 7; i++) {
        places[i] = silent(1, i);
        places[i].is_new = i >= 3;
    }
    assert_int_equal(crowd_thin(places, 7, 100, 2), 1);
    assert_true(places[0].is_out);
    /* without room they go, too, the oldest first */
    assert_int_equal(crowd_thin(places, 7, 3, 2), 3);
    for (int i = 0; i < 7; i++)
        assert_int_equal(places[i].is_out, i < 4);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(room_for_all),
    cmocka_unit_test(the_oldest_silent_goes_first),
    cmocka_unit_test(many_of_one_address_make_room),
    cmocka_unit_test(a_cap_for_each_address),
    cmocka_unit_test(the_new_do_not_count_for_their_address),
};
HARNESS_MAIN(tests)
