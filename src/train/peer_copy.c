/* peer_copy — see peer_copy.h. Memory is in peer_copy_memory.c, the choice of a state in
 * peer_copy_choice.c.
 *
 * Where every rank has the whole state, a rank copies the slice that it keeps for another one from
 * its own memory. Else slices travel in jobs of the comm's queue (comm_job_begin), one piece with
 * each unit of the backward pass, between the reductions of gradients. */
#include "train/peer_copy.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "comm/core/part.h"
#include "train/peer_copy_memory.h"

/* stays free beside the copies */
#define RESERVE_BYTES ((int64_t)256 << 20)
#define MESSAGE_BYTES ((int64_t)4 << 20) /* of a restore */

#define LOGGED_COPY 3
#define COSTLY_SHARE 0.1 /* of a step's time */

/* What travels before a slice: all that its slot says, but whether it is complete. */
struct label {
    struct peer_copy_stamp stamp;
    uint64_t checksum;
};

/* A job: the piece of a slice that travels with one unit. */
struct piece {
    struct peer_copy *copy;
    int64_t first, bytes;
    bool is_first, is_last;
    struct comm_ticket ticket;
    bool is_begun; /* the ticket must be waited for */
};

struct peer_copy {
    struct peer_copy_config config;
    struct comm_place place;
    int keeper, source; /* the ranks that keep this one's slice, and whose slice this one keeps */
    struct peer_copy_memory memory;
    struct peer_copy_offer *offers; /* of all ranks */
    struct peer_copy_holder *holders;
    struct peer_copy_choice choice;
    int64_t history; /* of copies that are made now */
    int64_t step;    /* being copied, or copied; -1: none */
    /* the exchange of that step */
    int own_slot, kept_slot;
    struct label own, kept;
    struct piece *pieces;
    int pieces_n, begun_n;
    int64_t begin_ns;
    double local_ms;          /* the copies in this rank's memory took */
    _Atomic int64_t moved_ns; /* the exchange took */
    int copies_n;             /* that are done */
};

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

static void beat(const struct peer_copy *copy)
{
    if (copy->config.heartbeat)
        copy->config.heartbeat(copy->config.heartbeat_arg);
}

static struct tensor bytes_at(void *data) { return (struct tensor){data, DTYPE_U8}; }

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
                                                   .slice_bytes =
                                                       c->slice_elems * (int64_t)sizeof(float),
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
    _Static_assert(sizeof *own % PART_ALIGN == 0, "parts of an all-gather are equal");
    return comm_all_gather(copy->config.comm, bytes_at(copy->offers), bytes_at(own),
                           copy->place.ranks * (int64_t)sizeof *own);
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
    copy->holders = calloc(ranks, sizeof *copy->holders);
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
    peer_copy_memory_drop_newer(&copy->memory, -1, -1);
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
    for (int rank = 0; rank < copy->place.ranks; rank++) {
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
    beat(copy);
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
    int from_peers = 0;
    for (int rank = 0; rank < copy->place.ranks; rank++)
        from_peers += copy->holders[rank].rank != rank;
    if (copy->place.rank == 0)
        LOG_INFO("resuming from memory: step %lld, %d of %d parts from their copies on other "
                 "nodes; no checkpoint is read",
                 (long long)copy->choice.step, from_peers, copy->place.ranks);
}

/* begin_history — later than all that any rank knows. */
static void begin_history(struct peer_copy *copy)
{
    int64_t last = 0;
    for (int rank = 0; rank < copy->place.ranks; rank++)
        last = copy->offers[rank].history > last ? copy->offers[rank].history : last;
    copy->history = last + 1;
    peer_copy_memory_set_history(&copy->memory, copy->history);
}

