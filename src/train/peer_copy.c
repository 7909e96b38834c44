/* peer_copy — see peer_copy.h. Memory is in peer_copy_memory.c, the choice of a state in
 * peer_copy_choice.c, what follows it in peer_copy_restore.c.
 *
 * Where every rank has the whole state, a rank copies the slice that it keeps for another one from
 * its own memory. Else slices travel in jobs of the comm's queue (comm_job_begin), one piece with
 * each unit of the backward pass, between the reductions of gradients. */
#include "train/peer_copy_inside.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/core/part.h"

/* stays free beside the copies */
#define RESERVE_BYTES ((int64_t)256 << 20)

#define LOGGED_COPY 3
#define COSTLY_SHARE 0.1 /* of a step's time */

const char *peer_copy_why(const struct step_config *config, int nodes)
{
    return nodes < 2 ? "there is no other node" : step_slice_why(config);
}

enum status peer_copy_bytes(const struct step_config *config, int ranks, int64_t *out)
{
    int64_t elems;
    TRY(step_slice_elems_of(config, ranks, &elems));
    *out = peer_copy_memory_bytes(elems * (int64_t)sizeof(float));
    return ST_OK;
}

/* ---- open and close ---- */

/* room — what a rank may take for copies; -1: it is not known. */
static int64_t room(const struct peer_copy *copy)
{
    const int64_t free_bytes = memory_free();
    const int64_t each =
        (free_bytes - RESERVE_BYTES) / copy->place.locals - copy->config.reserve_bytes;
    if (free_bytes < 0)
        return -1;
    return each > 0 ? each : 0;
}

/* take_memory — a rank without room says so to the others. */
static void take_memory(struct peer_copy *copy)
{
    const struct peer_copy_config *c = &copy->config;
    const struct peer_copy_memory_config config = {.fd = c->fd,
                                                   .slot_bytes =
                                                       c->slot_elems * (int64_t)sizeof(float),
                                                   .fingerprint = c->fingerprint,
                                                   .free_bytes = room(copy),
                                                   .heartbeat = c->heartbeat,
                                                   .heartbeat_arg = c->heartbeat_arg};
    enum status st = peer_copy_memory_open(&config, &copy->memory);
    if (st == ST_OK)
        return;
    LOG_WARN("no copies of the state in peers' memory: %s; a loss costs the steps since the last "
             "checkpoint",
             status_message());
    status_clear();
}

/* exchange_offers — every rank's, to all. */
static enum status exchange_offers(struct peer_copy *copy)
{
    struct peer_copy_offer *own = &copy->offers[copy->place.rank];
    memset(own, 0, sizeof *own);
    if (copy->memory.head)
        peer_copy_memory_offer(&copy->memory, own);
    peer_copy_resident_offer(copy, &own->resident);
    _Static_assert(sizeof *own % PART_ALIGN == 0, "parts of an all-gather are equal");
    return comm_all_gather(copy->config.comm, peer_copy_bytes_at(copy->offers),
                           peer_copy_bytes_at(own), copy->place.ranks * (int64_t)sizeof *own);
}

static int rank_without_room(const struct peer_copy *copy)
{
    for (int rank = 0; rank < copy->place.ranks; rank++)
        if (!copy->offers[rank].has_room)
            return rank;
    return -1;
}

static enum status take_lists(struct peer_copy *copy)
{
    const size_t ranks = (size_t)copy->place.ranks;
    copy->offers = aligned_alloc(_Alignof(struct peer_copy_offer), ranks * sizeof *copy->offers);
    copy->holders = calloc((size_t)copy->config.ranks_max, sizeof *copy->holders);
    return copy->offers && copy->holders
               ? ST_OK
               : FAIL(ST_RETRY, "out of memory: copies of the state of %zu ranks", ranks);
}

static enum status open_all(struct peer_copy *copy)
{
    TRY(take_lists(copy));
    take_memory(copy);
    return exchange_offers(copy);
}

