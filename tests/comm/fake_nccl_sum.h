/* fake_nccl_sum — the additions of the tests' own NCCL: in a binary tree over the ranks, or around
 * a ring, as NCCL's rings add. */
#ifndef CONVOY_TESTS_COMM_FAKE_NCCL_SUM_H
#define CONVOY_TESTS_COMM_FAKE_NCCL_SUM_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "../../kernels/f16.h"

/* 6: fp16; 7: fp32; 8: fp64; 9: bf16 */
static size_t bytes_of(int type)
{
    return type == 8 ? 8 : type == 7 ? 4 : type == 9 || type == 6 ? 2 : 1;
}

static float widen(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint16_t narrow(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40
                                                    : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double read_one(const char *p, int type, size_t i)
{
    return type == 8   ? ((const double *)(const void *)p)[i]
           : type == 7 ? (double)((const float *)(const void *)p)[i]
           : type == 6 ? (double)f16_to_float(((const uint16_t *)(const void *)p)[i])
                       : (double)widen(((const uint16_t *)(const void *)p)[i]);
}

static double tree(char *const *in, int type, size_t i, int first, int n)
{
    int left = 1;
    if (n == 1)
        return read_one(in[first], type, i);
    while (left < n - left)
        left *= 2;
    double a = tree(in, type, i, first, left), b = tree(in, type, i, first + left, n - left);
    return type == 8 ? a + b : (double)((float)a + (float)b);
}

/* The sum begins after the rank that owns the element, and ends with it. */
static double ring(char *const *in, int type, size_t i, int owner, int ranks)
{
    double sum = read_one(in[(owner + 1) % ranks], type, i);
    for (int k = 2; k <= ranks; k++) {
        double x = read_one(in[(owner + k) % ranks], type, i);
        sum = type == 8 ? sum + x : (double)((float)sum + (float)x);
    }
    return sum;
}

/* out = the sum of elements [first, first + n) over all ranks' buffers. ring_part: elements of a
 * rank's part of the ring; 0: in a tree. */
static void add(char *const *in, char *out, int type, size_t first, size_t n, int ranks,
                size_t ring_part)
{
    char *sum = malloc(n * bytes_of(type) + 1);
    for (size_t i = 0; i < n; i++) {
        double x = ring_part > 0
                       ? ring(in, type, first + i, (int)((first + i) / ring_part) % ranks, ranks)
                       : tree(in, type, first + i, 0, ranks);
        if (type == 8)
            ((double *)(void *)sum)[i] = x;
        else if (type == 7)
            ((float *)(void *)sum)[i] = (float)x;
        else
            ((uint16_t *)(void *)sum)[i] = type == 6 ? f16_from_float((float)x) : narrow((float)x);
    }
    memcpy(out, sum, n * bytes_of(type));
    free(sum);
}

#endif
