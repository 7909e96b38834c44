/* peer_copy_memory — see peer_copy/inside.h. */
#include "train/peer_copy/inside.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/text.h"
#include "dev/cpu/isa.h"

#define MAGIC UINT64_C(0x34796f43766e6f43)
#define PAGE ((int64_t)4096)
#define ALLOCATE_BYTES ((int64_t)256 << 20) /* between two heartbeats */
#define CHUNK_BYTES ((int64_t)128 << 10)    /* stays in a second-level cache */

struct slot {
    _Atomic int32_t is_complete;
    uint64_t checksum;
    struct peer_copy_stamp stamp;
};
struct peer_copy_head {
    uint64_t magic, fingerprint;
    int64_t slot_bytes[PEER_COPY_KINDS], history;
    int64_t suspect_history, suspect_step; /* peer_copy_offer */
    struct slot slot[PEER_COPY_SLOTS];
};
#define HEAD_BYTES (((int64_t)sizeof(struct peer_copy_head) + PAGE - 1) / PAGE * PAGE)

/* Returns the size of a slot in whole pages. */
static int64_t slot_stride(int64_t slot_bytes) { return (slot_bytes + PAGE - 1) / PAGE * PAGE; }

int64_t peer_copy_memory_bytes(const int64_t slot_bytes[PEER_COPY_KINDS])
{
    int64_t bytes = HEAD_BYTES;
    for (int kind = 0; kind < PEER_COPY_KINDS; kind++)
        bytes += PEER_COPY_BUFFERS * slot_stride(slot_bytes[kind]);
    return bytes;
}

/* ---- open and close ---- */

static enum status map_memory(int fd, struct peer_copy_memory *m)
{
    void *at = mmap(NULL, (size_t)m->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return FAIL(ST_RETRY, "cannot map %lld bytes for copies of the state: %s",
                    (long long)m->bytes, strerror(errno));
    m->head = at;
    m->sum = XXH3_createState();
    if (m->sum)
        return ST_OK;
    peer_copy_memory_close(m);
    return FAIL(ST_RETRY, "out of memory: the checksum of copies of the state");
}

static void give_back(int fd)
{
    if (ftruncate(fd, 0) != 0)
        errno = 0; /* there is nothing to free */
}

/* allocate_pages — Allocates the pages of all slots, so that no write can fail later. */
static enum status allocate_pages(const struct peer_copy_memory_config *c, int64_t bytes)
{
    if (ftruncate(c->fd, bytes) != 0)
        return FAIL(ST_RETRY, "%s", strerror(errno));
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < ALLOCATE_BYTES ? bytes - at : ALLOCATE_BYTES;
        if (fallocate(c->fd, 0, at, n) != 0)
            return FAIL(ST_RETRY, "%s", strerror(errno));
        if (c->heartbeat)
            c->heartbeat(c->heartbeat_arg);
    }
    return ST_OK;
}

/* allocate_memory — Allocates the memory. had_bytes: its size before, which is freed first. */
static enum status allocate_memory(const struct peer_copy_memory_config *c, int64_t bytes,
                                   int64_t had_bytes)
{
    char need[32], have[32];
    text_format_bytes(need, sizeof need, (double)bytes);
    text_format_bytes(have, sizeof have, (double)(c->free_bytes + had_bytes));
    give_back(c->fd);
    if (c->free_bytes >= 0 && bytes > c->free_bytes + had_bytes)
        return FAIL(ST_RETRY, "copies of the state need %s, but %s are left for them", need, have);
    if (allocate_pages(c, bytes) == ST_OK)
        return ST_OK;
    struct status_saved saved;
    status_save(&saved);
    give_back(c->fd);
    return FAIL(ST_RETRY, "cannot allocate %s for copies of the state: %s", need, saved.message);
}