enum status peer_copy_open(const struct peer_copy_config *config, struct peer_copy **out)
{
    const struct comm_place *place = comm_place(config->comm);
    struct peer_copy *copy = calloc(1, sizeof *copy);
    *out = NULL;
    if (!copy)
        return FAIL(ST_RETRY, "out of memory: copies of the state");
    copy->config = *config;
    copy->place = *place;
    copy->slice_bytes = config->slice_elems * (int64_t)sizeof(float);
    copy->keeper = peer_copy_choice_keeper(place->rank, place->nodes, place->locals);
    copy->source = peer_copy_choice_source(place->rank, place->nodes, place->locals);
    copy->step = -1;
    enum status st = open_all(copy);
    const int without = st == ST_OK ? rank_without_room(copy) : -1;
    if (st == ST_OK && without < 0) {
        *out = copy;
        return ST_OK;
    }
    if (without >= 0 && place->rank == 0 && without != 0)
        LOG_WARN("no copies of the state in peers' memory: rank %d has no room for them; its log "
                 "has the numbers",
                 without);
    if (without >= 0)
        peer_copy_memory_release(&copy->memory, config->fd);
    peer_copy_close(copy);
    return st;
}

/* finish_exchange — waits for the pieces that were begun; returns the first failure. */
static enum status finish_exchange(struct peer_copy *copy)
{
    enum status st = ST_OK;
    for (int i = 0; i < copy->begun_n; i++) {
        enum status one =
            copy->pieces[i].is_begun ? comm_wait(copy->config.comm, copy->pieces[i].ticket) : ST_OK;
        copy->pieces[i].is_begun = false;
        st = st == ST_OK ? one : st;
    }
    copy->begun_n = 0;
    return st;
}

void peer_copy_clear(struct peer_copy *copy)
{
    if (!copy)
        return;
    (void)finish_exchange(copy);
    copy->is_state_bad = true;
    peer_copy_memory_drop_newer(&copy->memory, -1, -1);
}

void peer_copy_suspect(struct peer_copy *copy, int64_t step)
{
    if (copy)
        peer_copy_memory_set_suspect(&copy->memory, copy->history, step);
}

void peer_copy_drop(struct peer_copy *copy, int64_t step)
{
    if (!copy)
        return;
    (void)finish_exchange(copy);
    copy->is_state_bad = true;
    peer_copy_memory_drop_newer(&copy->memory, copy->history, step - 1);
}

void peer_copy_close(struct peer_copy *copy)
{
    if (!copy)
        return;
    (void)finish_exchange(copy); /* after a failure, too: then no job uses the memory */
    peer_copy_memory_close(&copy->memory);
    free(copy->offers);
    free(copy->holders);
    free(copy->pieces);
    free(copy);
}

/* ---- which state ---- */

/* verify — the holders check what they would give; all ranks learn which slices are damaged. */
static enum status verify(struct peer_copy *copy, bool *is_sound_out)
{
    float damaged = 0;
    for (int rank = 0; rank < copy->choice.ranks; rank++) {
        const struct peer_copy_holder *holder = &copy->holders[rank];
        if (holder->rank != copy->place.rank)
            continue;
        if (peer_copy_memory_is_sound(&copy->memory, holder->slot))
            continue;
        LOG_WARN("the copy in memory of rank %d's part of step %lld is damaged (checksum); it is "
                 "not used",
                 rank, (long long)copy->choice.step);
        peer_copy_memory_begin(&copy->memory, holder->slot);
        damaged++;
    }
    peer_copy_beat(copy);
    TRY(comm_all_reduce(copy->config.comm, (struct tensor){&damaged, DTYPE_F32},
                        (struct tensor){&damaged, DTYPE_F32}, 1));
    *is_sound_out = damaged == 0;
    return ST_OK;
}

