/* tests/cuda/test_attention.c in the form for AMD GPUs, on the emulation (emu.mk). */
#include "tests/harness_groups.c"
