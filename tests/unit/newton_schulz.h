/* newton_schulz — the iteration of Muon in double, as a formula; the tests' reference. */
#ifndef CONVOY_TESTS_NEWTON_SCHULZ_H
#define CONVOY_TESTS_NEWTON_SCHULZ_H

#include <string.h>

#define SIDE_MAX 80
typedef double matrix[SIDE_MAX][SIDE_MAX];

/* newton_schulz — X ← a·X + (b·G + c·G²)·X with G = X·Xᵀ, five times, of r × c numbers. */
static inline void newton_schulz(matrix x, int r, int c)
{
    static matrix g, s, y;
    for (int k = 0; k < 5; k++) {
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                g[i][j] = 0;
                for (int l = 0; l < c; l++)
                    g[i][j] += x[i][l] * x[j][l];
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < r; j++) {
                s[i][j] = -4.7750 * g[i][j];
                for (int l = 0; l < r; l++)
                    s[i][j] += 2.0315 * g[i][l] * g[l][j];
            }
        for (int i = 0; i < r; i++)
            for (int j = 0; j < c; j++) {
                y[i][j] = 3.4445 * x[i][j];
                for (int l = 0; l < r; l++)
                    y[i][j] += s[i][l] * x[l][j];
            }
        memcpy(x, y, sizeof y);
    }
}

#endif
