/* peer_copy — see peer_copy.h. peer_copy/memory.c has the memory, peer_copy/choice.c the choice of
 * a state, peer_copy/restore.c its use, peer_copy/exchange.c the copies, peer_copy/device.c reads
 * from a GPU, peer_copy/interval.c how often. */
#include "train/peer_copy/inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/step/slice.h"
#include "comm/core/part.h"

/* stays free next to the copies */
#define RESERVE_BYTES ((int64_t)256 << 20)

#define LOGGED_COPY 3
#define OLDER_MAX 1      /* steps by which copies may be older than a checkpoint */
#define COSTLY_SHARE 0.1 /* share of a step's time */

const char *peer_copy_why(const struct step_config *config, int nodes)
{
    return nodes < 2 ? "there is no other node" : step_slice_why(config);
}

enum status peer_copy_world(const struct step_config *config, const struct comm_place *place,
                            struct peer_copy_world *out)
{
    *out = (struct peer_copy_world){.nodes = place->nodes, .locals = place->locals};
    return step_mesh(config, place->ranks, &out->mesh);
}

/* If the number of ranks may change, so does a worker's slice: its slots have room for any. */
enum status peer_copy_sizes(const struct step_config *config, const struct comm_place *place,
                            int ranks_min, int ranks_max, bool is_discrete,
                            struct peer_copy_sizes *out)
{
    struct peer_copy_world world;
    int64_t most = 0;
    TRY(peer_copy_world(config, place, &world));
    if (ranks_min > 0 && ranks_min < ranks_max)
        TRY(step_slice_elems_most(config, ranks_min, is_discrete, &most));
    const int rank[] = {[PEER_COPY_OWN] = place->rank,
                        [PEER_COPY_KEPT] = peer_copy_choice_kept_rank(&world, place->rank)};
    for (int i = 0; i < PEER_COPY_KINDS; i++) {
        int64_t elems = 0;
        if (rank[i] >= 0)
            TRY(step_slice_elems_of(config, place->ranks, rank[i], is_discrete, &elems));
        out->slice_elems[i] = elems;
        out->slot_elems[i] = most > 0 ? most : elems;
    }
    return ST_OK;
}

static void bytes_of(const int64_t elems[PEER_COPY_KINDS], int64_t out[PEER_COPY_KINDS])
{
    for (int i = 0; i < PEER_COPY_KINDS; i++)
        out[i] = elems[i] * (int64_t)sizeof(float);
}

enum status peer_copy_bytes(const struct step_config *config, const struct comm_place *place,
                            int ranks_min, int ranks_max, bool is_discrete, int64_t *out)
{
    struct peer_copy_sizes sizes;
    int64_t slot_bytes[PEER_COPY_KINDS];
    TRY(peer_copy_sizes(config, place, ranks_min, ranks_max, is_discrete, &sizes));
    bytes_of(sizes.slot_elems, slot_bytes);
    *out = peer_copy_memory_bytes(slot_bytes);
    return ST_OK;
}

/* ---- open and close ---- */

/* open_memory — Allocates the memory. A rank without room reports that in its offer. */
static void open_memory(struct peer_copy *copy)
{
    const struct peer_copy_config *c = &copy->config;
    const int64_t free_bytes = memory_free(),
                  each = (free_bytes - RESERVE_BYTES) / copy->place.locals - c->reserve_bytes,
                  room = each > 0 ? each : 0;
    struct peer_copy_memory_config config = {.fd = c->fd,
                                             .fingerprint = c->fingerprint,
                                             .free_bytes = free_bytes < 0 ? -1 : room,
                                             .heartbeat = c->heartbeat,
                                             .heartbeat_arg = c->heartbeat_arg};
    bytes_of(c->sizes.slot_elems, config.slot_bytes);
    enum status st = peer_copy_memory_open(&config, &copy->memory);
    if (st == ST_OK && dev_is_discrete(c->dev))
        st = peer_copy_device_open(copy);
    if (st == ST_OK)
        return;
    peer_copy_device_close(copy);
    peer_copy_memory_close(&copy->memory);
    LOG_WARN("no copies of the state in peers' memory: %s; a loss costs the steps since the last "
             "checkpoint",
             status_message());
    status_clear();
}

