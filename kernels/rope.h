/* rope — rotary position embedding (RoPE): a table of rotations, and the rotation of the query and
 * key heads of a row. The caller computes the frequencies. Must not know models or how they scale
 * frequencies. */
#ifndef CONVOY_KERNELS_ROPE_H
#define CONVOY_KERNELS_ROPE_H
#include "kernels/attention.h" /* attention_layout, attention_row_of */
#include "kernels/tensor.h"

#define ROPE_FREQ_MAX 128 /* pairs that rotate, so R ≤ 256 */

/* rope_table — the rotations of T positions, R/2 pairs each.
 *   table[t,i] = scale·(cos(a), sin(a)),  a = f32(first + t)·freq[i], rounded to f32
 * out  table (T,R/2,2) f32
 * in   freq  inverse frequencies, the first R/2 used, the others 0 · scale (1: none)
 * Needs  R even, 2 ≤ R ≤ 256; first ≥ 0, first + T ≤ 2^24; freq in [0,1]. Tolerance to plain:
 * 1e-6·scale, absolute. Source Su et al. 2021; angles as LlamaRotaryEmbedding of transformers. */
struct rope_table {
    struct tensor table;
    int64_t first, t, rot;
    float scale;
    float freq[ROPE_FREQ_MAX];
};

/* rope — rotates the first R elements of each query and key head, in place; values stay.
 *   x1 = x[i], x2 = x[i+R/2], i < R/2:  x[i] = x1·cos - x2·sin;  x[i+R/2] = x2·cos + x1·sin
 * Row n is at position n mod T of the table. inverse: by the opposite angle: the gradient.
 * i/o  x (N,(H+2·hk)·D)  a row's heads lie as `layout` says (attention.h)
 * in   table (≥T,R/2,2) f32
 * Needs  hk divides H; HEADS: hk = H; R even, 2 ≤ R ≤ D, R ≤ 256. A result is rounded once.
 * Tolerance to plain: nmse 1e-12. Source as rotate_half of transformers. */
struct rope {
    struct tensor x, table;
    int64_t n, t, h, hk, d, rot;
    enum attention_layout layout;
    bool inverse;
};
#endif