/* log_missing — on rank 0: why there is no state in memory, if there were copies. */
static void log_missing(const struct peer_copy *copy)
{
    const struct peer_copy_choice *choice = &copy->choice;
    bool was_other = false;
    if (copy->place.rank != 0)
        return;
    if (choice->is_any && choice->ranks != copy->place.ranks) {
        LOG_WARN("no state is whole in memory: of step %lld %d of %d ranks' parts are lost with "
                 "their copies; going on from the checkpoint, or without one from the beginning",
                 (long long)choice->step, choice->missing_n, choice->ranks);
        return;
    }
    for (int rank = 0; rank < copy->place.ranks; rank++)
        was_other = was_other || copy->offers[rank].was_other;
    if (choice->is_any)
        LOG_WARN("no state is whole in memory: of step %lld the parts of %d rank%s are lost with "
                 "their copies, rank %d's with node %d and node %d; going on from the checkpoint, "
                 "or without one from the beginning",
                 (long long)choice->step, choice->missing_n, choice->missing_n == 1 ? "" : "s",
                 choice->missing, choice->missing / copy->place.locals,
                 peer_copy_choice_keeper(choice->missing, copy->place.nodes, copy->place.locals) /
                     copy->place.locals);
    else if (was_other)
        LOG_WARN("the copies in memory are of another model, layout or settings; going on from "
                 "the checkpoint, or without one from the beginning");
}

/* log_found — on rank 0. */
static void log_found(const struct peer_copy *copy)
{
    const struct peer_copy_choice *choice = &copy->choice;
    int from_peers = 0;
    if (choice->residents_n > 0) {
        if (copy->place.rank == 0)
            LOG_INFO("resuming from memory: step %lld, which %d of %d ranks still have; no "
                     "checkpoint is read",
                     (long long)choice->step, choice->residents_n, copy->place.ranks);
        return;
    }
    for (int rank = 0; rank < choice->ranks; rank++)
        from_peers += copy->holders[rank].rank != rank;
    if (copy->place.rank == 0 && choice->ranks == copy->place.ranks)
        LOG_INFO("resuming from memory: step %lld, %d of %d parts from their copies on other "
                 "nodes; no checkpoint is read",
                 (long long)choice->step, from_peers, choice->ranks);
    else if (copy->place.rank == 0)
        LOG_INFO("resuming from memory: step %lld, the parts of %d ranks go to %d; no checkpoint "
                 "is read",
                 (long long)choice->step, choice->ranks, copy->place.ranks);
}

/* log_suspect — on rank 0: why newer copies than the ones that were found are not used. */
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

/* begin_history — later than all that any rank knows. */
static void begin_history(struct peer_copy *copy)
{
    int64_t last = 0;
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const struct peer_copy_offer *offer = &copy->offers[rank];
        last = offer->history > last ? offer->history : last;
        last = offer->resident.history > last ? offer->resident.history : last;
    }
    copy->history = last + 1;
    peer_copy_memory_set_history(&copy->memory, copy->history);
}

/* choose — which state is whole. Copies that are not needed are not verified. */
static enum status choose(struct peer_copy *copy)
{
    struct peer_copy_choice *choice = &copy->choice;
    for (bool is_sound = false; !is_sound;) {
        peer_copy_choice_make(copy->offers, &copy->place, copy->config.ranks_max, copy->holders,
                              choice);
        peer_copy_choice_reside(copy->offers, copy->place.ranks, choice);
        if (!choice->is_found || choice->residents_n > 0)
            return ST_OK;
        TRY(verify(copy, &is_sound));
        if (!is_sound)
            TRY(exchange_offers(copy));
    }
    return ST_OK;
}

enum status peer_copy_find(struct peer_copy *copy, struct dev *dev, bool *found_out,
                           struct checkpoint_progress *progress)
{
    *found_out = false;
    begin_history(copy);
    TRY(choose(copy));
    peer_copy_resident_release(copy, dev);
    *found_out = copy->choice.is_found;
    if (*found_out) {
        *progress = copy->choice.progress;
        if (copy->place.rank == 0)
            log_suspect(copy);
        log_found(copy);
    } else {
        log_missing(copy);
    }
    /* newer copies of some ranks must not seem newer than what all go on from */
    peer_copy_memory_drop_newer(&copy->memory, *found_out ? copy->choice.history : -1,
                                copy->choice.step);
    return ST_OK;
}

