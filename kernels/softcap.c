/* softcap — the plain truth of the soft cap, in double. */
#include "kernels/softcap.h"

#include <math.h>

#include "kernels/cpu.h"

void softcap_plain(const struct cpu *cpu, const struct softcap *a)
{
    (void)cpu;
    for (int64_t n = 0; n < a->n; n++) {
        float *row = (float *)a->x.data + n * a->stride;
        for (int64_t v = 0; v < a->v; v++)
            row[v] = (float)(a->cap * tanh((double)row[v] / a->cap));
    }
}
