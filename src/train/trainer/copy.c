/* trainer_copy — decides when the trainer makes copies of the state in the memory of peers, when it
 * uses them, and which checkpoint belongs to them. See peer_copy.h. */
#include "train/feature/step_update_sums.h"
#include "train/trainer/inside.h"

#include <math.h>
#include <string.h>

#include <xxhash.h>

#include "base/log.h"
#include "base/text.h"
#include "train/weights/load.h"
#include "train/trainer/memory_plan.h"

/* compute_fingerprint — Hashes everything that must be equal for a copy to be usable. */
static enum status compute_fingerprint(const struct trainer *t, const struct peer_copy_sizes *sizes,
                                       uint64_t *out)
{
    const struct trainer_config *c = t->config;
    char dims[1024]; /* as ckpt_meta.model_json */
    TRY(load_dims_json(&c->step.dims, dims, sizeof dims));
    const uint64_t numbers[] = {XXH3_64bits(dims, strlen(dims)),
                                XXH3_64bits(c->settings_json, strlen(c->settings_json)),
                                feed_fingerprint(c->feed),
                                c->step.seed,
                                (uint64_t)sizes->slot_elems[PEER_COPY_OWN],
                                (uint64_t)sizes->slot_elems[PEER_COPY_KEPT],
                                (uint64_t)c->step.axis_ranks[MESH_AXIS_TENSOR],
                                (uint64_t)c->step.axis_ranks[MESH_AXIS_CONTEXT],
                                (uint64_t)c->step.axis_ranks[MESH_AXIS_PIPELINE],
                                (uint64_t)c->step.pipe_chunks,
                                (uint64_t)c->ranks_max,
                                (uint64_t)comm_place(c->step.comm)->locals,
                                (uint64_t)c->step.store.shard,
                                (uint64_t)c->step.store.dtype};
    *out = XXH3_64bits(numbers, sizeof numbers);
    return ST_OK;
}

/* nodes_max — Returns the largest number of nodes of a generation. If only one node is left
 * (ON_LOSS=shrink), it copies its state to its own memory, so that the job can continue from there
 * when other nodes return. */
static int nodes_max(const struct trainer *t)
{
    return t->config->ranks_max / comm_place(t->config->step.comm)->locals;
}

/* continue_without_copies — Continues without copies, or fails with PEER_COPIES=1. why NULL: there
 * is no memory for them, which has been logged. */
static enum status continue_without_copies(const struct trainer *t, const char *why)
{
    if (t->config->peer_copies == PEER_COPY_MODE_ON)
        return FAIL(why ? ST_BAD_SETTING : ST_RETRY,
                    "PEER_COPIES=1 is not possible: %s; set PEER_COPIES=auto: a loss then costs "
                    "the steps since the last checkpoint",
                    why ? why : "a rank has no memory for copies of the state");
    if (why) {
        /* Once, on rank 0, and only if there may be another node to copy to. */
        const bool is_first = t->numbers.begun_step < 0;
        if (t->is_rank0 && is_first && nodes_max(t) > 1)
            LOG_INFO(
                "no copies of the state in peers' memory (PEER_COPIES=auto): %s; a loss costs the "
                "steps since the last checkpoint",
                why);
    }
    return ST_OK;
}

/* compute_reserve — Computes the memory that this rank allocates after the copies: for training,
 * and on rank 0 for the checkpoint copy that is written in the background. */
static enum status compute_reserve(const struct trainer *t, int64_t *out)
{
    const struct trainer_config *c = t->config;
    const struct memory_plan_place place = {.at = *comm_place(c->step.comm), .threads_n = 1};
    const bool is_saved = t->is_rank0 && c->checkpoint_dir[0] && c->checkpoint_every > 0 &&
                          c->checkpoint_mode == CHECKPOINT_ASYNC_MODE_AUTO;
    struct memory_plan plan;
    TRY(memory_plan_train(c, &place, &plan));
    plan.host[MEMORY_PLAN_PEER_COPIES] = 0;
    *out = memory_plan_sum(plan.host);
    return is_saved ? memory_plan_add_state(&c->step, &place, out) : ST_OK;
}

/* find_last_checkpoint — Writes the newest checkpoint on disk without reading there: the one
 * published by this process, or by its predecessor on this node. Only rank 0 writes it. */
static void find_last_checkpoint(const struct trainer *t, struct checkpoint_async_last *out)
{
    struct board_node node;
    board_node_copy(t->config->board, &node);
    const struct board_checkpoint *from =
        t->numbers.checkpoint.step >= 0 ? &t->numbers.checkpoint : &node.checkpoint;
    if (!t->is_rank0 || from->step < 0)
        return;
    out->step = from->step;
    out->wall_ms = from->wall_ms;
    text_copy(out->path, sizeof out->path, from->path);
}

