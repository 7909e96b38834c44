/* embed — token embedding, with or without a learned position embedding, and its gradient. Must not
 * know the meaning of tokens. */
#ifndef CONVOY_KERNELS_EMBED_H
#define CONVOY_KERNELS_EMBED_H
#include "kernels/tensor.h"

/* embed_fwd — x[n,:] = wte[token[n],:] + wpe[position[n],:], then dropout.
 * out  x (N,C)
 * in   tokens (N) i32  each in [0,V): the caller has checked
 *      wte (V,C) · wpe (≥T,C)  or NULL: no positions are added
 *      positions (N) i32  each a row of wpe: the caller has checked; or NULL: n mod T
 *      first, rows  wte has only the rows [first, first + rows) of the vocabulary; another token
 *      counts as a row of zeros, whatever its number. rows 0: wte has all
 * Exact. Source Radford et al. 2019; same as wte + wpe of transformers' GPT2Model. */
struct embed_fwd {
    struct tensor x, tokens, wte, wpe, positions;
    int64_t n, t, c;
    struct dropout dropout; /* element index n·C + c */
    int64_t first, rows;
};

/* embed_row — returns the row of the table for a token; -1: the token is in another shard of the
 * vocabulary. */
static inline int64_t embed_row(int32_t token, int64_t first, int64_t rows)
{
    bool is_own = token >= first && token - first < rows;
    return rows == 0 ? token : is_own ? token - first : -1;
}

/* embed_bwd — the adjoint: dwte[token[n],:] += dx[n,:];  dwpe[t,:] (+)= Σ_b dx[b·T+t,:]. dx goes
 * through the same dropout first.
 * out  dwte (V,C)  always added to; NULL: not wanted
 *      dwpe (context,C)  added to when accumulate; else replaced, and rows ≥ T become 0; NULL: not
 *      wanted, and context is not read. The adjoint for other positions is a second call: dwte is
 *      the gradient of wpe, tokens are the positions, v is context
 * in   dx (N,C) · tokens
 *      first, rows  dwte has these rows of the vocabulary, as in embed_fwd; another token adds
 *      nothing to it. rows 0: it has V
 * Sums run in order of n, so the result does not depend on the number of threads. */
struct embed_bwd {
    struct tensor dwte, dwpe, dx, tokens;
    int64_t n, t, c, v, context;
    bool accumulate;
    struct dropout dropout;
    int64_t first, rows;
};
#endif
