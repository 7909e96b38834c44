/* embed — the plain truth of token and position embedding and its adjoint. */
#include "kernels/embed.h"

#include "kernels/cpu.h"
#include "kernels/dropout.h"

/* A dropped element is 0, even if it was infinite or NaN. */
static float embed_drop(const struct dropout *d, int64_t i, float x)
{
    float factor = dropout_factor(d, i);
    return factor == 0 ? 0 : x * factor;
}

void embed_fwd_plain(const struct cpu *cpu, const struct embed_fwd *a)
{
    (void)cpu;
    float *x = a->x.data;
    const float *wte = a->wte.data, *wpe = a->wpe.data;
    const int32_t *tokens = a->tokens.data, *positions = a->positions.data;
    for (int64_t n = 0; n < a->n; n++) {
        int64_t row = embed_row(tokens[n], a->first, a->rows);
        for (int64_t c = 0; c < a->c; c++) {
            float sum = row < 0 ? 0 : wte[row * a->c + c];
            if (wpe)
                sum += wpe[(positions ? positions[n] : n % a->t) * a->c + c];
            x[n * a->c + c] = embed_drop(&a->dropout, n * a->c + c, sum);
        }
    }
}

void embed_bwd_plain(const struct cpu *cpu, const struct embed_bwd *a)
{
    (void)cpu;
    float *dwte = a->dwte.data, *dwpe = a->dwpe.data;
    const float *dx = a->dx.data;
    const int32_t *tokens = a->tokens.data;
    for (int64_t n = 0; n < a->n; n++) {
        int64_t row = embed_row(tokens[n], a->first, a->rows);
        for (int64_t c = 0; dwte && c < a->c && row >= 0; c++)
            dwte[row * a->c + c] += embed_drop(&a->dropout, n * a->c + c, dx[n * a->c + c]);
    }
    for (int64_t t = 0; dwpe && t < a->context; t++)
        for (int64_t c = 0; c < a->c; c++) {
            double sum = a->accumulate ? dwpe[t * a->c + c] : 0;
            for (int64_t n = t; n < a->n && t < a->t; n += a->t)
                sum += embed_drop(&a->dropout, n * a->c + c, dx[n * a->c + c]);
            dwpe[t * a->c + c] = (float)sum;
        }
}
