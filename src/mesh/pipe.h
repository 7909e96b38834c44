/* pipe — in which order the stages of a pipeline run the forward and backward passes of a step's
 * micro-batches: pure arithmetic. It must not know models, nor how ranks communicate.
 *
 * A model's layers are cut into p·v chunks. Stage r of p has chunks r, p + r, 2p + r …: its own
 * chunks 0 … v-1. A micro-batch runs forward through all chunks in order, and backward in reverse.
 * An op is one pass of one micro-batch through one chunk.
 *
 *   1f1b         v = 1 (Narayanan et al. 2019): stage r runs p-1-r forward ops, then forward and
 *                backward in turn, then the backward ops that are left. Any number m of
 *                micro-batches.
 *   interleaved  v >= 2 (Narayanan et al. 2021): the same with chunks, p micro-batches of a chunk
 *                after another, and 2·(p-1-r) + (v-1)·p forward ops first. m is a multiple of p.
 *
 * Where all chunks take the same time, F forward and B backward, and messages take none, a step
 * takes (m·v + p - 1)·(F + B), of which (p - 1)·(F + B) are the bubble: a stage waits. Backward ops
 * of one chunk run in ascending order of micro-batches, as on one rank. */
#ifndef CONVOY_MESH_PIPE_H
#define CONVOY_MESH_PIPE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Stages, micro-batches of a step, chunks of a stage: p, m and v. */
struct pipe {
    int stages, micros, chunks;
};
struct pipe_op {
    bool is_backward;
    int chunk, micro; /* the stage's own chunk */
};

/* pipe_check — ST_BAD_SETTING: there is no such schedule; with the settings to change. */
enum status pipe_check(const struct pipe *pipe);

/* pipe_ops_n — ops of a stage in a step: 2·m·v. pipe_op_at — op i of a stage. */
int pipe_ops_n(const struct pipe *pipe);
struct pipe_op pipe_op_at(const struct pipe *pipe, int stage, int i);
/* pipe_source — the stage and the op on it that make the input of an op. false: it has none, for it
 * is the first chunk forward. The last chunk's backward op takes its own forward op's output. */
bool pipe_source(const struct pipe *pipe, int stage, struct pipe_op op, int *stage_out,
                 struct pipe_op *op_out);
/* pipe_in_flight — for tests: how many forward ops of a stage wait for their backward ops at once,
 * at most: 1f1b min(m, p-r); interleaved min(m·v, 2·(p-1-r) + (v-1)·p + 1). */
int pipe_in_flight(const struct pipe *pipe, int stage);
/* pipe_slots — the time of a step, in units of F + B: m·v + p - 1. pipe_bubble — of it the part in
 * which a stage waits: (p-1) / (m·v + p - 1). */
int64_t pipe_slots(const struct pipe *pipe);
double pipe_bubble(const struct pipe *pipe);

#endif
