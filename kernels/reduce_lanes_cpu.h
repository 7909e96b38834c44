/* reduce_lanes_cpu — a sum in double of a few thousand elements. Included by *_cpu.c files only; it
 * must not know operations. */
#ifndef CONVOY_KERNELS_REDUCE_LANES_CPU_H
#define CONVOY_KERNELS_REDUCE_LANES_CPU_H

#include <stdbool.h>
#include <stdint.h>

#define REDUCE_LANES 32

/* reduce_lanes — of n elements, or of their squares. 32 running sums keep every unit of a wide core
 * busy; they are folded onto each other at the end. The order depends on n alone. */
static inline double reduce_lanes(const float *restrict x, int64_t n, bool square)
{
    double lane[REDUCE_LANES] = {0};
    int64_t i = 0;
    if (square)
        for (; i + REDUCE_LANES <= n; i += REDUCE_LANES)
            for (int l = 0; l < REDUCE_LANES; l++)
                lane[l] += (double)x[i + l] * (double)x[i + l];
    else
        for (; i + REDUCE_LANES <= n; i += REDUCE_LANES)
            for (int l = 0; l < REDUCE_LANES; l++)
                lane[l] += (double)x[i + l];
    for (int l = 0; i < n; i++, l++)
        lane[l] += square ? (double)x[i] * (double)x[i] : (double)x[i];
    for (int half = REDUCE_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

#endif
