/* tokenizer_fuzz — code that the fuzz entries of the readers share. It must not know files. */
#ifndef CONVOY_DATA_TOKENIZER_FUZZ_H
#define CONVOY_DATA_TOKENIZER_FUZZ_H

#include <stdint.h>
#include <stdlib.h>

#include "base/assert.h"
#include "data/tokenizer/tokenizer.h"

/* tokenizer_fuzz — checks that a tokenizer that a reader accepted from any bytes encodes these
 * bytes within its limits; closes it. */
static inline void tokenizer_fuzz(struct tokenizer *tokenizer, const uint8_t *data, size_t size)
{
    size_t n = 0;
    const size_t cap = tokenizer_cap(tokenizer, size);
    uint32_t *ids = malloc((cap + 1) * sizeof *ids);
    ASSERT(ids != NULL && tokenizer_encode(tokenizer, data, size, true, ids, &n) == ST_OK);
    ASSERT(n <= cap && tokenizer_cut(tokenizer, data, size) <= size);
    for (size_t i = 0; i < n; i++)
        ASSERT(ids[i] < tokenizer_vocab(tokenizer));
    free(ids);
    tokenizer_close(tokenizer);
}

#endif
