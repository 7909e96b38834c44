/* param — the table of a model's parameters: names, shapes, and where each lies. Pure arithmetic.
 * It must not know what a parameter means to the model, nor where its values are stored.
 *
 * - Unit 0 is the embedding (GPT-2: wte, wpe), units 1 … LAYERS are the blocks, unit LAYERS+1 is
 *   what follows (ln_f, qa_outputs; an untied lm_head). LAYERS are those of the shard, if the
 *   table describes a shard of a model.
 * - The table is in the order of units, so that each unit is one contiguous span of elements.
 * - Every tensor starts at a multiple of 16 elements, unless it is packed behind the one before it
 *   (param_pack). Padding is zero and stays zero.
 * - Names are Hugging Face's, without the model's prefix ("transformer.", "model."). */
#ifndef CONVOY_MODEL_PARAM_H
#define CONVOY_MODEL_PARAM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define PARAM_NAME_MAX 64
#define PARAM_ALIGN 16 /* elements */

/* NORMAL: N(0, 0.02); RESIDUAL: N(0, 0.02/√(2·LAYERS)) */
enum param_init { PARAM_INIT_NORMAL, PARAM_INIT_RESIDUAL, PARAM_INIT_ZERO, PARAM_INIT_ONE };

/* How a tensor lies in that of the whole model: along param.split_dim, which is `whole` long there,
 * are `groups` equal groups, and of each group elements [first, first + n) are here. */
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
    bool is_packed; /* no padding before it */
    struct param_cut cut;
    int whole_param; /* its number in the whole model's table */
    /* So many neighbouring ranks of the tensor axis have the same values, the first of them a
     * multiple of it: 1: this one alone; all: norms, row biases, positions; between: key heads. */
    int tensor_copies;
    bool grad_is_partial;      /* to be summed over these ranks: each has a summand */
    bool is_counted_elsewhere; /* the gradient norm has it from another rank; set by the step */
    bool grad_is_added; /* its gradient is only added to: zero it before the first micro-batch */
    int unit;
    int64_t offset; /* in elements, from the start of the table */
    int64_t elems;
    int64_t room_elems; /* elems plus the padding of zeros that its product uses */
};

struct param_table {
    struct param *param;
    int params_n, params_cap;
    int units_n;         /* of a shard, the first and the last unit may be empty */
    int layers;          /* of the whole model */
    int64_t total_elems; /* with padding; a multiple of PARAM_ALIGN */
    int64_t parameters;  /* without padding */
};

void param_table_free(struct param_table *t);
/* param_add — appends a parameter; units must not decrease. ST_BAD_SETTING: too large to address;
 * ST_RETRY: out of memory. */
enum status param_add(struct param_table *t, int unit, enum param_init init, int split_dim,
                      const char *name, int dims_n, int64_t dim0, int64_t dim1);
/* param_pack — the last parameter begins where the one before it ends, without padding, so that one
 * product reads both. */
void param_pack(struct param_table *t);
/* param_reserve — gives the last parameter, which is not packed, room for `elems` elements. */
void param_reserve(struct param_table *t, int64_t elems);
/* param_unit_span — the elements of a unit, with padding. */
void param_unit_span(const struct param_table *t, int unit, int64_t *offset_out,
                     int64_t *elems_out);
/* param_pad — moves tensors so that every tensor of unit 0 that is not packed, and every other
 * unit, starts at a multiple of align elements, itself one of PARAM_ALIGN, and ends with padding up
 * to one. */
void param_pad(struct param_table *t, int64_t align);
/* param_pad_each — the same, and every other tensor that is not packed starts at a multiple of
 * `each`, which divides align. */
void param_pad_each(struct param_table *t, int64_t align, int64_t each);
/* param_stripes — the whole model's tensor as a row of stripes of `span` elements. Of each,
 * elements [first, first + n) are in this tensor, one stripe after the other. A cut along the first
 * dimension makes one stripe (GPT-2's fused bias: 3), a cut along the second one for each row (its
 * fused matrix: 3). Not cut: one stripe, all of it. */
struct param_stripes {
    int64_t span, first, n;
};
struct param_stripes param_stripes(const struct param *p);
/* param_run — how many elements, from element `first` of a tensor on, are neighbours in the whole
 * model's tensor too. *whole_first: the number of `first` there. Outside param.c it is
 * for tests. */
int64_t param_run(const struct param *p, int64_t first, int64_t *whole_first);
/* param_fill — initial values of elements [first, first + n) of one parameter. A value is a
 * function of the seed, the parameter's number and the element's index, both in the whole model:
 * any range, in any order, on any thread. */
void param_fill(const struct param_table *t, int param, uint64_t seed, int64_t first, int64_t n,
                float *out);

/* param_matrices — the matrices that a tensor of two dimensions holds. One is `runs` runs of `run`
 * elements from element `first` on, `stride` apart; one behind the other they are `rows` rows of
 * `columns`. All heads of queries are one matrix. Returns how many. */
#define PARAM_MATRICES_MAX 3
struct param_matrix {
    int64_t first, runs, run, stride;
    int64_t rows, columns;
};
int param_matrices(const struct param *p, struct param_matrix out[PARAM_MATRICES_MAX]);
/* param_at — the tensor that holds an element of the table, or has it as padding behind it.
 * param_end — the end of a tensor with that padding. */
int param_at(const struct param_table *t, int64_t elem);
int64_t param_end(const struct param_table *t, int param);
/* param_rest — of elements [first, end), those that are not a hidden matrix's or its padding's. */
int64_t param_rest(const struct param_table *t, int64_t first, int64_t end);

/* param_find — for tests: the parameter with a name; NULL: none. */
const struct param *param_find(const struct param_table *t, const char *name);

#endif
