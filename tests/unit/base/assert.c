/* assert: a broken assertion reports what a reader needs and ends the process with 70; a true one
 * costs nothing. */
#include "harness.h"

#include <pthread.h>

#include "base/assert.h"

static void broken(void *arg)
{
    (void)arg;
    for (int i = 0; i < 20; i++)
        assert_note("step %d begins", i);
    int n = 3;
    ASSERTF(n == 4, "n %d want %d", n, 4);
}

TEST(a_broken_assertion_reports_and_ends)
{
    char text[8192];
    int status = harness_output_of(broken, NULL, false, text, sizeof(text));
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 70);
    assert_non_null(strstr(text, "n == 4 does not hold: n 3 want 4"));
    assert_non_null(strstr(text, "unit/base/assert.c:"));
    assert_null(strstr(text, "step 3 begins")); /* the ring keeps 16 */
    assert_non_null(strstr(text, "note: step 4 begins"));
    assert_true(strstr(text, "step 18 begins") < strstr(text, "step 19 begins"));
}

static void broken_plain(void *arg)
{
    (void)arg;
    ASSERT(1 + 1 == 3);
}

TEST(values_are_optional)
{
    char text[8192];
    assert_int_equal(WEXITSTATUS(harness_output_of(broken_plain, NULL, false, text, sizeof(text))),
                     70);
    assert_non_null(strstr(text, "1 + 1 == 3 does not hold\n"));
}

static void broken_long(void *arg)
{
    (void)arg;
    char big[9000];
    memset(big, 'y', sizeof(big));
    big[sizeof(big) - 1] = 0;
    for (int i = 0; i < 16; i++)
        assert_note("%s", big);
    ASSERTF(0, "%s", big);
}

TEST(long_values_are_cut)
{
    char text[16384];
    assert_int_equal(WEXITSTATUS(harness_output_of(broken_long, NULL, false, text, sizeof(text))),
                     70);
    assert_in_range(strlen(text), 600, 4096);
}

TEST(true_ones_do_nothing)
{
    int evaluated = 0;
    ASSERT(++evaluated == 1);
    ASSERTF(evaluated == 1, "%d", ++evaluated); /* values are looked at only when it breaks */
    assert_int_equal(evaluated, 1);
}

static void *note_a_lot(void *arg)
{
    for (int i = 0; i < 2000; i++)
        assert_note("thread %d note %d", *(int *)arg, i);
    return NULL;
}

TEST(threads_may_note_at_once)
{
    pthread_t threads[4];
    int names[4] = {0, 1, 2, 3};
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, note_a_lot, &names[i]), 0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
}

HARNESS_RUN_ALL()