enum status peer_copy_memory_open(const struct peer_copy_memory_config *config,
                                  struct peer_copy_memory *out)
{
    struct peer_copy_memory m = {.bytes = peer_copy_memory_bytes(config->slot_bytes)};
    struct stat info;
    memcpy(m.slot_bytes, config->slot_bytes, sizeof m.slot_bytes);
    const int64_t had_bytes = fstat(config->fd, &info) == 0 ? (int64_t)info.st_size : 0;
    if (had_bytes == m.bytes) {
        TRY(map_memory(config->fd, &m));
        if (m.head->magic == MAGIC && m.head->fingerprint == config->fingerprint &&
            memcmp(m.head->slot_bytes, m.slot_bytes, sizeof m.slot_bytes) == 0) {
            *out = m;
            return ST_OK;
        }
        peer_copy_memory_close(&m);
    }
    m.was_other = had_bytes > 0;
    TRY(allocate_memory(config, m.bytes, had_bytes));
    TRY(map_memory(config->fd, &m));
    memcpy(m.head->slot_bytes, m.slot_bytes, sizeof m.slot_bytes);
    m.head->fingerprint = config->fingerprint;
    m.head->magic = MAGIC;
    *out = m;
    return ST_OK;
}

void peer_copy_memory_close(struct peer_copy_memory *m)
{
    if (m->head)
        munmap(m->head, (size_t)m->bytes);
    XXH3_freeState(m->sum);
    m->head = NULL;
    m->sum = NULL;
}

void peer_copy_memory_release(struct peer_copy_memory *m, int fd)
{
    peer_copy_memory_close(m);
    give_back(fd);
}

/* ---- slots ---- */

void peer_copy_memory_offer(const struct peer_copy_memory *m, struct peer_copy_offer *out)
{
    memset(out, 0, sizeof *out);
    for (int i = 0; i < PEER_COPY_SLOTS; i++) {
        const struct slot *slot = &m->head->slot[i];
        out->slot[i] = slot->stamp;
        out->slot[i].is_complete =
            atomic_load_explicit(&slot->is_complete, memory_order_acquire) == 1;
    }
    out->history = m->head->history;
    out->suspect_history = m->head->suspect_history;
    out->suspect_step = m->head->suspect_step;
    out->has_room = true;
    out->was_other = m->was_other;
}

void peer_copy_memory_set_history(struct peer_copy_memory *m, int64_t history)
{
    m->head->history = history;
}

void peer_copy_memory_set_suspect(struct peer_copy_memory *m, int64_t history, int64_t step)
{
    m->head->suspect_step = step;
    m->head->suspect_history = history;
}

static bool is_complete(const struct peer_copy_memory *m, int slot)
{
    return atomic_load_explicit(&m->head->slot[slot].is_complete, memory_order_acquire) == 1;
}

static bool is_older(const struct peer_copy_stamp *a, const struct peer_copy_stamp *b)
{
    return a->history != b->history ? a->history < b->history : a->step < b->step;
}

int peer_copy_memory_oldest(const struct peer_copy_memory *m, int kind)
{
    const int first = kind * PEER_COPY_BUFFERS, second = first + 1;
    if (!is_complete(m, first) || !is_complete(m, second))
        return is_complete(m, first) ? second : first;
    return is_older(&m->head->slot[first].stamp, &m->head->slot[second].stamp) ? first : second;
}

void *peer_copy_memory_data(const struct peer_copy_memory *m, int slot)
{
    char *at = (char *)m->head + HEAD_BYTES;
    for (int before = 0; before < slot; before++)
        at += slot_stride(peer_copy_memory_room(m, before));
    return at;
}

int64_t peer_copy_memory_room(const struct peer_copy_memory *m, int slot)
{
    return m->slot_bytes[slot / PEER_COPY_BUFFERS];
}

void peer_copy_memory_begin(struct peer_copy_memory *m, int slot)
{
    atomic_store_explicit(&m->head->slot[slot].is_complete, 0, memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst); /* before any byte of the slot changes */
}

/* seed_of — Returns the seed of a checksum, which covers the slot's description. */
static uint64_t seed_of(const struct peer_copy_stamp *stamp)
{
    const struct checkpoint_progress *p = &stamp->progress;
    const struct spike_history *spikes = &p->spikes.history;
    /* it may come from another rank */
    const bool is_history = spikes->n >= 0 && spikes->n <= SPIKE_WINDOW;
    const int64_t said[] = {
        stamp->history,      stamp->step,    stamp->rank,    p->step,
        p->samples,          p->tokens,      p->scale.steps, (int64_t)p->scale.factor,
        p->spikes.skipped_n, spikes->n,      p->run.step,    p->run.steps,
        p->run.sample,       p->run.samples, p->run.outcome, p->schedule.samples,
        p->schedule.ahead,   p->trained,     p->run.trained, (int64_t)p->frozen};
    return XXH3_64bits_withSeed(spikes->level,
                                is_history ? (size_t)spikes->n * sizeof *spikes->level : 0,
                                XXH3_64bits(said, sizeof said));
}