enum status peer_copy_find(struct peer_copy *copy, bool *found_out,
                           struct checkpoint_progress *progress)
{
    bool is_sound = false;
    *found_out = false;
    begin_history(copy);
    while (!is_sound) {
        peer_copy_choice_make(copy->offers, &copy->place, copy->holders, &copy->choice);
        if (!copy->choice.is_found)
            break;
        TRY(verify(copy, &is_sound));
        if (!is_sound)
            TRY(exchange_offers(copy));
    }
    *found_out = copy->choice.is_found;
    if (*found_out) {
        *progress = copy->choice.progress;
        log_found(copy);
    } else {
        log_missing(copy);
    }
    /* newer copies of some ranks must not seem newer than what all go on from */
    peer_copy_memory_drop_newer(&copy->memory, *found_out ? copy->choice.history : -1,
                                copy->choice.step);
    return ST_OK;
}

/* ---- restore ---- */

/* send_slice, receive_slice — from one slot to another, of two ranks. */
static enum status send_slice(struct peer_copy *copy, int slot, int to)
{
    struct peer_copy_offer offer;
    peer_copy_memory_offer(&copy->memory, &offer);
    struct label label = {offer.slot[slot], peer_copy_memory_checksum_of(&copy->memory, slot)};
    char *data = peer_copy_memory_data(&copy->memory, slot);
    TRY(comm_send(copy->config.comm, bytes_at(&label), sizeof label, to));
    for (int64_t at = 0, n; at < copy->memory.slice_bytes; at += n) {
        n = copy->memory.slice_bytes - at;
        n = n < MESSAGE_BYTES ? n : MESSAGE_BYTES;
        TRY(comm_send(copy->config.comm, bytes_at(data + at), n, to));
        beat(copy);
    }
    return ST_OK;
}

/* accept — commits a slot that was received, if it is what was sent. */
static enum status accept(struct peer_copy *copy, int slot, const struct label *label, int rank)
{
    if (label->stamp.rank != rank ||
        peer_copy_memory_checksum(&copy->memory, slot, &label->stamp) != label->checksum)
        return FAIL(ST_PEER, "the copy of rank %d's part of step %lld arrived damaged", rank,
                    (long long)label->stamp.step);
    peer_copy_memory_commit(&copy->memory, slot, &label->stamp, label->checksum);
    return ST_OK;
}

/* receive_slice — of a rank, into the oldest slot of a holding. */
static enum status receive_slice(struct peer_copy *copy, int holding, int rank, int from,
                                 int *slot_out)
{
    struct label label;
    const int slot = peer_copy_memory_oldest(&copy->memory, holding);
    char *data = peer_copy_memory_data(&copy->memory, slot);
    peer_copy_memory_begin(&copy->memory, slot);
    TRY(comm_recv(copy->config.comm, bytes_at(&label), sizeof label, from));
    for (int64_t at = 0, n; at < copy->memory.slice_bytes; at += n) {
        n = copy->memory.slice_bytes - at;
        n = n < MESSAGE_BYTES ? n : MESSAGE_BYTES;
        TRY(comm_recv(copy->config.comm, bytes_at(data + at), n, from));
        beat(copy);
    }
    *slot_out = slot;
    return accept(copy, slot, &label, rank);
}

/* deliver — every rank that lacks its slice gets it from its holder. slot_out: this rank's. */
static enum status deliver(struct peer_copy *copy, int *slot_out)
{
    *slot_out = copy->holders[copy->place.rank].slot;
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const struct peer_copy_holder *holder = &copy->holders[rank];
        if (holder->rank == rank)
            continue;
        if (holder->rank == copy->place.rank)
            TRY(send_slice(copy, holder->slot, rank));
        if (rank == copy->place.rank)
            TRY(receive_slice(copy, PEER_COPY_OWN, rank, holder->rank, slot_out));
    }
    return ST_OK;
}

/* replicate — every keeper that lacks a slice gets it. From here on the state is on two nodes
 * again, and a second loss is as the first. own_slot: of this rank's slice. */
