/* pipe — see pipe.h. */
#include "mesh/pipe/pipe.h"

#include "base/assert.h"

enum status pipe_check(const struct pipe *pipe)
{
    ASSERTF(pipe->stages > 0 && pipe->micros > 0 && pipe->chunks > 0,
            "stages %d micros %d chunks %d", pipe->stages, pipe->micros, pipe->chunks);
    if (pipe->chunks == 1)
        return ST_OK;
    if (pipe->stages < 2)
        return FAIL(ST_BAD_SETTING,
                    "PP_CHUNKS=%d with PP=%d: only stages have runs of layers; set "
                    "PP, or PP_CHUNKS=1",
                    pipe->chunks, pipe->stages);
    if (pipe->micros % pipe->stages != 0)
        return FAIL(ST_BAD_SETTING,
                    "PP_CHUNKS=%d: a step has %d micro-batch%s on each rank, which PP=%d does not "
                    "divide; change GLOBAL_BATCH or BATCH_SIZE, or set PP_CHUNKS=1",
                    pipe->chunks, pipe->micros, pipe->micros == 1 ? "" : "es", pipe->stages);
    return ST_OK;
}

/* all_n — returns the forward ops of a stage. first_n — returns the forward ops before its first
 * backward op. */
static int all_n(const struct pipe *pipe) { return pipe->micros * pipe->chunks; }

static int first_n(const struct pipe *pipe, int stage)
{
    int behind = pipe->stages - 1 - stage,
        n = pipe->chunks == 1 ? behind : 2 * behind + (pipe->chunks - 1) * pipe->stages;
    return n < all_n(pipe) ? n : all_n(pipe);
}

int pipe_ops_n(const struct pipe *pipe) { return 2 * all_n(pipe); }

/* nth_op — returns the stage's op k of one direction: p micro-batches of a chunk, then p of the
 * next chunk. */
static struct pipe_op nth_op(const struct pipe *pipe, bool is_backward, int k)
{
    if (pipe->chunks == 1)
        return (struct pipe_op){is_backward, 0, k};
    int round = pipe->stages * pipe->chunks, chunk = k % round / pipe->stages;
    return (struct pipe_op){is_backward, is_backward ? pipe->chunks - 1 - chunk : chunk,
                            k / round * pipe->stages + k % pipe->stages};
}

struct pipe_op pipe_op_at(const struct pipe *pipe, int stage, int i)
{
    int n = all_n(pipe), first = first_n(pipe, stage), pair = (i - first) / 2;
    ASSERTF(i >= 0 && i < 2 * n && stage >= 0 && stage < pipe->stages, "op %d of stage %d", i,
            stage);
    if (i < first)
        return nth_op(pipe, false, i);
    if (i >= 2 * n - first)
        return nth_op(pipe, true, i - n);
    return (i - first) % 2 == 0 ? nth_op(pipe, false, first + pair) : nth_op(pipe, true, pair);
}

bool pipe_source(const struct pipe *pipe, int stage, struct pipe_op op, int *stage_out,
                 struct pipe_op *op_out)
{
    if (!op.is_backward && stage > 0) {
        stage--;
    } else if (!op.is_backward) {
        stage = pipe->stages - 1;
        if (--op.chunk < 0)
            return false;
    } else if (stage < pipe->stages - 1) {
        stage++;
    } else if (op.chunk < pipe->chunks - 1) {
        stage = 0;
        op.chunk++;
    } else {
        op.is_backward = false; /* the last chunk's own forward op */
    }
    *stage_out = stage;
    *op_out = op;
    return true;
}

int pipe_in_flight(const struct pipe *pipe, int stage)
{
    int n = first_n(pipe, stage) + 1;
    return n < all_n(pipe) ? n : all_n(pipe);
}

int64_t pipe_slots(const struct pipe *pipe)
{
    return (int64_t)pipe->micros * pipe->chunks + pipe->stages - 1;
}

double pipe_bubble(const struct pipe *pipe)
{
    return (double)(pipe->stages - 1) / (double)pipe_slots(pipe);
}
