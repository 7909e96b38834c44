/* comm_hall — meetings, waiting, and messages between two. Must not know what is summed.
 *
 * Waiting: look for a moment (where there is a core for each rank), then offer the processor to
 * others between looks, then sleep in a futex on the word that must change. The word's owner writes
 * it and then looks for sleepers; a sleeper counts itself and then looks at the word; all four are
 * sequentially consistent, so one of the two sees the other. Sleeps are short anyway, for the abort
 * flag and the deadline must be looked at. */
#include "comm/comm_hall.h"

#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/must.h"

#define LOOKS 64       /* before the processor is offered to others */
#define SPIN_NS 100000 /* until it sleeps: where there is a core for each */
#define YIELD_NS 50000 /* and where not */
#define SLEEP_MS 10
#define MOVE_NS 2000000 /* between two moves away from a crowded core */

int64_t comm_hall_bytes(int n)
{
    return (int64_t)sizeof(struct comm_hall_seat) * n +
           (int64_t)sizeof(struct comm_hall_mail) * n * n + (int64_t)COMM_HALL_STAGE * 2 * n;
}

void comm_hall_init(struct comm_hall *hall, void *memory, int n, int rank)
{
    ASSERTF(n >= 1 && n <= COMM_HALL_RANKS_MAX && rank >= 0 && rank < n, "rank %d of %d", rank, n);
    struct comm_hall_seat *seats = memory;
    struct comm_hall_mail *mails = (struct comm_hall_mail *)(void *)(seats + n);
    *hall = (struct comm_hall){.seats = seats,
                               .mails = mails,
                               .stages = (char *)(mails + n * n),
                               .limit = UINTPTR_MAX,
                               .n = n,
                               .rank = rank};
}

uint64_t comm_hall_where(const struct comm_hall *hall, const void *data, int64_t bytes)
{
    uintptr_t at = (uintptr_t)data;
    if (bytes == 0)
        return 1;
    if (data == NULL || at <= hall->base || at >= hall->limit || (uint64_t)bytes > hall->limit - at)
        return 0;
    return at - hall->base;
}

static bool reached(_Atomic uint32_t *word, uint32_t target, memory_order order)
{
    return (int32_t)(atomic_load_explicit(word, order) - target) >= 0;
}

static void raise_to(_Atomic uint32_t *word, uint32_t value, _Atomic uint32_t *sleepers)
{
    atomic_store_explicit(word, value, memory_order_seq_cst);
    if (atomic_load_explicit(sleepers, memory_order_seq_cst) != 0)
        comm_ops_unpark(word);
}

const struct comm_hall_card *comm_hall_card(const struct comm_hall *hall, int r)
{
    return &hall->seats[r].card[hall->phase & 1];
}
char *comm_hall_slot(const struct comm_hall *hall, int r)
{
    return hall->seats[r].slot[hall->phase & 1];
}
char *comm_hall_stage(const struct comm_hall *hall, int r, int64_t round)
{
    return hall->stages + (2 * r + (round & 1)) * (int64_t)COMM_HALL_STAGE;
}

int comm_hall_entered(const struct comm_hall *hall, const struct comm_call *call, int r)
{
    if (call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV)
        return 0; /* else this rank would not wait */
    if (call->kind == COMM_CALL_OPEN || call->kind == COMM_CALL_SUB)
        return atomic_load_explicit(&hall->seats[r].tag, memory_order_acquire) == hall->tag;
    return reached(&hall->seats[r].arrived, hall->entry, memory_order_acquire);
}

/* Somebody gave up. If that was because the calls differ this rank says so too; else who is
 * missing. */
static enum status fail_like(struct comm_hall *hall, struct comm_wire *wire, int r)
{
    const struct comm_call *call = wire->call;
    bool is_pair = call->kind == COMM_CALL_SEND || call->kind == COMM_CALL_RECV;
    for (int other = 0; other < hall->n && !is_pair && hall->phase == hall->entry; other++)
        if (other != hall->rank && comm_hall_entered(hall, call, other))
            TRY(comm_ops_agree(wire, other, &comm_hall_card(hall, other)->header));
    return comm_ops_give_up(wire, r);
}

static enum status check(struct comm_hall *hall, struct comm_wire *wire)
{
    for (int r = 0; r < hall->n; r++)
        if (atomic_load_explicit(&hall->seats[r].failed, memory_order_acquire) != 0)
            return fail_like(hall, wire, r);
    return comm_ops_check(wire);
}

static void sleep_on(_Atomic uint32_t *word, uint32_t target, _Atomic uint32_t *sleepers)
{
    atomic_fetch_add_explicit(sleepers, 1, memory_order_seq_cst);
    uint32_t seen = atomic_load_explicit(word, memory_order_seq_cst);
    if ((int32_t)(seen - target) < 0)
        comm_ops_park(word, seen, SLEEP_MS);
    atomic_fetch_sub_explicit(sleepers, 1, memory_order_seq_cst);
}

