/* tests/cuda/test_attention_own.c and test_attention_ranks.c in the form for AMD GPUs, on the
 * emulation (emu.mk). */
#include "tests/harness_groups.c"
