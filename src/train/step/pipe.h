/* step_pipe — a step of one stage of a pipeline: its chunks of layers, the activations of the
 * micro-batches in flight, and the messages to and from other stages. For the files of a step only.
 * step/pipe.c has memory and life, step/pipe_run.c the passes. mesh/pipe/pipe.h decides their
 * order.
 *
 * Messages are jobs on the comm's queue thread, concurrent with computation. Each carries the rows
 * at a border of chunks, or their gradient. A received message is copied to its destination when
 * its op starts. A forward op's output is sent from its memory; a gradient is copied first, because
 * all activations share one. On a GPU a message waits for an event, not for the stream: a send
 * waits until its rows are computed, a receive until the previous message has been copied to its
 * place. */
#ifndef CONVOY_TRAIN_STEP_PIPE_H
#define CONVOY_TRAIN_STEP_PIPE_H

#include "mesh/pipe/pipe.h"
#include "train/step/feature.h"

#define STEP_PIPE_GRADS_MAX 16 /* test_pipe finds at most 11, with up to 32 stages */

/* Consecutive layers of the model on one stage, described as a shard of the model of their own. */
struct step_pipe_chunk {
    struct model_dims dims;
    int unit_first;             /* the stage's unit of its first block */
    struct param_table table;   /* the model's parameters, with the offsets that passes read */
    struct param_table adapter; /* the adapter's, if there is one, with such offsets */
    struct param_table grads;   /* the parameters that are trained, with offsets of gradients */
    struct model_acts **acts;   /* (acts_n); micro-batch i uses number i % acts_n */
    int acts_n;
};

struct step_pipe_message {
    struct comm *line;
    struct tensor data;
    int64_t elems;
    int peer;
    bool is_send;
    struct dev_event *made; /* a send: after its rows are computed; kept for the next step */
    struct comm_ticket ticket;
};

struct step_pipe {
    struct pipe pipe;
    int stage;
    struct pipe_plan plan;
    struct step_pipe_chunk chunk[MODEL_CHUNKS_MAX];
    struct comm *line; /* comm of the stages; borrowed */
    /* comm of the first and the last stage, on these two, if both hold the embedding */
    struct comm *ends;
    bool is_ends_own;          /* ends must be closed */
    struct tensor embed_rows;  /* message of the first stage to the last */
    struct tensor token_grads; /* on the last stage: heads_ahead gradients of unit 0 */
    /* received messages: forward, backward; gradients to be sent */
    struct tensor received[2], made[STEP_PIPE_GRADS_MAX];
    /* events: the last message was copied from received[0], received[1], embed_rows */
    struct dev_event *copied[3];
    struct step_pipe_message *message; /* one for each action */
    struct comm_ticket newest;         /* ticket of the last message that was begun */
    bool is_under_way;                 /* that message may not be done */
};

/* step_pipe_shard — sets the layers of a stage: chunks, lacks_embed and lacks_head of *shard. With
 * one stage it sets nothing. Pure. */
enum status step_pipe_shard(const struct step_core *s, int stage, struct model_shard *shard);
/* step_pipe_describe — makes s->pipe for this rank's *shard. Pure; step_pipe_close frees it. */
enum status step_pipe_describe(struct step_core *s, const struct model_shard *shard);
/* step_pipe_is_early — returns true if the input of an op is received during the op before. */
bool step_pipe_is_early(const struct step_core *s);
/* step_pipe_plan — allocates activations, scratch and messages. */
enum status step_pipe_plan(struct step_core *s, struct arena arena[STEP_ARENA_N]);
/* step_pipe_open — opens the comms, and finds the offsets of parameters. Call it after the store is
 * open. Collective. */
enum status step_pipe_open(struct step_core *s);
/* step_pipe_quiesce — waits for messages in progress, also after a failure. */
void step_pipe_quiesce(struct step_core *s);
/* step_pipe_close — accepts a step without a pipeline. */
void step_pipe_close(struct step_core *s);

/* step_pipe_bind — makes *p a pass of a chunk and a micro-batch. */
void step_pipe_bind(const struct step_core *s, int chunk, int micro, struct pass *p);
/* step_pipe_elems — returns the elements of a message of b samples of t tokens. */
int64_t step_pipe_elems(const struct step_core *s, int64_t b, int64_t t);
/* step_pipe_alloc_rows — allocates memory for a message of a micro-batch. */
struct tensor step_pipe_alloc_rows(const struct step_core *s, struct arena *from);

/* ---- the token embedding that the head shares (step/pipe_ends.c) ---- */

/* step_pipe_ends_is_tied — returns true if the head shares the token embedding. */
bool step_pipe_ends_is_tied(const struct step_config *c);
/* step_pipe_ends_adds — returns true if the last stage adds up the whole gradient of the embedding:
 * with virtual shards. */
bool step_pipe_ends_adds(const struct step_core *s);
/* step_pipe_ends_lacks — returns true if this stage therefore computes no gradient of a tensor of
 * its table. */
bool step_pipe_ends_lacks(const struct step_core *s, int param);
/* step_pipe_ends_plan — allocates memory for the embedding's gradient on both stages. */
enum status step_pipe_ends_plan(struct step_core *s, struct arena *from);
/* step_pipe_ends_open — opens the comm of both stages. Collective. */
enum status step_pipe_ends_open(struct step_core *s);
/* step_pipe_ends_close — closes that comm, if step_pipe_ends_open has made it. */
void step_pipe_ends_close(struct step_core *s);
/* step_pipe_ends_bind — sets the memory of the embedding's gradient in the pass of a
 * micro-batch. */
void step_pipe_ends_bind(const struct step_core *s, int64_t micro, struct pass *p);
/* step_pipe_ends_grad — returns the memory to which a pass with gradients writes a tensor's
 * gradient; data NULL: it writes none. */
struct tensor step_pipe_ends_grad(const struct step_core *s, const struct pass *p, int param);
/* step_pipe_ends_put — copies a gradient that the pass of step_pipe_ends_bind has written to the
 * memory to which *to writes it. On the last stage only. */
enum status step_pipe_ends_put(struct step_core *s, const struct pass *to, int64_t micro,
                               int param);
/* step_pipe_ends_sum — makes the gradient of both stages, on both, after all passes. */
enum status step_pipe_ends_sum(struct step_core *s);
/* step_pipe_ends_moved — returns the elements that this stage sends then, with virtual shards. */
int64_t step_pipe_ends_moved(const struct step_core *s);

/* ---- the passes (step/pipe_run.c) ---- */

/* step_pipe_run — runs all forward and backward passes of a step. */
enum status step_pipe_run(struct step_core *s, const struct step_now *now);
/* step_pipe_run_alone — runs the passes of one virtual shard, micro-batch by micro-batch, only to
 * compare them. sample: its first sample, in the global batch. */
enum status step_pipe_run_alone(struct step_core *s, const struct step_now *now,
                                const struct batch *batch, int64_t sample, struct step_result *r);
/* step_pipe_run_forward — runs a forward pass through all stages. The last stage's output is in the
 * acts of *p. */
enum status step_pipe_run_forward(struct step_core *s, const struct pass *p);
/* step_pipe_run_share — copies a result of the last stage to all stages. */
enum status step_pipe_run_share(struct step_core *s, struct tensor x, int64_t elems);

#endif
