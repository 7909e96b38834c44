/* param — the table of a model's parameters: names, shapes, and the position of each. Pure
 * arithmetic. It must not know the meaning of a parameter to the model, nor where its values are
 * stored.
 *
 * - Unit 0 is the embedding (GPT-2: wte, wpe), units 1 … LAYERS are the blocks, unit LAYERS+1 has
 *   the parameters after them (ln_f, qa_outputs; an untied lm_head). LAYERS counts the shard's
 *   layers, if the table describes a shard of a model.
 * - The table is in the order of units, so that each unit is one contiguous span of elements.
 * - Every tensor starts at a multiple of 16 elements, unless it is packed after the one before it
 *   (param_pack). Padding is zero and stays zero.
 * - Names are Hugging Face's, without the model's prefix ("transformer.", "model."). */
#ifndef CONVOY_MODEL_PARAM_H
#define CONVOY_MODEL_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define PARAM_NAME_MAX 64
#define PARAM_ALIGN 16 /* elements */

/* NORMAL: N(0, 0.02); RESIDUAL: N(0, 0.02/√(2·LAYERS)); UNIFORM: within ±1/√n, n elements of the
 * second dimension in the whole model */
enum param_init {
    PARAM_INIT_NORMAL,
    PARAM_INIT_RESIDUAL,
    PARAM_INIT_UNIFORM,
    PARAM_INIT_ZERO,
    PARAM_INIT_ONE
};

/* The elements of the whole model's tensor that a tensor holds. In the whole tensor the dimension
 * param.split_dim has `whole` elements in `groups` equal groups; this tensor holds the elements
 * [first, first + n) of each group. */
struct param_cut {
    int64_t whole; /* 0: the tensor is whole */
    int groups;
    int64_t first, n;
};

/* The matrices that lie side by side in one tensor along its output dimension, such as the weights
 * of queries, keys and values: `repeats` times (1, or once for each head) n groups of width[i]. */
struct param_fused {
    int n; /* 0: the tensor is one matrix */
    int64_t width[3], repeats;
};

struct param {
    char name[PARAM_NAME_MAX];
    int dims_n;
    int64_t dim[2];
    int split_dim; /* the dimension that tensor parallelism cuts; -1: replicated */
    enum param_init init;
    bool is_hidden; /* a matrix of a block, between activations; not an embedding or a norm */
    struct param_fused fused;
    bool is_packed; /* it has no padding before it */
    struct param_cut cut;
    int whole_param; /* number of the tensor in the whole model's table */
    /* The number of neighbouring ranks of the tensor axis that have the same values; the first of
     * them is a multiple of it. 1: only this rank; all ranks: norms, row biases, positions;
     * between: key heads. */
    int tensor_copies;
    bool grad_is_partial;      /* its gradient is summed over these ranks: each has a summand */
    bool is_counted_elsewhere; /* the gradient norm counts it on another rank; set by the step */
    bool grad_is_added; /* passes only add to its gradient: zero it before the first micro-batch */
    int unit;
    int64_t offset; /* in elements, from the start of the table */
    int64_t elems;
    int64_t room_elems; /* elems plus the padding of zeros that its product uses */
};

struct param_table {
    struct param *param;
    int params_n, params_cap;
    int units_n;         /* units; in a shard, the first and the last may be empty */
    int layers;          /* layers of the whole model */
    int64_t total_elems; /* with padding; a multiple of PARAM_ALIGN */
    int64_t parameters;  /* without padding */
};

/* param_table_free — frees the table and zeroes it; accepts a zeroed one. */
void param_table_free(struct param_table *t);
/* param_add — appends a parameter; units must not decrease. ST_BAD_SETTING: too large to address;
 * ST_RETRY: out of memory. */
enum status param_add(struct param_table *t, int unit, enum param_init init, int split_dim,
                      const char *name, int dims_n, int64_t dim0, int64_t dim1);
/* param_pack — moves the last parameter to the end of the one before it, without padding, so that
 * one product reads both. */
void param_pack(struct param_table *t);
/* param_reserve — reserves `elems` elements for the last parameter, which is not packed. */
void param_reserve(struct param_table *t, int64_t elems);
/* param_unit_span — computes the span of a unit's elements, with padding. */
void param_unit_span(const struct param_table *t, int unit, int64_t *offset_out,
                     int64_t *elems_out);
/* param_pad — moves tensors so that every tensor of unit 0 that is not packed, and every other
 * unit, starts at a multiple of align elements, and ends with padding up to a multiple. align is a
 * multiple of PARAM_ALIGN. */
void param_pad(struct param_table *t, int64_t align);
/* param_pad_each — does the same, and every other tensor that is not packed starts at a multiple of
 * `each`, which divides align. */
void param_pad_each(struct param_table *t, int64_t align, int64_t each);
/* The whole model's tensor as a row of stripes of `span` elements. Elements [first, first + n) of
 * each stripe are in this tensor, one stripe after the other. A cut along the first dimension makes
 * one stripe (GPT-2's fused bias: 3), a cut along the second one for each row (its fused matrix:
 * 3). Not cut: one stripe, all of it. */
struct param_stripes {
    int64_t span, first, n;
};
/* param_stripes — returns the stripes of a tensor. */
struct param_stripes param_stripes(const struct param *p);
/* param_run — returns the number of elements, from element `first` of a tensor on, that are also
 * neighbours in the whole model's tensor. *whole_first: the number of `first` there. External for
 * tests. */
int64_t param_run(const struct param *p, int64_t first, int64_t *whole_first);
/* param_fill — computes initial values of elements [first, first + n) of one parameter. A value is
 * a function of the seed, the parameter's number and the element's index, both in the whole model:
 * any range, in any order, on any thread. */
void param_fill(const struct param_table *t, int param, uint64_t seed, int64_t first, int64_t n,
                float *out);

/* A matrix in a tensor: `runs` runs of `run` elements from element `first` on, `stride` apart; one
 * after the other they are `rows` rows of `columns`. */
#define PARAM_MATRICES_MAX 3
struct param_matrix {
    int64_t first, runs, run, stride;
    int64_t rows, columns;
};
/* param_matrices — lists the matrices that a tensor of two dimensions holds, and returns their
 * number. All heads of queries are one matrix. */
int param_matrices(const struct param *p, struct param_matrix out[PARAM_MATRICES_MAX]);
/* param_at — returns the tensor that holds an element of the table, or has it as padding after
 * it. */
int param_at(const struct param_table *t, int64_t elem);
/* param_end — returns the end of a tensor with that padding. */
int64_t param_end(const struct param_table *t, int param);
/* param_rest — returns the number of elements in [first, end) that belong neither to a hidden
 * matrix nor to its padding. */
int64_t param_rest(const struct param_table *t, int64_t first, int64_t end);

/* param_find — returns the parameter with a name; NULL: none. */
const struct param *param_find(const struct param_table *t, const char *name);

#endif
