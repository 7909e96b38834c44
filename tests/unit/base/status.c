/* status: the list is complete, the sentence survives what callers do to it, traces add up. */
#include "harness.h"

#include <pthread.h>

TEST(list_is_whole)
{
    for (int st = 0; st < STATUS_N; st++) {
        assert_true(strlen(status_name(st)) > 0 && strlen(status_text(st)) > 0);
        assert_in_range(status_exit_code(st), 0, 255);
        /* a code finds its row; RETRY and PEER share one, for they ask the same of a scheduler, as
         * do BAD_DATA and SCHEMA, and NOT_FINITE and SPIKE */
        assert_int_equal(status_from_exit(status_exit_code(st)), st == ST_PEER     ? ST_RETRY
                                                                 : st == ST_SCHEMA ? ST_BAD_DATA
                                                                 : st == ST_SPIKE  ? ST_NOT_FINITE
                                                                                   : st);
    }
    assert_string_equal(status_name(ST_BAD_DATA), "BAD_DATA");
    assert_int_equal(status_exit_code(ST_OK), 0);
    assert_int_equal(status_exit_code(ST_BUG), 70);
    assert_int_equal(status_exit_code(ST_RETRY), 75);
    assert_int_equal(status_exit_code(ST_BAD_SETTING), 78);
    assert_int_equal(status_exit_code(ST_TERMINATED), 143);
    assert_int_equal(status_group(ST_STORE), STATUS_GROUP_STORE);
    assert_int_equal(status_group(ST_INTERRUPTED), STATUS_GROUP_STOP);
}

TEST(strangers_are_bugs)
{
    assert_int_equal(status_from_exit(42), ST_BUG);
    assert_int_equal(status_from_exit(-1), ST_BUG);
    assert_string_equal(status_name((enum status) - 1), "BUG");
    assert_string_equal(status_name((enum status)9999), "BUG");
    assert_int_equal(status_exit_code((enum status)9999), 70);
}

static enum status detect(void) { return FAIL(ST_NO_INPUT, "cannot open %s: %d", "x.txt", 7); }
static enum status pass_on(void)
{
    TRY(detect());
    return ST_OK;
}
static enum status pass_on_owner(int *undone)
{
    enum status st;
    TRY_OR(pass_on(), undo);
undo:
    (*undone)++;
    return st;
}

TEST(a_failure_has_its_trace)
{
    int undone = 0;
    assert_int_equal(pass_on_owner(&undone), ST_NO_INPUT);
    assert_int_equal(undone, 1);
    assert_string_equal(status_message(), "cannot open x.txt: 7");
    const char *first = strstr(status_trace(), "base/status.c:");
    assert_ptr_equal(first, status_trace()); /* the folder and the name of the file only */
    assert_non_null(strstr(first, " < base/status.c:"));
    status_clear();
    assert_string_equal(status_message(), "");
    assert_string_equal(status_trace(), "");
}

TEST(the_message_may_quote_itself)
{
    detect();
    FAIL(ST_RETRY, "again: %s; and %s", status_message(), status_trace());
    assert_true(strncmp(status_message(), "again: cannot open x.txt: 7; and base/status.c:", 47) ==
                0);
}

TEST(long_messages_are_cut_at_a_character)
{
    char text[3000];
    for (int shift = 0; shift < 4; shift++) {
        memset(text, 'x', sizeof(text));
        for (size_t i = (size_t)shift; i + 3 < sizeof(text); i += 2)
            memcpy(text + i, "é", 2);
        text[sizeof(text) - 1] = 0;
        FAIL(ST_RETRY, "%s", text);
        size_t n = strlen(status_message());
        assert_in_range(n, 1015, 1023);
        assert_string_equal(status_message() + n - 3, "…");
        /* no half character before the mark */
        assert_int_not_equal((unsigned char)status_message()[n - 4], 0xC3);
    }
    memset(text, 'a', sizeof(text));
    text[1023] = 0;
    FAIL(ST_RETRY, "%s", text); /* exactly fits */
    assert_string_equal(status_message(), text);
}

TEST(many_functions_do_not_overflow)
{
    detect();
    for (int i = 0; i < 1000; i++)
        status_trace_at("dir/some_long_file_name.c", i, ST_NO_INPUT);
    assert_true(strlen(status_trace()) < 512);
}

TEST(keep_and_back)
{
    struct status_saved saved;
    detect();
    status_save(&saved);
    FAIL(ST_STORE, "clean-up failed too");
    status_restore(&saved);
    assert_string_equal(status_message(), "cannot open x.txt: 7");
}

static void *other_thread(void *arg)
{
    *(size_t *)arg = strlen(status_message());
    FAIL(ST_BUG, "of the other thread");
    return NULL;
}

TEST(threads_have_their_own)
{
    pthread_t thread;
    size_t n = 99;
    detect();
    assert_int_equal(pthread_create(&thread, NULL, other_thread, &n), 0);
    pthread_join(thread, NULL);
    assert_int_equal(n, 0);
    assert_string_equal(status_message(), "cannot open x.txt: 7");
}

HARNESS_RUN_ALL()