/* exchange_offers — All-gathers the offers of all ranks. */
static enum status exchange_offers(struct peer_copy *copy)
{
    struct peer_copy_offer *own = &copy->offers[copy->place.rank];
    memset(own, 0, sizeof *own);
    if (copy->memory.head)
        peer_copy_memory_offer(&copy->memory, own);
    _Static_assert(sizeof *own % PART_ALIGN == 0, "parts of an all-gather are equal");
    return comm_all_gather(copy->config.comm, peer_copy_bytes_at(copy->offers),
                           peer_copy_bytes_at(own), copy->place.ranks * (int64_t)sizeof *own);
}

enum status peer_copy_open(const struct peer_copy_config *config, struct peer_copy **out)
{
    const struct comm_place *place = comm_place(config->comm);
    struct peer_copy *copy = memory_new(1, sizeof *copy);
    *out = NULL;
    copy->config = *config;
    copy->place = *place;
    bytes_of(config->sizes.slice_elems, copy->slice_bytes);
    copy->keeper = peer_copy_choice_keeper(&config->world, place->rank);
    copy->kept_rank = peer_copy_choice_kept_rank(&config->world, place->rank);
    copy->step = -1;
    const bool is_measured = config->every == 0 && dev_is_discrete(config->dev);
    copy->interval = (struct peer_copy_interval){.every = is_measured         ? 0
                                                          : config->every > 0 ? config->every
                                                                              : 1,
                                                 .step = -1};
    copy->local_ms = NAN;
    atomic_init(&copy->complete_step, -1);
    copy->chosen = memory_new((size_t)config->ranks_max, sizeof *copy->chosen);
    const size_t ranks = (size_t)place->ranks;
    copy->offers = aligned_alloc(_Alignof(struct peer_copy_offer), ranks * sizeof *copy->offers);
    enum status st = copy->offers
                         ? ST_OK
                         : FAIL(ST_RETRY, "out of memory: copies of the state of %zu ranks", ranks);
    if (st == ST_OK) {
        open_memory(copy);
        st = exchange_offers(copy);
    }
    int without = -1; /* the first rank that has no room */
    for (int rank = place->ranks - 1; st == ST_OK && rank >= 0; rank--)
        without = copy->offers[rank].has_room ? without : rank;
    if (st == ST_OK && without < 0) {
        *out = copy;
        return ST_OK;
    }
    if (without >= 0 && place->rank == 0 && without != 0)
        LOG_WARN("no copies of the state in peers' memory: rank %d has no room for them; its log "
                 "has the numbers",
                 without);
    peer_copy_device_close(copy);
    if (without >= 0)
        peer_copy_memory_release(&copy->memory, config->fd);
    peer_copy_close(copy);
    return st;
}

void peer_copy_clear(struct peer_copy *copy)
{
    if (!copy)
        return;
    (void)peer_copy_exchange_finish(copy);
    peer_copy_memory_drop_newer(&copy->memory, -1, -1);
}

void peer_copy_suspect(struct peer_copy *copy, const struct step *step, int64_t steps, bool is_own)
{
    if (!copy)
        return;
    const bool are_others_right =
        step_slice_has_all(step) && !peer_copy_exchange_travels(copy, step);
    if (is_own) {
        (void)peer_copy_exchange_finish(copy);
        peer_copy_memory_drop_newer(&copy->memory, copy->history, steps - 1);
    }
    peer_copy_memory_set_suspect(&copy->memory, copy->history, steps + are_others_right);
}

void peer_copy_close(struct peer_copy *copy)
{
    if (!copy)
        return;
    (void)peer_copy_exchange_finish(copy); /* after a failure, too: then no job uses the memory */
    peer_copy_device_close(copy);
    peer_copy_memory_close(&copy->memory);
    free(copy->offers);
    free(copy->chosen);
    free(copy->chunks);
    free(copy);
}

/* ---- the choice of a state ---- */