uint64_t peer_copy_memory_checksum(const void *slice, const struct peer_copy_stamp *stamp)
{
    return XXH3_64bits_withSeed(slice, (size_t)stamp->bytes, seed_of(stamp));
}

void peer_copy_memory_commit(struct peer_copy_memory *m, int slot,
                             const struct peer_copy_stamp *stamp, uint64_t checksum)
{
    struct slot *to = &m->head->slot[slot];
    ASSERT(!is_complete(m, slot) && stamp->bytes <= peer_copy_memory_room(m, slot));
    to->stamp = *stamp;
    to->checksum = checksum;
    atomic_store_explicit(&to->is_complete, 1, memory_order_release);
}

void peer_copy_memory_write_begin(struct peer_copy_memory *m, int slot,
                                  const struct peer_copy_stamp *stamp)
{
    peer_copy_memory_begin(m, slot);
    m->written_bytes = 0;
    XXH3_64bits_reset_withSeed(m->sum, seed_of(stamp));
}

/* The checksum reads a chunk into the cache; the copy then reads it there, and writes past the
 * cache. */
void peer_copy_memory_write(struct peer_copy_memory *m, int slot, const void *from, int64_t bytes)
{
    char *to = (char *)peer_copy_memory_data(m, slot) + m->written_bytes;
    ASSERTF(m->written_bytes + bytes <= peer_copy_memory_room(m, slot),
            "%lld and %lld of %lld bytes", (long long)m->written_bytes, (long long)bytes,
            (long long)peer_copy_memory_room(m, slot));
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES;
        XXH3_64bits_update(m->sum, (const char *)from + at, (size_t)n);
        dev_cpu_isa_copy(to + at, (const char *)from + at, (size_t)n);
    }
    m->written_bytes += bytes;
}

void peer_copy_memory_write_end(struct peer_copy_memory *m, int slot,
                                const struct peer_copy_stamp *stamp)
{
    ASSERTF(m->written_bytes == stamp->bytes, "%lld of %lld bytes", (long long)m->written_bytes,
            (long long)stamp->bytes);
    peer_copy_memory_commit(m, slot, stamp, XXH3_64bits_digest(m->sum));
}

void peer_copy_memory_sum_begin(struct peer_copy_memory *m, const struct peer_copy_stamp *stamp)
{
    XXH3_64bits_reset_withSeed(m->sum, seed_of(stamp));
}

void peer_copy_memory_sum_add(struct peer_copy_memory *m, const void *from, int64_t bytes)
{
    XXH3_64bits_update(m->sum, from, (size_t)bytes);
}

uint64_t peer_copy_memory_sum_end(const struct peer_copy_memory *m)
{
    return XXH3_64bits_digest(m->sum);
}

uint64_t peer_copy_memory_checksum_of(const struct peer_copy_memory *m, int slot)
{
    return m->head->slot[slot].checksum;
}

bool peer_copy_memory_is_sound(const struct peer_copy_memory *m, int slot)
{
    const struct slot *at = &m->head->slot[slot];
    return is_complete(m, slot) && at->stamp.bytes >= 0 &&
           at->stamp.bytes <= peer_copy_memory_room(m, slot) &&
           peer_copy_memory_checksum(peer_copy_memory_data(m, slot), &at->stamp) == at->checksum;
}

void peer_copy_memory_drop_newer(struct peer_copy_memory *m, int64_t history, int64_t step)
{
    const struct peer_copy_stamp limit = {.history = history, .step = step};
    for (int i = 0; i < PEER_COPY_SLOTS; i++)
        if (is_older(&limit, &m->head->slot[i].stamp))
            peer_copy_memory_begin(m, i);
}
