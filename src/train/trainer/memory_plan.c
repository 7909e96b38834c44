/* memory_plan — see memory_plan.h. */
#include "train/trainer/memory_plan.h"

#include "kernels/cpu.h"
#include "kernels/cuda.h"
#include "train/generate/decoder.h"
#include "train/feature/step_local.h"
#include "train/step/memory.h"
#include "train/step/lr_schedule.h"

#define MIB ((int64_t)1 << 20)
/* Memory of a worker besides its model, measured on 2026-11-23 (a run of only gpt2-nano or
 * gpt2-mini, less the plan): 24 to 31 MiB at the peak. Some 14 MiB are the program's, 8 MiB hold
 * initial values (step.c), and each large allocation ends within a huge page. Pages of the
 * program's file and of libraries, 11 MiB, are the node's: its supervisor counts them
 * (node/choose/memory_check.c). A command without a model draws no initial values. */
#define PROGRAM_BYTES (28 * MIB)
/* Measured again on 2026-11-23 with four workers of gpt2-nano, EMBED=512, SEQ_LEN=512: a worker has
 * touched 3.2 MiB of the memory that they share with PP=2 TP=2, and 2.2 MiB with PP=4. */
#define COMM_LOCALS_BYTES (4 * MIB)
#define COMM_NODES_BYTES (16 * MIB)
#define COMM_NODE_BYTES (MIB / 4) /* for each node */
#define CONVERT_BYTES (32 * MIB)  /* the tokenizer's files, and data to be written */
/* Estimates for a GPU, never measured: the memory of the host that the driver, CUDA and cuBLASLt
 * need, and the memory of the GPU that communication over the host needs: slots of two comm_direct,
 * and scratch of the stream that adds (comm/algorithm/gpu.c). */
#define GPU_LIBRARIES_HOST_BYTES (572 * MIB)
#define GPU_COMM_BYTES (2 * 64 * MIB + (int64_t)CUDA_SCRATCH_BYTES)
/* NCCL's memory of a GPU, by NCCL's own arithmetic for 8 GPUs of a node with an NVSwitch (sources
 * of NCCL 2.18 to 2.28: init.cc, transport/p2p.cc, transport/nvls.cc); never measured here.
 *   connection        a channel's buffers for one neighbour: LL 8 lines × 512 threads × 8 slots ×
 *                     16 bytes, LL128 120 words × 640 threads × 8 slots × 8 bytes, Simple 8 slots ×
 *                     512 KiB: 9.2 MiB, 10 MiB in units of 2 MiB; 2 MiB more at the sender
 *   rings and trees   24 channels × 2 neighbours × 12 MiB = 576 MiB
 *   NVLS              16 channels × 2 directions × 8 GPUs × 8 slots × 128 KiB = 256 MiB, 512 MiB in
 *                     units of a multicast object
 *   messages          32 channels × 12 MiB for each GPU of the node that this one sends messages
 *                     to or receives them from, whatever their size
 * The sum of rings, trees and NVLS is 1,088 MiB; NCCL's issue 1685 reports 1.06 GB on 8 H100s, and
 * 4.34 GB after an all-to-all, issue 864 1.6 GB. So 1.5 GiB are planned for the first communicator,
 * and the sum for each further one. */
#define NCCL_CONNECTION_BYTES (12 * MIB)
#define NCCL_GROUP_BYTES (24 * 2 * NCCL_CONNECTION_BYTES + 512 * MIB)
#define NCCL_WORLD_BYTES (1536 * MIB)
#define NCCL_PEER_BYTES (32 * NCCL_CONNECTION_BYTES)

static const char *const texts[MEMORY_PLAN_N] = {
#define MEMORY_PLAN_TEXT(name, text) [MEMORY_PLAN_##name] = text,
    MEMORY_PLAN_LIST(MEMORY_PLAN_TEXT)
#undef MEMORY_PLAN_TEXT
};

const char *memory_plan_text(enum memory_plan_kind kind) { return texts[kind]; }

int64_t memory_plan_sum(const int64_t bytes[MEMORY_PLAN_N])
{
    int64_t sum = 0;
    for (int kind = 0; kind < MEMORY_PLAN_N; kind++)
        sum += bytes[kind];
    return sum;
}

/* add_program — Adds the memory of a process and its device without a model. */
static void add_program(struct memory_plan *plan, const struct memory_plan_place *place)
{
    plan->host[MEMORY_PLAN_PROGRAM] += PROGRAM_BYTES;
    if (place->is_discrete) {
        plan->host[MEMORY_PLAN_LIBRARIES] += GPU_LIBRARIES_HOST_BYTES;
        plan->device[MEMORY_PLAN_LIBRARIES] += MEMORY_PLAN_GPU_LIBRARIES_BYTES;
    } else {
        plan->host[MEMORY_PLAN_SCRATCH] +=
            place->threads_n * (int64_t)CPU_SCRATCH_BYTES + (int64_t)CPU_SHARED_BYTES;
    }
}