static enum status replicate(struct peer_copy *copy, int own_slot)
{
    for (int rank = 0; rank < copy->place.ranks; rank++) {
        const int keeper = peer_copy_choice_keeper(rank, copy->place.nodes, copy->place.locals);
        int slot = peer_copy_choice_slot(&copy->offers[keeper], PEER_COPY_KEPT, rank,
                                         copy->choice.history, copy->choice.step);
        if (slot >= 0)
            continue;
        if (rank == copy->place.rank)
            TRY(send_slice(copy, own_slot, keeper));
        if (keeper == copy->place.rank)
            TRY(receive_slice(copy, PEER_COPY_KEPT, rank, rank, &slot));
    }
    return ST_OK;
}

enum status peer_copy_restore(struct peer_copy *copy, struct step *step)
{
    int slot;
    const int64_t begin_ms = clock_ms();
    ASSERT(copy->choice.is_found);
    ASSERTF(step_slice_elems(step) == copy->config.slice_elems, "elems %lld, planned %lld",
            (long long)step_slice_elems(step), (long long)copy->config.slice_elems);
    TRY(deliver(copy, &slot));
    TRY(replicate(copy, slot));
    TRY(step_slice_set(step, peer_copy_memory_data(&copy->memory, slot)));
    if (copy->place.rank == 0)
        LOG_INFO("state of step %lld restored from memory in %.2f s", (long long)copy->choice.step,
                 (double)(clock_ms() - begin_ms) / 1000);
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
                       const struct checkpoint_progress *progress, int slot, struct label *out)
{
    struct target to = {&copy->memory, slot};
    *out = (struct label){
        .stamp = {
            .history = copy->history, .step = progress->step, .rank = rank, .progress = *progress}};
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
        TRY(comm_send(copy->config.comm, bytes_at(mine), bytes, copy->keeper));
    TRY(comm_recv(copy->config.comm, bytes_at(theirs), bytes, copy->source));
    return sends_first ? ST_OK : comm_send(copy->config.comm, bytes_at(mine), bytes, copy->keeper);
}

/* move_piece — a job. A copy that arrives damaged stays incomplete: the older one counts. */
static enum status move_piece(void *arg)
{
    const struct piece *piece = arg;
    struct peer_copy *copy = piece->copy;
    const int64_t begin_ns = clock_ns();
    char *mine = peer_copy_memory_data(&copy->memory, copy->own_slot),
         *theirs = peer_copy_memory_data(&copy->memory, copy->kept_slot);
    if (piece->is_first)
        TRY(swap(copy, &copy->own, &copy->kept, sizeof copy->own));
    if (piece->bytes > 0)
        TRY(swap(copy, mine + piece->first, theirs + piece->first, piece->bytes));
    if (piece->is_last && accept(copy, copy->kept_slot, &copy->kept, copy->source) != ST_OK) {
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
    if (step_slice_has_all(step))
        copy_slice(copy, step, copy->source, progress, copy->kept_slot, &copy->kept);
    else
        peer_copy_memory_begin(&copy->memory, copy->kept_slot);
    copy->local_ms = (double)(clock_ns() - copy->begin_ns) / 1e6;
    copy->step = progress->step;
    beat(copy);
    return take_pieces(copy, step_slice_has_all(step) ? 0 : units_n);
}

/* begin_piece — the next one: the pieces are as even as multiples of PART_ALIGN bytes allow. */
static enum status begin_piece(struct peer_copy *copy)
{
    const int i = copy->begun_n;
    const struct part_extent extent = part_extent(copy->memory.slice_bytes, copy->pieces_n, i);
    struct piece *piece = &copy->pieces[i];
    *piece = (struct piece){.copy = copy,
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
    out->bytes = 2 * copy->memory.slice_bytes;
    if (copy->step < 0)
        return;
    const double moved_ms =
        (double)atomic_load_explicit(&copy->moved_ns, memory_order_relaxed) / 1e6;
    out->ms = copy->local_ms;
    out->bytes_per_second = (double)out->bytes / ((copy->local_ms + moved_ms) / 1000);
}
