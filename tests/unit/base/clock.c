/* clock: monotonic time moves on, wall time is written as ISO 8601. */
#include "harness.h"

TEST(iso_is_exact)
{
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {0, "1970-01-01T00:00:00.000Z"},
        {1769860800123, "2026-01-31T12:00:00.123Z"},
        {951782399999, "2000-02-28T23:59:59.999Z"},
        {951782400000, "2000-02-29T00:00:00.000Z"},
        {4102444800000, "2100-01-01T00:00:00.000Z"},
        {-1, "1969-12-31T23:59:59.999Z"},
        {-1000, "1969-12-31T23:59:59.000Z"},
        {253402300799999, "9999-12-31T23:59:59.999Z"},
        {253402300800000, "0000-00-00T00:00:00.000Z"},
        {INT64_MAX, "0000-00-00T00:00:00.000Z"},
        {INT64_MIN, "0000-00-00T00:00:00.000Z"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char out[25];
        assert_string_equal(clock_iso(out, sizeof(out), cases[i].ms), cases[i].text);
    }
}

TEST(time_moves_on)
{
    int64_t ns = clock_ns(), ms = clock_ms();
    assert_in_range(ms - ns / 1000000, 0, 1000);
    clock_sleep_ms(20);
    assert_in_range(clock_ns() - ns, 20000000, 5000000000);
    ms = clock_ms();
    clock_sleep_ms(0);
    clock_sleep_ms(-5);
    assert_in_range(clock_ms() - ms, 0, harness_patience_ms(1000));
    assert_true(clock_wall_ms() > 1700000000000);
}

HARNESS_RUN_ALL()