/* The system may keep two ranks that wait for each other on one core while another is free, for
 * neither ever waits long. The greater of the two leaves: without its core for a moment it is
 * moved, and then may go anywhere again. */
static void leave_core(struct comm_hall *hall)
{
    int cpu = sched_getcpu();
    int64_t now = clock_ns();
    cpu_set_t all, others;
    if (hall->rank < hall->awaited || now - hall->moved_ns < MOVE_NS || cpu < 0 ||
        cpu >= CPU_SETSIZE ||
        atomic_load_explicit(&hall->seats[hall->awaited].cpu, memory_order_relaxed) != cpu ||
        sched_getaffinity(0, sizeof(all), &all) != 0)
        return;
    hall->moved_ns = now;
    others = all;
    CPU_CLR(cpu, &others);
    if (CPU_COUNT(&others) > 0 && sched_setaffinity(0, sizeof(others), &others) == 0)
        sched_setaffinity(0, sizeof(all), &all);
}

/* Giving up the processor costs little where nobody else wants it, and much is won where the
 * awaited rank does: two that spin on one core would each wait for the other's whole turn. */
static enum status wait_long(struct comm_hall *hall, struct comm_wire *wire, _Atomic uint32_t *word,
                             uint32_t target, _Atomic uint32_t *sleepers)
{
    int64_t end = clock_ns() + (wire->spins ? SPIN_NS : YIELD_NS);
    if (wire->spins)
        leave_core(hall);
    for (bool is_over = false; !reached(word, target, memory_order_acquire);
         is_over = is_over || clock_ns() >= end) {
        TRY(check(hall, wire));
        if (is_over)
            sleep_on(word, target, sleepers);
        else
            sched_yield();
    }
    return ST_OK;
}

static enum status wait_for(struct comm_hall *hall, struct comm_wire *wire, _Atomic uint32_t *word,
                            uint32_t target, _Atomic uint32_t *sleepers)
{
    for (int i = 0; i < (wire->spins ? LOOKS : 1); i++) {
        if (reached(word, target, memory_order_acquire))
            return ST_OK;
        comm_ops_pause();
    }
    return wait_long(hall, wire, word, target, sleepers);
}

