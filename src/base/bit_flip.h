/* bit_flip — chooses a parameter and one of its bits for a rehearsed memory error, so that the
 * change is neither rounded away by the next update nor made to a number that nothing uses. Must
 * not know where the parameters lie. */
#ifndef CONVOY_BASE_BIT_FLIP_H
#define CONVOY_BASE_BIT_FLIP_H

#include <stdbool.h>
#include <stdint.h>

struct bit_flip {
    int64_t elem;
    int32_t bit; /* 0 … 31 */
    float before, after;
};

/* bit_flip_choose — chooses one of `elems` elements by the random number `choice`: an element of
 * ordinary size, and a bit of its exponent, its sign or its higher fraction. `read` copies an
 * element, and returns false if it cannot. Returns false if `read` fails, or if no such element is
 * found. */
bool bit_flip_choose(uint64_t choice, int64_t elems,
                     bool (*read)(void *arg, int64_t elem, float *out), void *arg,
                     struct bit_flip *out);

#endif