/* verify_copies — Lets the keepers check the copies that were chosen. All ranks get the number of
 * damaged ones. */
static enum status verify_copies(struct peer_copy *copy, bool *is_sound_out)
{
    float damaged = 0;
    for (int rank = 0; rank < copy->choice.ranks; rank++) {
        const struct peer_copy_chosen *chosen = &copy->chosen[rank];
        if (chosen->rank != copy->place.rank)
            continue;
        if (peer_copy_memory_is_sound(&copy->memory, chosen->slot))
            continue;
        LOG_WARN("the copy in memory of rank %d's part of step %lld is damaged (checksum); it is "
                 "not used",
                 rank, (long long)copy->choice.step);
        peer_copy_memory_begin(&copy->memory, chosen->slot);
        damaged++;
    }
    peer_copy_beat(copy);
    TRY(comm_all_reduce(copy->config.comm, (struct tensor){&damaged, DTYPE_F32},
                        (struct tensor){&damaged, DTYPE_F32}, 1));
    *is_sound_out = damaged == 0;
    return ST_OK;
}

/* log_missing — On rank 0: logs why there is no state in memory, if there were copies. */
static void log_missing(const struct peer_copy *copy)
{
    const struct peer_copy_choice *choice = &copy->choice;
    bool was_other = false;
    if (copy->place.rank != 0)
        return;
    if (choice->is_any && choice->ranks != copy->place.ranks) {
        LOG_WARN(
            "no state is whole in memory: of step %lld, the parts of %d of %d ranks are lost with "
            "their copies; resuming from the checkpoint, or from the beginning if there is none",
            (long long)choice->step, choice->missing_n, choice->ranks);
        return;
    }
    for (int rank = 0; rank < copy->place.ranks; rank++)
        was_other = was_other || copy->offers[rank].was_other;
    if (choice->is_any)
        LOG_WARN("no state is whole in memory: of step %lld, the parts of %d rank%s are lost with "
                 "their copies, rank %d's with node %d and node %d; resuming from the checkpoint, "
                 "or from the beginning if there is none",
                 (long long)choice->step, choice->missing_n, choice->missing_n == 1 ? "" : "s",
                 choice->missing, choice->missing / copy->place.locals,
                 peer_copy_choice_keeper(&copy->config.world, choice->missing) /
                     copy->place.locals);
    else if (was_other)
        LOG_WARN("the copies in memory have another model, layout or settings; resuming from the "
                 "checkpoint, or from the beginning if there is none");
}

/* log_found — On rank 0: logs the state that was found. */
static void log_found(const struct peer_copy *copy)
{
    const struct peer_copy_choice *choice = &copy->choice;
    int from_peers = 0;
    for (int rank = 0; rank < choice->ranks; rank++)
        from_peers += copy->chosen[rank].rank != rank;
    if (copy->place.rank == 0 && choice->ranks == copy->place.ranks)
        LOG_INFO("resuming from memory: step %lld, %d of %d parts from their copies on other "
                 "nodes; no checkpoint is read",
                 (long long)choice->step, from_peers, choice->ranks);
    else if (copy->place.rank == 0)
        LOG_INFO("resuming from memory: step %lld, the parts of %d ranks go to %d ranks; no "
                 "checkpoint is read",
                 (long long)choice->step, choice->ranks, copy->place.ranks);
}

/* log_suspect — On rank 0: logs why copies that are newer than the chosen ones are not used. */
static void log_suspect(const struct peer_copy *copy)
{
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const struct peer_copy_offer *offer = &copy->offers[rank];
        if (offer->suspect_history != copy->choice.history)
            continue;
        LOG_INFO("copies of step %lld and later are not used: memory of a rank had changed",
                 (long long)offer->suspect_step);
        return;
    }
}

