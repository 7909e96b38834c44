/* absent — replaces the tests of the CUDA device in a build without CUDA. */
#ifndef CONVOY_TESTS_ABSENT_H
#define CONVOY_TESTS_ABSENT_H

#include "harness.h"

TEST(is_skipped) { HARNESS_SKIP("CUDA is not built in"); }
HARNESS_RUN_ALL()

#endif