/* find_copies — Decides on all ranks whether the job continues from copies. They may be many steps
 * apart on GPUs, and copies older than a checkpoint would repeat its steps. */
static enum status find_copies(struct trainer *t)
{
    struct checkpoint_progress copied = t->progress;
    struct checkpoint_async_last last = t->last_checkpoint;
    find_last_checkpoint(t, &last);
    int64_t saved = last.step;
    TRY(consensus_broadcast(&t->consensus, &saved, sizeof saved));
    TRY(peer_copy_find(t->peer_copy, saved, &t->is_from_memory, &copied));
    if (!t->is_from_memory)
        return ST_OK;
    t->progress = copied;
    t->last_checkpoint = last;
    return ST_OK;
}

enum status trainer_copy_begin(struct trainer *t)
{
    const struct trainer_config *c = t->config;
    if (c->peer_copies == PEER_COPY_MODE_OFF || c->peer_copy_fd < 0 || c->ranks_max <= 1)
        return ST_OK; /* such a process has no comm */
    struct comm *comm = comm_host(c->step.comm);
    const char *why = peer_copy_why(&c->step, nodes_max(t));
    if (!why && !comm)
        why = "a rank cannot send host memory to other nodes (its log has the reason)";
    if (why)
        return continue_without_copies(t, why);
    struct peer_copy_config config = {.comm = comm,
                                      .step_comm = c->step.comm,
                                      .dev = c->step.dev,
                                      .fd = c->peer_copy_fd,
                                      .ranks_max = c->ranks_max,
                                      .logs_cost = t->numbers.begun_step < 0,
                                      .heartbeat = trainer_heartbeat,
                                      .heartbeat_arg = t};
    const struct comm_place *place = comm_place(c->step.comm);
    TRY(peer_copy_world(&c->step, place, &config.world));
    TRY(peer_copy_sizes(&c->step, place, c->ranks_min, c->ranks_max, dev_is_discrete(c->step.dev),
                        &config.sizes));
    TRY(compute_fingerprint(t, &config.sizes, &config.fingerprint));
    TRY(compute_reserve(t, &config.reserve_bytes));
    TRY(peer_copy_open(&config, &t->peer_copy));
    if (!t->peer_copy)
        return continue_without_copies(t, NULL);
    return find_copies(t);
}

enum status trainer_copy_restore(struct trainer *t)
{
    enum status st = ST_OK;
    if (t->checkpoint)
        st = checkpoint_attach(t->checkpoint, t->step, &t->progress, t->last_checkpoint.path,
                               sizeof t->last_checkpoint.path);
    TRY(consensus_outcome(&t->consensus, st));
    return peer_copy_restore(t->peer_copy, t->step);
}

static enum status unit_done(void *self, int unit)
{
    struct trainer *t = self;
    return peer_copy_unit_done(t->peer_copy, t->step, &t->progress, unit);
}

const struct step_feature trainer_copy_feature = {.name = "peer copies", .unit_done = unit_done};

void trainer_copy_publish(struct trainer *t)
{
    struct peer_copy_stats stats;
    if (!t->peer_copy)
        return; /* while a generation begins, the previous numbers stay */
    peer_copy_stats(t->peer_copy, &stats);
    t->numbers.peer_copy = (struct board_peer_copy){.step = stats.step,
                                                    .bytes = stats.bytes,
                                                    .ms = stats.ms,
                                                    .bytes_per_second = stats.bytes_per_second,
                                                    .every = stats.every,
                                                    .memory_bytes = stats.memory_bytes};
}

/* If the loss is not finite, or a spike, or the device has a fault, the state itself may be wrong,
 * so the copies are cleared. A wrong result that was right when it was computed again is an
 * exception. */
void trainer_copy_end(struct trainer *t, enum status st)
{
    struct step_changed changed = {0};
    if (t->step && t->peer_copy)
        changed = step_update_sums_changed(t->step);
    if (changed.ranks_n > 0)
        peer_copy_suspect(t->peer_copy, t->step, changed.steps,
                          st == ST_FAULT || changed.rank == t->consensus.rank);
    else if (st == ST_NOT_FINITE || st == ST_SPIKE || (st == ST_FAULT && !t->is_state_right))
        peer_copy_clear(t->peer_copy);
    peer_copy_close(t->peer_copy);
    t->peer_copy = NULL;
}
