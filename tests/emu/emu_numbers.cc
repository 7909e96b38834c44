/* emu_numbers — a device whose arithmetic is worse than the host's: errors of the functions that
 * CUDA does not round correctly, and subnormal numbers that become zero (see emu_control.h). */
#include "tests/emu/emu.h"
#include "tests/emu/emu_numbers.h"

#include <stdio.h>

/* The largest error before the result is rounded to float, in units in the last place; rounding
 * adds half a unit. */
#define ERROR_MOST 1.5

/* Returns the index of a word in a list that NULL ends. Ends the program if the environment has
 * another word, so that no run reports less than it was meant to test. */
static int environment_word(const char *name, const char *const *words)
{
    const char *word = getenv(name);
    if (!word || !word[0])
        return 0;
    for (int i = 0; words[i]; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    fprintf(stderr, "%s=%s is none of its words (tests/emu/emu_control.h)\n", name, word);
    _Exit(2);
}

static const char *const noise_words[] = {"none", "drawn", "up", "down", NULL};
static const char *const flush_words[] = {"0", "1", NULL};
/* Kernels read it. It lies in .data, because emu_access.cc takes .bss for static shared memory. */
__attribute__((section(".data"))) enum emu_noise emu_noise_now =
    (enum emu_noise)environment_word("EMU_NOISE", noise_words);
static bool is_flushing = environment_word("EMU_FLUSH", flush_words) == 1;

void emu_noise(enum emu_noise noise) { emu_noise_now = noise; }
void emu_flush(bool flush) { is_flushing = flush; }

/* Returns a number from -ERROR_MOST to ERROR_MOST that depends on the bits of both only. */
static double drawn_error(float x, double exact)
{
    uint64_t bits = (uint64_t)__float_as_uint(x) << 32 ^ emu_bits<uint64_t>(exact);
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9u; /* splitmix64 */
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EBu;
    return ((double)(bits >> 40) * 0x1p-23 - 1) * ERROR_MOST;
}

/* Returns the exact result of a function of x with an error of at most two units in the last place.
 * Zeros, infinities, NaN and the results of 0 and of infinities have none: CUDA documents them. */
float emu_noisy(float x, double exact)
{
    float nearest = (float)exact;
    if (x == 0 || isinf(x) || !isfinite(nearest) || nearest == 0)
        return nearest;
    double error = emu_noise_now == EMU_NOISE_UP     ? ERROR_MOST
                   : emu_noise_now == EMU_NOISE_DOWN ? -ERROR_MOST
                                                     : drawn_error(x, exact);
    double exponent = fmax(floor(log2(fabs(exact))), -126);
    return (float)(exact + error * exp2(exponent - 23));
}

#define FLUSH_BITS 0x8040u /* of MXCSR: subnormal results and operands are zeros */

unsigned emu_flush_begin(void)
{
    unsigned before = __builtin_ia32_stmxcsr();
    if (is_flushing)
        __builtin_ia32_ldmxcsr(before | FLUSH_BITS);
    return before;
}
void emu_flush_end(unsigned before) { __builtin_ia32_ldmxcsr(before); }
