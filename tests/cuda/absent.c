/* absent — stands for each test of the CUDA device in a build without CUDA (emu.mk). */
#include "harness.h"

TEST(is_skipped) { HARNESS_SKIP("CUDA is not built in"); }

HARNESS_RUN_ALL()
