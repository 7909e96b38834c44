/* documents — first keys for the tests of attention: documents that begin at drawn places. */
#ifndef CONVOY_TESTS_KERNELS_DOCUMENTS_H
#define CONVOY_TESTS_KERNELS_DOCUMENTS_H

#include <stdlib.h>

#include "base/rand.h"

/* documents_fill — of b samples of t tokens; a document has `mean` tokens on average. */
static inline void documents_fill(int32_t *first_key, int64_t b, int64_t t, uint32_t mean)
{
    for (int64_t i = 0; i < b * t; i++)
        first_key[i] = i % t == 0                                 ? 0
                       : rand_u32(11, 2, (uint64_t)i) % mean == 0 ? (int32_t)(i % t)
                                                                  : first_key[i - 1];
}

#endif
