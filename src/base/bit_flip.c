/* bit_flip — see bit_flip.h. */
#include "base/bit_flip.h"

#include <math.h>
#include <string.h>

#include "base/rand.h"

/* Limits of a parameter's magnitude. If a parameter is far smaller, the next update would hide its
 * change. */
#define LEAST 1e-3f
#define MOST 1e3f
#define TRIES 1000
/* Lower bits change a parameter by less than a thousandth, which rounding may undo. */
#define BIT_FIRST 14
#define BITS 18

enum { ELEM_STREAM = 16 }; /* differs from the streams of node/rehearse/plan.c */

bool bit_flip_choose(uint64_t choice, int64_t elems,
                     bool (*read)(void *arg, int64_t elem, float *out), void *arg,
                     struct bit_flip *out)
{
    uint32_t word;
    out->bit = BIT_FIRST + (int)((choice >> 32) % BITS);
    for (int i = 0; i < TRIES; i++) {
        out->elem = (int64_t)rand_below(choice, RAND_STREAM(REHEARSE, ELEM_STREAM), (uint64_t)i,
                                        (uint64_t)elems);
        if (!read(arg, out->elem, &out->before))
            return false;
        if (!(fabsf(out->before) >= LEAST && fabsf(out->before) <= MOST))
            continue;
        memcpy(&word, &out->before, sizeof word);
        word ^= UINT32_C(1) << out->bit;
        memcpy(&out->after, &word, sizeof word);
        return true;
    }
    return false;
}