enum status peer_copy_find(struct peer_copy *copy, int64_t saved_step, bool *found_out,
                           struct checkpoint_progress *progress)
{
    *found_out = false;
    /* Later than any rank's history. */
    int64_t last = 0;
    for (int rank = 0; rank < copy->place.ranks; rank++)
        last = copy->offers[rank].history > last ? copy->offers[rank].history : last;
    copy->history = last + 1;
    peer_copy_memory_set_history(&copy->memory, copy->history);
    for (bool is_sound = false; !is_sound;) {
        peer_copy_choice_make(copy->offers, &copy->config.world, copy->config.ranks_max,
                              copy->chosen, &copy->choice);
        if (!copy->choice.is_found)
            break;
        TRY(verify_copies(copy, &is_sound));
        if (!is_sound)
            TRY(exchange_offers(copy));
    }
    const bool is_older = copy->choice.is_found && saved_step - copy->choice.step > OLDER_MAX;
    *found_out = copy->choice.is_found && !is_older;
    if (*found_out) {
        *progress = copy->choice.progress;
        if (copy->place.rank == 0)
            log_suspect(copy);
        log_found(copy);
    } else if (!is_older) {
        log_missing(copy);
    } else if (copy->place.rank == 0) {
        LOG_INFO("the copies in memory of step %lld are not used: the checkpoint of step %lld is "
                 "newer",
                 (long long)copy->choice.step, (long long)saved_step);
    }
    /* newer copies of some ranks must not seem newer than the chosen state */
    peer_copy_memory_drop_newer(&copy->memory, *found_out ? copy->choice.history : -1,
                                copy->choice.step);
    return ST_OK;
}

/* ---- copies ---- */

/* is_apart — Returns true if slices are sent from stage to stage, and not during the backward
 * pass. */
static bool is_apart(const struct peer_copy *copy)
{
    const struct peer_copy_world *world = &copy->config.world;
    return world->mesh.size[MESH_AXIS_PIPELINE] > 1 && !peer_copy_choice_is_within(world);
}

/* log_cost — On rank 0: logs the cost of the third copy, once; the first two touch new memory.
 * step_ms: from the copy's begin to the begin of the next one. */
static void log_cost(struct peer_copy *copy, double step_ms)
{
    char bytes[32], speed[32];
    struct peer_copy_stats stats;
    if (++copy->copies_n != LOGGED_COPY || !copy->config.logs_cost || copy->place.rank != 0)
        return;
    peer_copy_stats(copy, &stats);
    const double all_ms = 1000 * (double)stats.bytes / stats.bytes_per_second;
    LOG_INFO(
        "copies in peers' memory: the state after each step, every part on two nodes; %s of this "
        "rank at %s/s: training waits %.1f ms, and %.1f ms more pass %s a step of %.0f ms%s",
        text_format_bytes(bytes, sizeof bytes, (double)stats.bytes),
        text_format_bytes(speed, sizeof speed, stats.bytes_per_second), stats.ms,
        fmax(all_ms - stats.ms, 0), is_apart(copy) ? "after the passes of" : "during", step_ms,
        all_ms > COSTLY_SHARE * step_ms ? "; if that makes steps too long, set PEER_COPIES=0" : "");
}

/* choose_interval — Chooses the interval from the longest times that any rank has measured, so that
 * it is the same on all of them. */
static enum status choose_interval(struct peer_copy *copy)
{
    char bytes[32], often[48] = "after each step";
    struct peer_copy_interval *interval = &copy->interval;
    const int64_t travel_ns = atomic_load_explicit(&copy->travel_ns, memory_order_relaxed);
    double own[PART_ALIGN] = {interval->least_ms[0], interval->least_ms[1],
                              (double)travel_ns / 1e6};
    const int64_t elems = copy->place.ranks * (int64_t)PART_ALIGN;
    double *all = memory_new((size_t)elems, sizeof *all), most[3] = {0};
    enum status st = comm_all_gather(copy->config.comm, (struct tensor){all, DTYPE_F64},
                                     (struct tensor){own, DTYPE_F64}, elems);
    for (int64_t i = 0; i < elems; i++)
        if (i % PART_ALIGN < 3)
            most[i % PART_ALIGN] = fmax(most[i % PART_ALIGN], all[i]);
    free(all);
    TRY(st);
    const double without_ms = most[0], with_ms = most[1];
    interval->every = peer_copy_interval_of(without_ms, with_ms, most[2]);
    copy->local_ms = fmax(with_ms - without_ms, 0);
    if (interval->every > 1)
        text_format(often, sizeof often, "every %d steps", interval->every);
    if (copy->config.logs_cost && copy->place.rank == 0)
        LOG_INFO("copies in peers' memory: the state %s, every part on two nodes; a copy of %s of "
                 "this rank delays a step of %.1f ms by %.1f ms",
                 often,
                 text_format_bytes(bytes, sizeof bytes,
                                   (double)(copy->slice_bytes[PEER_COPY_OWN] +
                                            copy->slice_bytes[PEER_COPY_KEPT])),
                 without_ms, copy->local_ms);
    return ST_OK;
}