/* A word has one writer in a life: each makes new those that it will write. */
enum status comm_hall_join(struct comm_hall *hall, struct comm_wire *wire, uint64_t tag)
{
    struct comm_hall_seat *mine = &hall->seats[hall->rank];
    hall->tag = tag;
    atomic_store_explicit(&mine->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->sleepers, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->reads, 0, memory_order_relaxed);
    atomic_store_explicit(&mine->failed, 0, memory_order_relaxed);
    for (int r = 0; r < hall->n; r++) {
        struct comm_hall_mail *out = &hall->mails[hall->rank * hall->n + r],
                              *in = &hall->mails[r * hall->n + hall->rank];
        atomic_store_explicit(&out->posted, 0, memory_order_relaxed);
        atomic_store_explicit(&out->posted_sleepers, 0, memory_order_relaxed);
        atomic_store_explicit(&in->taken, 0, memory_order_relaxed);
        atomic_store_explicit(&in->taken_sleepers, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&mine->tag, tag, memory_order_release);
    for (int r = 0; r < hall->n; r++)
        while (atomic_load_explicit(&hall->seats[r].tag, memory_order_acquire) != tag) {
            TRY(comm_ops_check(wire));
            clock_sleep_ms(1);
        }
    return ST_OK;
}

static enum status arrive(struct comm_hall *hall, struct comm_wire *wire, bool compares)
{
    struct comm_hall_seat *mine = &hall->seats[hall->rank];
    if (wire->spins)
        atomic_store_explicit(&mine->cpu, sched_getcpu(), memory_order_relaxed);
    raise_to(&mine->arrived, hall->phase, &mine->sleepers);
    for (int i = 1; i < hall->n; i++) {
        int r = (hall->rank + i) % hall->n; /* not all on the same seat */
        struct comm_hall_seat *seat = &hall->seats[r];
        hall->awaited = r;
        TRY(wait_for(hall, wire, &seat->arrived, hall->phase, &seat->sleepers));
        if (compares)
            TRY(comm_ops_agree(wire, r, &comm_hall_card(hall, r)->header));
    }
    return ST_OK;
}

enum status comm_hall_enter(struct comm_hall *hall, struct comm_wire *wire, const void *in,
                            int64_t in_bytes, void *out, int64_t out_bytes, int64_t slot_bytes)
{
    hall->entry = ++hall->phase;
    hall->seats[hall->rank].card[hall->phase & 1] =
        (struct comm_hall_card){.header = comm_ops_header(wire->call),
                                .in = comm_hall_where(hall, in, in_bytes),
                                .out = comm_hall_where(hall, out, out_bytes)};
    if (slot_bytes > 0)
        memcpy(comm_hall_slot(hall, hall->rank), in, (size_t)slot_bytes);
    return arrive(hall, wire, true);
}

enum status comm_hall_meet(struct comm_hall *hall, struct comm_wire *wire)
{
    hall->phase++;
    return arrive(hall, wire, false);
}

enum status comm_hall_read_begin(struct comm_hall *hall, struct comm_wire *wire)
{
    atomic_store_explicit(&hall->seats[hall->rank].reads, 1, memory_order_seq_cst);
    for (int r = 0; r < hall->n; r++)
        if (atomic_load_explicit(&hall->seats[r].failed, memory_order_seq_cst) != 0) {
            comm_hall_read_end(hall);
            return fail_like(hall, wire, r);
        }
    return ST_OK;
}

void comm_hall_read_end(struct comm_hall *hall)
{
    atomic_store_explicit(&hall->seats[hall->rank].reads, 0, memory_order_release);
}

enum status comm_hall_fail(struct comm_hall *hall, enum status st)
{
    atomic_store_explicit(&hall->seats[hall->rank].failed, 1, memory_order_seq_cst);
    atomic_store_explicit(&hall->seats[hall->rank].reads, 0, memory_order_release);
    /* A reader never waits; one whose process was killed never ends, and does not read either. */
    for (int64_t end = clock_ns() + 2000000000, r = 0; r < hall->n && clock_ns() < end;) {
        if (atomic_load_explicit(&hall->seats[r].reads, memory_order_seq_cst) == 0)
            r++;
        else
            clock_sleep_ms(1);
    }
    return st;
}

static struct comm_hall_mail *mail_of(const struct comm_hall *hall, int from, int to)
{
    return &hall->mails[from * hall->n + to];
}

/* Pieces go through the mail, two under way; a large message that the other sees goes by its
 * address. */
enum status comm_hall_send(struct comm_hall *hall, struct comm_wire *wire,
                           const struct comm_call *call)
{
    struct comm_hall_mail *mail = mail_of(hall, hall->rank, call->peer);
    hall->awaited = call->peer;
    int64_t bytes = comm_ops_bytes(call), at = 0;
    uint64_t where = bytes > COMM_HALL_MAIL ? comm_hall_where(hall, call->in, bytes) : 0;
    do {
        uint32_t posted = atomic_load_explicit(&mail->posted, memory_order_relaxed) + 1;
        TRY(wait_for(hall, wire, &mail->taken, posted - 2, &mail->taken_sleepers));
        int64_t piece = bytes - at < COMM_HALL_MAIL ? bytes - at : COMM_HALL_MAIL;
        mail->card[posted & 1] =
            (struct comm_hall_card){.header = comm_ops_header(call), .in = where};
        if (where == 0 && piece > 0)
            memcpy(mail->piece[posted & 1], (const char *)call->in + at, (size_t)piece);
        raise_to(&mail->posted, posted, &mail->posted_sleepers);
        if (where != 0)
            return wait_for(hall, wire, &mail->taken, posted, &mail->taken_sleepers);
        at += piece;
    } while (at < bytes);
    return ST_OK;
}

enum status comm_hall_recv(struct comm_hall *hall, struct comm_wire *wire,
                           const struct comm_call *call)
{
    struct comm_hall_mail *mail = mail_of(hall, call->peer, hall->rank);
    hall->awaited = call->peer;
    int64_t bytes = comm_ops_bytes(call), at = 0;
    do {
        uint32_t taken = atomic_load_explicit(&mail->taken, memory_order_relaxed) + 1;
        TRY(wait_for(hall, wire, &mail->posted, taken, &mail->posted_sleepers));
        const struct comm_hall_card *card = &mail->card[taken & 1];
        TRY(comm_ops_agree(wire, call->peer, &card->header));
        int64_t piece = bytes - at < COMM_HALL_MAIL ? bytes - at : COMM_HALL_MAIL;
        if (card->in != 0) {
            TRY(comm_hall_read_begin(hall, wire));
            memcpy(call->out, comm_hall_at(hall, card->in), (size_t)bytes);
            comm_hall_read_end(hall);
            piece = bytes;
        } else if (piece > 0) {
            memcpy((char *)call->out + at, mail->piece[taken & 1], (size_t)piece);
        }
        raise_to(&mail->taken, taken, &mail->taken_sleepers);
        at += piece;
    } while (at < bytes);
    return ST_OK;
}