/* ---- copies ---- */

/* A slot that is being written. */
struct target {
    struct peer_copy_memory *memory;
    int slot;
};

static void take_run(void *arg, const float *run, int64_t elems)
{
    const struct target *to = arg;
    peer_copy_memory_write(to->memory, to->slot, run, elems * (int64_t)sizeof *run);
}

/* copy_slice — a rank's slice, from this rank's memory. */
static void copy_slice(struct peer_copy *copy, const struct step *step, int rank,
                       const struct checkpoint_progress *progress, int slot,
                       struct peer_copy_label *out)
{
    struct target to = {&copy->memory, slot};
    *out = (struct peer_copy_label){.stamp = {.history = copy->history,
                                              .step = progress->step,
                                              .rank = rank,
                                              .ranks = copy->place.ranks,
                                              .bytes = copy->slice_bytes,
                                              .progress = *progress}};
    peer_copy_memory_write_begin(&copy->memory, slot, &out->stamp);
    step_slice_each(step, rank, take_run, &to);
    peer_copy_memory_write_end(&copy->memory, slot, &out->stamp);
    out->checksum = peer_copy_memory_checksum_of(&copy->memory, slot);
}

/* is_first_sender — one rank of a pair or ring sends first, so that no cycle of ranks waits. */
static bool is_first_sender(const struct peer_copy *copy)
{
    return copy->place.rank < copy->keeper &&
           (copy->source == copy->keeper || copy->place.rank < copy->source);
}

static enum status swap(struct peer_copy *copy, void *mine, void *theirs, int64_t bytes)
{
    const bool sends_first = is_first_sender(copy);
    if (sends_first)
        TRY(comm_send(copy->config.comm, peer_copy_bytes_at(mine), bytes, copy->keeper));
    TRY(comm_recv(copy->config.comm, peer_copy_bytes_at(theirs), bytes, copy->source));
    return sends_first
               ? ST_OK
               : comm_send(copy->config.comm, peer_copy_bytes_at(mine), bytes, copy->keeper);
}

/* move_piece — a job. A copy that arrives damaged stays incomplete: the older one counts. */
static enum status move_piece(void *arg)
{
    const struct peer_copy_piece *piece = arg;
    struct peer_copy *copy = piece->copy;
    const int64_t begin_ns = clock_ns();
    char *mine = peer_copy_memory_data(&copy->memory, copy->own_slot),
         *theirs = peer_copy_memory_data(&copy->memory, copy->kept_slot);
    if (piece->is_first)
        TRY(swap(copy, &copy->own, &copy->kept, sizeof copy->own));
    if (piece->bytes > 0)
        TRY(swap(copy, mine + piece->first, theirs + piece->first, piece->bytes));
    if (piece->is_last &&
        peer_copy_restore_accept(copy, copy->kept_slot, &copy->kept, copy->source) != ST_OK) {
        LOG_WARN("%s; the older one is kept", status_message());
        status_clear();
    }
    atomic_fetch_add_explicit(&copy->moved_ns, clock_ns() - begin_ns, memory_order_relaxed);
    return ST_OK;
}

static enum status take_pieces(struct peer_copy *copy, int n)
{
    if (copy->pieces_n == n)
        return ST_OK;
    free(copy->pieces);
    copy->pieces_n = 0;
    copy->pieces = calloc((size_t)n, sizeof *copy->pieces);
    if (!copy->pieces)
        return FAIL(ST_RETRY, "out of memory: %d pieces of a copy of the state", n);
    copy->pieces_n = n;
    return ST_OK;
}

/* log_cost — once, on rank 0, of the third copy: the first two touch new memory. step_ms: from its
 * begin to that of the next one. */