/* begin_copy — Begins a copy. chunks_n: number of chunks in which slices are sent; the same at both
 * ends of each. */
static enum status begin_copy(struct peer_copy *copy, const struct step *step,
                              const struct checkpoint_progress *progress, int chunks_n)
{
    const int64_t wait_ns = clock_ns();
    TRY(peer_copy_exchange_finish(copy));
    const int64_t now_ns = clock_ns();
    peer_copy_interval_skip(&copy->interval, now_ns - wait_ns);
    if (copy->step >= 0 && !copy->stream)
        log_cost(copy, (double)(now_ns - copy->begin_ns) / 1e6);
    copy->begin_ns = now_ns;
    TRY(peer_copy_exchange_begin(copy, step, progress, chunks_n));
    if (!copy->stream)
        copy->local_ms = (double)(clock_ns() - copy->begin_ns) / 1e6;
    copy->step = progress->step;
    peer_copy_beat(copy);
    return ST_OK;
}

/* begin_whole — Begins a copy, and queues all its chunks. The same number of chunks on all stages,
 * whatever units they have. */
static enum status begin_whole(struct peer_copy *copy, const struct step *step,
                               const struct checkpoint_progress *progress)
{
    TRY(begin_copy(copy, step, progress, step_whole_table(step)->units_n));
    for (int i = 0; i < copy->chunks_n; i++)
        TRY(peer_copy_exchange_chunk(copy));
    return ST_OK;
}

enum status peer_copy_unit_done(struct peer_copy *copy, struct step *step,
                                const struct checkpoint_progress *progress, int unit)
{
    const int units_n = step_own_table(step)->units_n;
    const bool has_own_queue = peer_copy_has_own_queue(copy),
               is_whole = has_own_queue || is_apart(copy);
    peer_copy_interval_begin(&copy->interval, progress->step);
    const bool is_due = peer_copy_interval_is_due(&copy->interval, copy->step);
    if (is_whole && is_due && (has_own_queue || unit == 0))
        TRY(begin_whole(copy, step, progress));
    if (!is_whole && is_due && unit == units_n - 1)
        TRY(begin_copy(copy, step, progress, units_n));
    if (!is_whole)
        TRY(peer_copy_exchange_chunk(copy));
    if (unit > 0)
        return ST_OK;
    if (copy->stream)
        TRY(peer_copy_device_wait(copy, step));
    return peer_copy_interval_is_measured(&copy->interval) ? choose_interval(copy) : ST_OK;
}

void peer_copy_stats(const struct peer_copy *copy, struct peer_copy_stats *out)
{
    *out = (struct peer_copy_stats){.step = -1, .ms = NAN, .bytes_per_second = NAN, .every = -1};
    if (!copy)
        return;
    out->step = atomic_load_explicit(&copy->complete_step, memory_order_relaxed);
    out->bytes = copy->slice_bytes[PEER_COPY_OWN] + copy->slice_bytes[PEER_COPY_KEPT];
    out->every = copy->interval.every;
    out->memory_bytes = copy->memory.bytes;
    if (out->step < 0)
        return;
    const double moved_ms =
        (double)atomic_load_explicit(&copy->moved_ns, memory_order_relaxed) / 1e6;
    out->ms = copy->local_ms;
    out->bytes_per_second =
        (double)out->bytes / (((copy->stream ? 0 : copy->local_ms) + moved_ms) / 1000);
}