/* add_step — Adds the memory of a step. The state and passes are in the device's memory; a batch
 * and compression are always in the host's. */
static void add_step(struct memory_plan *plan, const struct step_memory *m, bool is_discrete)
{
    int64_t *at = is_discrete ? plan->device : plan->host;
    at[MEMORY_PLAN_PARAMETERS] += m->store.params;
    at[MEMORY_PLAN_FROZEN] += m->store.frozen;
    at[MEMORY_PLAN_GRADIENTS] += m->store.grads;
    at[MEMORY_PLAN_MOMENTS] += m->store.moments;
    at[MEMORY_PLAN_UNSHARDED] += m->store.unsharded;
    at[MEMORY_PLAN_ACTIVATIONS] += m->activations;
    at[MEMORY_PLAN_WORKSPACE] += m->passes - m->activations;
    at[MEMORY_PLAN_SCRATCH] += m->scratch;
    at[MEMORY_PLAN_WORKSPACE] += m->gathered;
    plan->host[MEMORY_PLAN_WORKSPACE] += m->batch + m->readback;
    plan->host[MEMORY_PLAN_OUTER] += m->outer;
    plan->host[MEMORY_PLAN_COMPRESSION] += m->store.residuals;
    if (m->store.residuals > 0) /* compression computes on a CPU device with one thread */
        plan->host[MEMORY_PLAN_COMPRESSION] += (int64_t)(CPU_SCRATCH_BYTES + CPU_SHARED_BYTES);
}

static struct dev_cuda_attention_shape attention_shape(const struct step_config *s)
{
    const int tensor = s->axis_ranks[MESH_AXIS_TENSOR], ranks = tensor > 1 ? tensor : 1;
    return (struct dev_cuda_attention_shape){.t = s->seq_tokens,
                                             .h = s->dims.heads / ranks,
                                             .hk = model_kv_heads(&s->dims) / ranks,
                                             .d = model_head_dim(&s->dims),
                                             .dtype = s->store.dtype};
}

/* Returns true if cuDNN never computes the attention of this step. */
static bool is_refused_by_cudnn(const struct step_config *s)
{
    return s->dropout > 0 || step_has_first_key(s) || s->axis_ranks[MESH_AXIS_CONTEXT] > 1;
}

bool memory_plan_attention_is_own(const struct trainer_config *c, bool is_backward)
{
    const struct dev_cuda_attention_shape shape = attention_shape(&c->step);
    return is_refused_by_cudnn(&c->step) ||
           dev_cuda_attention_is_own(c->attention, c->is_atomic, is_backward, &shape);
}

/* Returns the bytes of a GPU in which cuDNN computes the backward pass of attention, if the
 * stream's scratch is too small for it. On a chip without cuDNN's kernels they stay free. */
static int64_t attention_bytes(const struct trainer_config *c)
{
    const struct dev_cuda_attention_shape shape = attention_shape(&c->step);
    return is_refused_by_cudnn(&c->step)
               ? 0
               : dev_cuda_attention_bytes(c->attention, c->is_atomic, &shape);
}

static int ranks_along(const struct step_config *c, enum mesh_axis axis)
{
    return c->axis_ranks[axis] > 0 ? c->axis_ranks[axis] : 1;
}

/* Returns the number of communicators for collectives of some of the ranks. */
static int nccl_groups(const struct step_config *c, int ranks)
{
    const int tensor = ranks_along(c, MESH_AXIS_TENSOR),
              context = ranks_along(c, MESH_AXIS_CONTEXT),
              stages = ranks_along(c, MESH_AXIS_PIPELINE), data = ranks / (tensor * stages);
    int groups = c->store.shard == LAYOUT_SHARD_HYBRID ? 2 : 0;
    groups += tensor > 1 && tensor < ranks;
    groups += context > 1 && context < ranks;
    groups += data > 1 && data < ranks;
    return groups;
}

/* Returns the number of GPUs of its node with which a rank exchanges messages: all of them in an
 * all-to-all (quantised gradients); on rank 0 all others whose shard of the state it saves; the
 * neighbouring stages of a pipeline. */
static int nccl_peers(const struct step_config *c, const struct comm_place *at)
{
    const int stages = ranks_along(c, MESH_AXIS_PIPELINE), others = at->locals - 1;
    if (grad_compress_quantises(c->store.compress))
        return at->locals;
    if (at->rank == 0 && step_mesh_divides_state(c, at->ranks))
        return others;
    return stages == 1 ? 0 : others < 2 ? others : 2;
}