static void log_cost(struct peer_copy *copy, double step_ms)
{
    char bytes[32], speed[32];
    struct peer_copy_stats stats;
    if (++copy->copies_n != LOGGED_COPY || !copy->config.logs_cost || copy->place.rank != 0)
        return;
    peer_copy_stats(copy, &stats);
    const double all_ms = 1000 * (double)stats.bytes / stats.bytes_per_second;
    LOG_INFO("copies in peers' memory: the state after each step, every part on two nodes; %s of "
             "this rank at %s/s: training waits %.1f ms, %.1f ms more beside a step of %.0f ms%s",
             text_format_bytes(bytes, sizeof bytes, (double)stats.bytes),
             text_format_bytes(speed, sizeof speed, stats.bytes_per_second), stats.ms,
             all_ms - stats.ms, step_ms,
             all_ms > COSTLY_SHARE * step_ms
                 ? "; where that makes steps too long, set PEER_COPIES=0"
                 : "");
}

/* travels — a slice must come from another rank. */
static bool travels(const struct peer_copy *copy, const struct step *step)
{
    return copy->source >= 0 && !step_slice_has_all(step);
}

/* begin_copy — this rank's own slice and, where it can, the one that it keeps. */
static enum status begin_copy(struct peer_copy *copy, const struct step *step,
                              const struct checkpoint_progress *progress, int units_n)
{
    TRY(finish_exchange(copy));
    const int64_t now_ns = clock_ns();
    if (copy->step >= 0)
        log_cost(copy, (double)(now_ns - copy->begin_ns) / 1e6);
    copy->begin_ns = now_ns;
    atomic_store_explicit(&copy->moved_ns, 0, memory_order_relaxed);
    copy->own_slot = peer_copy_memory_oldest(&copy->memory, PEER_COPY_OWN);
    copy->kept_slot = peer_copy_memory_oldest(&copy->memory, PEER_COPY_KEPT);
    copy_slice(copy, step, copy->place.rank, progress, copy->own_slot, &copy->own);
    if (travels(copy, step))
        peer_copy_memory_begin(&copy->memory, copy->kept_slot);
    else if (copy->source >= 0)
        copy_slice(copy, step, copy->source, progress, copy->kept_slot, &copy->kept);
    copy->local_ms = (double)(clock_ns() - copy->begin_ns) / 1e6;
    copy->step = progress->step;
    peer_copy_beat(copy);
    return take_pieces(copy, travels(copy, step) ? units_n : 0);
}

/* begin_piece — the next one: the pieces are as even as multiples of PART_ALIGN bytes allow. */
static enum status begin_piece(struct peer_copy *copy)
{
    const int i = copy->begun_n;
    const struct part_extent extent = part_extent(copy->slice_bytes, copy->pieces_n, i);
    struct peer_copy_piece *piece = &copy->pieces[i];
    *piece = (struct peer_copy_piece){.copy = copy,
                                      .first = extent.first,
                                      .bytes = extent.elems,
                                      .is_first = i == 0,
                                      .is_last = i == copy->pieces_n - 1};
    TRY(comm_job_begin(copy->config.comm, move_piece, piece, &piece->ticket));
    piece->is_begun = true;
    copy->begun_n++;
    return ST_OK;
}

enum status peer_copy_unit_done(struct peer_copy *copy, struct step *step,
                                const struct checkpoint_progress *progress, int unit)
{
    const int units_n = step_own_table(step)->units_n;
    if (unit == units_n - 1 && progress->step != copy->step)
        TRY(begin_copy(copy, step, progress, units_n));
    return copy->begun_n < copy->pieces_n ? begin_piece(copy) : ST_OK;
}

void peer_copy_stats(const struct peer_copy *copy, struct peer_copy_stats *out)
{
    *out = (struct peer_copy_stats){.step = -1, .ms = NAN, .bytes_per_second = NAN};
    if (!copy)
        return;
    out->step = copy->step;
    out->bytes = (copy->source >= 0 ? 2 : 1) * copy->slice_bytes;
    if (copy->step < 0)
        return;
    const double moved_ms =
        (double)atomic_load_explicit(&copy->moved_ns, memory_order_relaxed) / 1e6;
    out->ms = copy->local_ms;
    out->bytes_per_second = (double)out->bytes / ((copy->local_ms + moved_ms) / 1000);
}
