/* checksum — two sums over the bytes of a tensor. They find changes in data that nothing should
 * change, and differences between copies. Must not know the meaning of the bytes.
 *
 * Integers are added, so every device, in every order, gets the same two numbers. With w[i] the
 * i-th 32-bit word, a change of the word by d ≠ 0 (|d| < 2^32) adds d to the first sum and
 * (2i + 1)·d to the second:
 *   one changed word          is always found, by either sum
 *   two changed words         are always found if they are less than 2^32 words apart: if the first
 *                             sum stays, the second changes by 2(i - j)·d, which is not 0 mod 2^64
 *   other accidental changes  are missed with a probability of about 2^-64, or more if all changed
 *                             bits have high places in their words */
#ifndef CONVOY_KERNELS_CHECKSUM_H
#define CONVOY_KERNELS_CHECKSUM_H
#include "kernels/tensor.h"

#define CHECKSUM_N 2 /* numbers of a checksum */

/* checksum — out[0] += Σ w[i];  out[1] += Σ w[i]·(2i + 1), modulo 2^64.
 * i/o  out  CHECKSUM_N numbers in the device's memory
 * in   x (n)  any type, aligned to 4 bytes; zeros fill up a last word of two bytes
 * first: i of the first word of x. The runs of an array add up to the checksum of the array.
 * Exact. */
struct checksum {
    uint64_t *out;
    struct tensor x;
    int64_t n, first;
};
#endif
