/* blas_tuned — the fastest algorithm of cuBLASLt for a product, measured on a chip by `gpu_tests
 * tune` and checked in (blas/tuned.def). Nothing is timed when a run starts, so a run is
 * reproducible. An entry counts for exactly its chip, version and product. The format of an entry
 * is text, quoted as C strings: `"` and line ends are ignored, `;` ends it.
 *
 *   chip|multiprocessors|cuBLASLt|product|fused or apart|algorithm;
 *
 * apart: this epilogue is slower than a separate kernel; the product without it has another entry.
 * Such an entry has no algorithm. Must not know the library's objects. */
#ifndef CONVOY_DEV_BLAS_TUNED_H
#define CONVOY_DEV_BLAS_TUNED_H

#include "dev/blas/plan.h"

#define BLAS_TUNED_ALGO 64 /* bytes of a cublasLtMatmulAlgo_t */
#define BLAS_TUNED_KEY 240 /* characters of a product */
#define BLAS_TUNED_ROW 640 /* characters of an entry */

struct blas_tuned {
    bool is_apart;
    uint8_t algo[BLAS_TUNED_ALGO];
};

/* blas_tuned_checked_in — returns the table of this program: all entries, one after the other. */
const char *blas_tuned_checked_in(void);
/* blas_tuned_key — writes a product as in an entry; for tests too. */
void blas_tuned_key(const struct blas_shape *shape, char out[BLAS_TUNED_KEY]);
/* blas_tuned_find — finds the first entry of the table for exactly this product; false: there is
 * none, or it is damaged. version: the result of cublasLtGetVersion. */
bool blas_tuned_find(const char *table, const struct blas_chip *chip, size_t version,
                     const struct blas_shape *shape, struct blas_tuned *out);
/* blas_tuned_write — writes an entry, as lines of blas/tuned.def: for tests, and for gpu_tests
 * tune. */
void blas_tuned_write(const struct blas_chip *chip, size_t version, const struct blas_shape *shape,
                      const struct blas_tuned *tuned, char out[BLAS_TUNED_ROW]);

#endif
