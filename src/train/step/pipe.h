/* step_pipe — a step of a stage of a pipeline: its chunks of layers, the activations of the
 * micro-batches in flight, the messages to and from other stages. For the files of a step only;
 * step/pipe.c has memory and life, step/pipe_run.c the passes. The order is of mesh/pipe/pipe.h.
 *
 * Messages are jobs on the comm's queue thread, beside computation; each carries the rows at a
 * border of chunks, or their gradient. A received one is copied to its place when its op starts. A
 * forward op's output is sent from where it lies; a gradient is copied first, because all
 * activations share one. On a GPU a message waits for an event, not for the stream: a sent one for
 * what made it, a received one until the message before it was copied to its place. */
#ifndef CONVOY_TRAIN_STEP_PIPE_H
#define CONVOY_TRAIN_STEP_PIPE_H

#include "mesh/pipe/pipe.h"
#include "train/step/feature.h"

#define STEP_PIPE_GRADS_MAX 16 /* test_pipe finds at most 11, with up to 32 stages */

/* Layers of the stage that follow each other in the model, as a part of the model of its own. */
struct step_pipe_chunk {
    struct model_dims dims;
    int unit_first;           /* the stage's unit of its first block */
    struct param_table table; /* of dims, with offsets of the parameters that passes read */
    struct param_table grads; /* the same, of gradients */
    struct model_acts **acts; /* acts_n; of micro-batch i: i % acts_n */
    int acts_n;
};

struct step_pipe_message {
    struct comm *line;
    struct tensor data;
    int64_t elems;
    int peer;
    bool is_send;
    struct dev_event *made; /* after what a sent one carries; kept for the next step */
    struct comm_ticket ticket;
};

struct step_pipe {
    struct pipe pipe;
    int stage;
    struct pipe_plan plan;
    struct step_pipe_chunk chunk[MODEL_CHUNKS_MAX];
    struct comm *line; /* of the stages; borrowed */
    struct comm
        *ends;        /* of the first and the last stage, on these, where both hold the embedding */
    bool is_ends_own; /* ends is to be closed */
    struct tensor embed_rows;  /* of the first stage: to be sent; of the last: received */
    struct tensor token_grads; /* of the last stage: heads_ahead gradients of unit 0 */
    struct tensor received[2],
        made[STEP_PIPE_GRADS_MAX];     /* messages: forward, backward; gradients */
    struct dev_event *taken[3];        /* after the last one was copied from received[i], or from
                                        * embed_rows */
    struct step_pipe_message *message; /* one for each action */
    struct comm_ticket newest;         /* of the last message that was begun */
    bool is_under_way;                 /* it may not be done */
};

/* step_pipe_part — which layers a stage has: chunks, lacks_embed and lacks_head of *part. Nothing
 * with one stage. Pure.
 * step_pipe_describe — s->pipe, of this rank's *part. Pure; step_pipe_close frees it.
 * step_pipe_is_early — whether inputs are received beside the op before.
 * step_pipe_plan — takes activations, scratch and messages.
 * step_pipe_open — after the store: comms, and where parameters lie. Collective.
 * step_pipe_quiesce — waits for messages under way, also after a failure.
 * step_pipe_close — accepts a step without a pipeline. */
enum status step_pipe_part(const struct step_core *s, int stage, struct model_shard *part);
enum status step_pipe_describe(struct step_core *s, const struct model_shard *part);
bool step_pipe_is_early(const struct step_core *s);
enum status step_pipe_plan(struct step_core *s, struct arena arena[STEP_ARENA_N]);
enum status step_pipe_open(struct step_core *s);
void step_pipe_quiesce(struct step_core *s);
void step_pipe_close(struct step_core *s);

/* step_pipe_bind — makes *p a pass of a chunk and a micro-batch. */
void step_pipe_bind(const struct step_core *s, int chunk, int micro, struct pass *p);
/* step_pipe_elems — elements of a message of b samples of t tokens. */
int64_t step_pipe_elems(const struct step_core *s, int64_t b, int64_t t);
/* step_pipe_take_rows — memory for a message of a micro-batch. */
struct tensor step_pipe_take_rows(const struct step_core *s, struct arena *from);

/* The token embedding that the head shares (step/pipe_ends.c).
 * _is_tied    there is one.
 * _adds       the last stage adds all of its gradient: with virtual shards.
 * _lacks      so this stage makes no gradient of a tensor of its table.
 * _plan, _open, _close  memory, and the comm of both stages.
 * _bind       of a pass of a micro-batch: where the gradient goes.
 * _grad       where a pass with gradients writes that of a tensor; data NULL: nowhere.
 * _put        on the last stage: to where *to writes, what _bind's pass of a micro-batch made.
 * _sum        after all passes: the gradient of both stages on both. _moved: elements that this
 *             stage sends then, with virtual shards. */
bool step_pipe_ends_is_tied(const struct step_config *c);
bool step_pipe_ends_adds(const struct step_core *s);
bool step_pipe_ends_lacks(const struct step_core *s, int param);
enum status step_pipe_ends_plan(struct step_core *s, struct arena *from);
enum status step_pipe_ends_open(struct step_core *s);
void step_pipe_ends_close(struct step_core *s);
void step_pipe_ends_bind(const struct step_core *s, int64_t micro, struct pass *p);
struct tensor step_pipe_ends_grad(const struct step_core *s, const struct pass *p, int param);
enum status step_pipe_ends_put(struct step_core *s, const struct pass *to, int64_t micro,
                               int param);
enum status step_pipe_ends_sum(struct step_core *s);
int64_t step_pipe_ends_moved(const struct step_core *s);

/* The passes (step/pipe_run.c).
 * step_pipe_run   all forward and backward passes of a step.
 * _run_alone      those of one virtual shard, micro-batch by micro-batch: for comparison alone.
 *                 sample: its first one, in the global batch.
 * _run_forward    through all stages; the last one's output is in the acts of *p.
 * _run_share      a result of the last stage, on all. */
enum status step_pipe_run(struct step_core *s, const struct step_now *now);
enum status step_pipe_run_alone(struct step_core *s, const struct step_now *now,
                                const struct batch *batch, int64_t sample, struct step_result *r);
enum status step_pipe_run_forward(struct step_core *s, const struct pass *p);
enum status step_pipe_run_share(struct step_core *s, struct tensor x, int64_t elems);

#endif