/* add_comm — Adds the memory for communication with other ranks. */
static void add_comm(struct memory_plan *plan, const struct step_config *c,
                     const struct memory_plan_place *place)
{
    if (place->at.ranks == 1)
        return;
    plan->host[MEMORY_PLAN_COMMUNICATION] += COMM_LOCALS_BYTES;
    if (place->at.nodes > 1)
        plan->host[MEMORY_PLAN_COMMUNICATION] +=
            COMM_NODES_BYTES + place->at.nodes * COMM_NODE_BYTES;
    const int64_t nccl_bytes = NCCL_WORLD_BYTES +
                               nccl_groups(c, place->at.ranks) * NCCL_GROUP_BYTES +
                               nccl_peers(c, &place->at) * NCCL_PEER_BYTES + place->rounding_bytes;
    if (place->is_discrete)
        plan->device[MEMORY_PLAN_COMM_ESTIMATE] +=
            place->stays_on_device ? nccl_bytes : GPU_COMM_BYTES;
}

enum status memory_plan_add_state(const struct step_config *config,
                                  const struct memory_plan_place *place, int64_t *bytes)
{
    const int ranks = place->at.ranks;
    struct param_table table = {0};
    TRY(step_mesh_whole_table(config, ranks, place->is_discrete, &table));
    *bytes +=
        table.total_elems * (int64_t)sizeof(float) * step_local_state_arrays_of(config, ranks);
    param_table_free(&table);
    return ST_OK;
}

/* peer_copies — Returns the bytes of copies in a mode. With PEER_COPIES=1 a run without them is
 * refused. */
static enum status peer_copies(const struct trainer_config *c,
                               const struct memory_plan_place *place, enum peer_copy_mode mode,
                               int64_t *out)
{
    *out = 0;
    if (c->peer_copies != mode || peer_copy_why(&c->step, place->at.nodes) != NULL)
        return ST_OK;
    return peer_copy_bytes(&c->step, &place->at, c->ranks_min, place->at.ranks, place->is_discrete,
                           out);
}

enum status memory_plan_peer_copies(const struct trainer_config *config,
                                    const struct memory_plan_place *place, int64_t *out)
{
    return peer_copies(config, place, PEER_COPY_MODE_AUTO, out);
}

enum status memory_plan_train(const struct trainer_config *config,
                              const struct memory_plan_place *place, struct memory_plan *out)
{
    struct memory_plan plan = {{0}, {0}};
    struct step_memory memory;
    const struct step_place at = {place->at.rank, place->at.ranks, place->is_discrete,
                                  place->stays_on_device};
    TRY(step_plan(&config->step, &at, &memory));
    add_step(&plan, &memory, place->is_discrete);
    add_program(&plan, place);
    add_comm(&plan, &config->step, place);
    plan.device[MEMORY_PLAN_SCRATCH] += place->is_discrete ? attention_bytes(config) : 0;
    /* The copy of the state that is written while training continues. */
    if (config->checkpoint_dir[0] && config->checkpoint_every > 0 && place->at.rank == 0 &&
        config->checkpoint_mode == CHECKPOINT_ASYNC_MODE_ON)
        TRY(memory_plan_add_state(&config->step, place, &plan.host[MEMORY_PLAN_CHECKPOINT]));
    TRY(peer_copies(config, place, PEER_COPY_MODE_ON, &plan.host[MEMORY_PLAN_PEER_COPIES]));
    *out = plan;
    return ST_OK;
}

enum status memory_plan_eval(const struct step_config *config,
                             const struct memory_plan_place *place, struct memory_plan *out)
{
    struct memory_plan plan = {{0}, {0}};
    struct step_memory memory;
    const struct step_place alone = {.ranks = 1, .is_discrete = place->is_discrete};
    TRY(step_plan(config, &alone, &memory));
    add_step(&plan, &memory, place->is_discrete);
    add_program(&plan, place);
    *out = plan;
    return ST_OK;
}

enum status memory_plan_generate(const struct model_dims *dims, int64_t window, enum dtype dtype,
                                 const struct memory_plan_place *place, struct memory_plan *out)
{
    struct memory_plan plan = {{0}, {0}};
    struct decoder_memory memory;
    TRY(decoder_plan(dims, window, dtype, &memory));
    int64_t *at = place->is_discrete ? plan.device : plan.host;
    at[MEMORY_PLAN_PARAMETERS] = memory.params;
    at[MEMORY_PLAN_ACTIVATIONS] = memory.activations;
    at[MEMORY_PLAN_WORKSPACE] = memory.workspace;
    if (place->is_discrete)
        at[MEMORY_PLAN_SCRATCH] = (int64_t)CUDA_SCRATCH_BYTES;
    add_program(&plan, place);
    *out = plan;
    return ST_OK;
}

void memory_plan_convert(struct memory_plan *out)
{
    *out = (struct memory_plan){{0}, {0}};
    out->host[MEMORY_PLAN_PROGRAM] = PROGRAM_BYTES;
    out->host[MEMORY_PLAN_WORKSPACE] = CONVERT_BYTES;
}
