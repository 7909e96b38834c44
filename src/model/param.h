/* param — the table of a model's parameters: names, shapes, where each lies. Pure arithmetic.
 *
 * Layout is block-major: one contiguous span per unit, so that sharding, prefetching and reducing
 * are about whole spans. Unit 0 is the embedding (wte, wpe), units 1 … LAYERS the blocks, unit
 * LAYERS+1 what follows (ln_f, qa_outputs). Every tensor starts on a multiple of 16 elements;
 * padding is zero and stays zero. Names are Hugging Face's without "transformer.". */
#ifndef CONVOY_MODEL_PARAM_H
#define CONVOY_MODEL_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define PARAM_NAME_MAX 64
#define PARAM_ALIGN 16 /* elements */

/* normal: N(0, 0.02); residual: N(0, 0.02/√(2·LAYERS)); zero; one */
enum param_init { PARAM_INIT_NORMAL, PARAM_INIT_RESIDUAL, PARAM_INIT_ZERO, PARAM_INIT_ONE };

struct param {
    char name[PARAM_NAME_MAX];
    int dims_n;
    int64_t dim[2];
    int split_dim; /* the dim tensor parallelism cuts; -1: replicated */
    enum param_init init;
    /* no product writes its gradient first: zero it before the first micro-batch */
    bool grad_is_added;
    int unit;
    int64_t offset; /* elements from the start of the table */
    int64_t elems;
};

struct param_table {
    struct param *param;
    int params_n, params_cap;
    int units_n;
    int layers;
    int64_t total_elems; /* with padding; a multiple of PARAM_ALIGN */
    int64_t parameters;  /* without padding */
};

void param_table_free(struct param_table *t);
/* param_add — append a row to `unit` (units in order). Memory refused is ST_RETRY. */
enum status param_add(struct param_table *t, int unit, enum param_init init, int split_dim,
                      const char *name, int dims_n, int64_t dim0, int64_t dim1);
const struct param *param_find(const struct param_table *t, const char *name); /* NULL: none */
void param_unit_span(const struct param_table *t, int unit, int64_t *offset_out,
                     int64_t *elems_out);
/* param_fill — the initial values of elements [first, first+n) of one tensor: f(seed, row number,
 * element index), so any part may be asked for in any order, by any number of threads. */
void param_fill(const struct param_table *t, int row, uint64_t seed, int64_t first, int64_t n,
                float *out);

#endif
