/* coroutine: work runs in turns with its owner, several times, keeps its stack between turns, and
 * its failure's sentence reaches the owner. */
#include "harness.h"

#include "base/coroutine.h"

#include <string.h>

/* What several coroutines and their owner write, in the order in which they do. */
struct record {
    char text[64];
    struct coroutine *c[3];
    int rounds;
};

struct writer {
    struct record *record;
    int i;
};

static void put(struct record *r, char letter)
{
    const size_t n = strlen(r->text); /* a thread that is not the test's must not assert */
    if (n + 1 < sizeof r->text)
        r->text[n] = letter;
}

static enum status write_letters(void *arg)
{
    const struct writer *w = arg;
    for (int round = 0; round < w->record->rounds + w->i; round++) {
        put(w->record, (char)('a' + w->i));
        coroutine_yield(w->record->c[w->i]);
    }
    put(w->record, (char)('A' + w->i));
    return ST_OK;
}

static void run_all(struct record *r)
{
    struct writer writer[3];
    bool runs[3] = {true, true, true}, any = true;
    for (int i = 0; i < 3; i++) {
        writer[i] = (struct writer){r, i};
        coroutine_begin(r->c[i], write_letters, &writer[i]);
    }
    while (any) {
        put(r, '.');
        any = false;
        for (int i = 0; i < 3; i++)
            if (runs[i]) {
                runs[i] = coroutine_resume(r->c[i]);
                any = any || runs[i];
            }
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(coroutine_end(r->c[i]), ST_OK);
}

static void work_takes_turns(void **state)
{
    (void)state;
    struct record r = {.rounds = 1};
    for (int i = 0; i < 3; i++)
        assert_int_equal(coroutine_open("writes letters", &r.c[i]), ST_OK);
    run_all(&r);
    assert_string_equal(r.text, ".abc.Abc.Bc.C");
    r = (struct record){.c = {r.c[0], r.c[1], r.c[2]}}; /* the same coroutines, again */
    run_all(&r);
    assert_string_equal(r.text, ".Abc.Bc.C");
    for (int i = 0; i < 3; i++)
        coroutine_close(r.c[i]);
}

static enum status fail_later(void *arg)
{
    coroutine_yield(arg);
    return FAIL(ST_BAD_DATA, "a sentence of %d words", 5);
}

static void a_failure_has_its_sentence(void **state)
{
    struct coroutine *c = NULL;
    (void)state;
    assert_int_equal(coroutine_open("fails", &c), ST_OK);
    coroutine_begin(c, fail_later, c);
    assert_true(coroutine_resume(c));
    status_clear();
    assert_false(coroutine_resume(c));
    assert_string_equal(status_message(), "");
    assert_int_equal(coroutine_end(c), ST_BAD_DATA);
    assert_string_equal(status_message(), "a sentence of 5 words");
    coroutine_close(c);
}

static void nothing_was_begun(void **state)
{
    struct coroutine *c = NULL;
    (void)state;
    assert_int_equal(coroutine_open("waits", &c), ST_OK);
    coroutine_close(c);
    coroutine_close(NULL);
}

static const struct CMUnitTest tests[] = {cmocka_unit_test(work_takes_turns),
                                          cmocka_unit_test(a_failure_has_its_sentence),
                                          cmocka_unit_test(nothing_was_begun)};

HARNESS_MAIN(tests)
