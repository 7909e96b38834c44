/* absent — replaces the tests of the CUDA device in a build without CUDA. */
#ifndef CONVOY_TESTS_ABSENT_H
#define CONVOY_TESTS_ABSENT_H

#include "harness.h"

static void is_skipped(void **state)
{
    (void)state;
    HARNESS_SKIP("CUDA is not built in");
}
static const struct CMUnitTest tests[] = {cmocka_unit_test(is_skipped)};
HARNESS_MAIN(tests)

#endif
