/* board — see board.h. Must not know the use of the numbers.
 *
 * A section is two slots and a revision. The writer fills the slot that does not hold the last
 * publication, then advances the revision. Each slot has a sequence number that is odd while it is
 * written: a seqlock. A reader copies the slot of the revision and keeps the copy if the number was
 * even and did not change (Lamport 1977; Boehm 2012 on doing it in C11). A writer killed at any
 * instruction leaves the other slot whole and the revision on it. The words are atomics with
 * acquire and release, which are plain moves on x86, so there is no data race by the letter of C11
 * and thread sanitizers agree. */
#include "base/board.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "base/assert.h"

#define BOARD_MAGIC \
    0x36647261 /* "ard6": raise the digit if the layout changes without a change of its size */
#define BOARD_NAME "convoy-board" /* name of the memfd */
#define BOARD_COPY_TRIES 100000
#define BOARD_WORDS(type) ((sizeof(type) + 7) / 8)
#define BOARD_WORDS_MAX                                                \
    (BOARD_WORDS(struct board_worker) > BOARD_WORDS(struct board_node) \
         ? BOARD_WORDS(struct board_worker)                            \
         : BOARD_WORDS(struct board_node))
#define BOARD_WORLD_TRIES 1000 /* tries of one board_world_copy; the caller tries again soon */

_Static_assert(BOARD_WORDS(struct board_ready) <= BOARD_WORDS_MAX &&
                   sizeof(struct board_address) % 8 == 0,
               "a publication fits a section, addresses are whole words");

_Static_assert(ATOMIC_LLONG_LOCK_FREE == 2,
               "an atomic with a hidden lock would hang readers of a killed writer");

struct board_slot {
    _Alignas(64) _Atomic uint64_t sequence; /* odd: being written */
    _Atomic uint64_t words[BOARD_WORDS_MAX];
};

struct board_section {
    /* publications so far; the last one is in slot revision % 2; 0: none */
    _Alignas(64) _Atomic uint64_t revision;
    _Atomic int64_t heartbeat_ms;
    struct board_slot slots[2];
};

struct board_sections {
    struct board_section worker, ready, call, gpu, flip;
    /* what `rehearse` orders: a bit to invert, a generation whose collectives fail */
    _Atomic uint64_t flip_choice;
    _Atomic int64_t broken;
    struct log_tail tail;
};

/* The world has one slot: if the supervisor is killed while it writes, the readers cannot go on.
 * The world lies after the workers. */
struct board_world {
    _Alignas(64) _Atomic uint64_t sequence; /* odd: being written */
    _Atomic int64_t generation;
    _Atomic int32_t nodes, node, ranks_n;
    /* the secret of a generation, and the number of that generation; 0 while it is being written */
    _Atomic int64_t secret_generation;
    _Atomic uint64_t secret[BOARD_SECRET_BYTES / 8];
    _Atomic uint64_t words[];
};

/* One slot for each blob, after the world; its pages are not allocated before the first write. */
struct board_blob_slot {
    _Alignas(64) _Atomic uint64_t sequence; /* odd: being written; 0: nothing was published */
    _Atomic uint64_t bytes;
    _Atomic uint64_t words[];
};

struct board_memory {
    uint32_t magic;
    int32_t workers_n;
    int32_t ranks_n;
    uint64_t bytes;
    _Alignas(64) atomic_int request;
    _Atomic int64_t aborted;
    struct board_section node;
    struct board_sections workers[];
};

struct board {
    int fd;
    bool owns_fd;
    /* values at the start: the mapping may be overwritten later */
    int workers_n, ranks_n;
    size_t bytes;
    struct board_memory *memory;
};

const char *board_phase_text(enum board_phase phase)
{
    static const char *const texts[BOARD_PHASE_N] = {
#define BOARD_PHASE_ROW(name, text) text,
        BOARD_PHASE_LIST(BOARD_PHASE_ROW)
#undef BOARD_PHASE_ROW
    };
    return texts[(unsigned)phase < BOARD_PHASE_N ? phase : BOARD_PHASE_FAILED];
}

enum board_phase board_phase_named(const char *text)
{
    int phase = 0;
    while (phase < BOARD_PHASE_N && strcmp(text, board_phase_text((enum board_phase)phase)) != 0)
        phase++;
    return (enum board_phase)phase;
}

static size_t world_offset(int workers_n)
{
    return sizeof(struct board_memory) + (size_t)workers_n * sizeof(struct board_sections);
}

static size_t blobs_offset(int workers_n, int ranks_n)
{
    size_t end = world_offset(workers_n) + sizeof(struct board_world) +
                 (size_t)ranks_n * sizeof(struct board_address);
    return (end + 63) / 64 * 64;
}

/* blob_max — grows with the ranks for CHECK: a small board fits a small RLIMIT_FSIZE. */
static size_t blob_max(enum board_blob blob, int ranks_n)
{
    size_t check = (size_t)ranks_n << 14;
    check = check < (size_t)1 << 19 ? (size_t)1 << 19 : check;
    check = check > (size_t)1 << 24 ? (size_t)1 << 24 : check;
    switch (blob) {
    case BOARD_BLOB_CHECK:
        return check;
    case BOARD_BLOB_MODEL:
    case BOARD_BLOB_ADAPTER:
    case BOARD_BLOB_TOKENIZER:
    case BOARD_BLOB_SOURCES:
        return BOARD_BLOB_SMALL_MAX;
    default:
        return BOARD_BLOB_MAX;
    }
}

/* blob_offset — returns the offset of a blob from the first one. */
static size_t blob_offset(enum board_blob blob, int ranks_n)
{
    size_t offset = 0;
    for (int i = 0; i < (int)blob; i++)
        offset += sizeof(struct board_blob_slot) + blob_max((enum board_blob)i, ranks_n);
    return offset;
}

static size_t memory_bytes(int workers_n, int ranks_n)
{
    return blobs_offset(workers_n, ranks_n) + blob_offset(BOARD_BLOBS_N, ranks_n);
}

static enum status map_memory(int fd, bool owns_fd, size_t bytes, struct board **out)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return FAIL(memory_status((int64_t)bytes),
                    "cannot map the board, %zu bytes: %s; free some memory", bytes,
                    strerror(errno));
    struct board *board = memory_new(1, sizeof(*board));
    *board = (struct board){.fd = fd, .owns_fd = owns_fd, .bytes = bytes, .memory = memory};
    *out = board;
    return ST_OK;
}

enum status board_create(int workers_n, int ranks_n, struct board **out)
{
    ASSERTF(workers_n >= 1 && workers_n <= BOARD_WORKERS_MAX, "workers %d", workers_n);
    ASSERTF(ranks_n >= workers_n && ranks_n <= BOARD_RANKS_MAX, "ranks %d", ranks_n);
    size_t bytes = memory_bytes(workers_n, ranks_n);
    int fd = memfd_create(BOARD_NAME, MFD_ALLOW_SEALING); /* no CLOEXEC: workers inherit it */
    if (fd < 0)
        return FAIL(errno == EMFILE ? ST_BAD_SETTING
                                    : ST_RETRY, /* the limit of this process does not change */
                    "cannot create the board's shared memory: %s; raise the limit of open files "
                    "(ulimit -n)",
                    strerror(errno));
    enum status st;
    /* Sealed: if a worker shrank it, the supervisor's next read would be a bus error. */
    if (ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        st = FAIL(
            errno == EFBIG ? ST_STORE : memory_status((int64_t)bytes),
            "cannot size the board's shared memory to %zu bytes: %s; %s", bytes, strerror(errno),
            errno == EFBIG ? "raise the limit of a file's size (ulimit -f)" : "free some memory");
    else
        st = map_memory(fd, true, bytes, out);
    if (st != ST_OK) {
        close(fd);
        return st;
    }
    (*out)->workers_n = workers_n;
    (*out)->ranks_n = ranks_n;
    (*out)->memory->workers_n = workers_n;
    (*out)->memory->ranks_n = ranks_n;
    (*out)->memory->bytes = bytes;
    (*out)->memory->magic = BOARD_MAGIC;
    return ST_OK;
}

enum status board_attach(int fd, struct board **out)
{
    struct stat info;
    if (fstat(fd, &info) != 0)
        return FAIL(
            ST_BUG,
            "descriptor %d is not the board: %s; workers are started by `convoy train` only", fd,
            strerror(errno));
    if (!S_ISREG(info.st_mode) || (size_t)info.st_size < memory_bytes(1, 1) ||
        (size_t)info.st_size > memory_bytes(BOARD_WORKERS_MAX, BOARD_RANKS_MAX))
        return FAIL(
            ST_BUG,
            "descriptor %d has %lld bytes, not a board; workers are started by `convoy train` only",
            fd, (long long)info.st_size);
    struct board *board;
    TRY(map_memory(fd, false, (size_t)info.st_size, &board));
    const struct board_memory *memory = board->memory;
    enum status st = ST_OK;
    if (memory->magic != BOARD_MAGIC || memory->bytes != (uint64_t)info.st_size ||
        memory->workers_n < 1 || memory->workers_n > BOARD_WORKERS_MAX || memory->ranks_n < 1 ||
        memory->ranks_n > BOARD_RANKS_MAX ||
        memory_bytes(memory->workers_n, memory->ranks_n) != (size_t)info.st_size)
        st = FAIL(
            ST_BUG,
            "the board is of another build (magic %08x, %lld bytes); use one executable for all",
            memory->magic, (long long)info.st_size);
    if (st != ST_OK) {
        board_close(board);
        return st;
    }
    board->workers_n = memory->workers_n;
    board->ranks_n = memory->ranks_n;
    *out = board;
    return ST_OK;
}

struct board *board_of_process(pid_t pid, int node_id)
{
    char folder[64], target[64];
    struct board_node node;
    struct board *board = NULL;
    text_format(folder, sizeof folder, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(folder);
    for (struct dirent *entry; board == NULL && dir != NULL && (entry = readdir(dir)) != NULL;) {
        ssize_t n = readlinkat(dirfd(dir), entry->d_name, target, sizeof target - 1);
        target[n > 0 ? n : 0] = 0;
        int fd = text_starts(target, "/memfd:" BOARD_NAME)
                     ? openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC)
                     : -1;
        if (fd < 0)
            continue;
        if (board_attach(fd, &board) != ST_OK) {
            close(fd);
            continue;
        }
        board->owns_fd = true;
        board_node_copy(board, &node);
        if (node.n_nodes > 0 && node.node_id == node_id)
            break;
        board_close(board); /* nothing is published, or the process has not called exec yet */
        board = NULL;
    }
    if (dir != NULL)
        closedir(dir);
    status_clear();
    return board;
}

int board_fd(const struct board *board) { return board->fd; }

void board_close(struct board *board)
{
    if (board == NULL)
        return;
    munmap(board->memory, board->bytes);
    if (board->owns_fd)
        close(board->fd);
    free(board);
}

static void words_write(_Atomic uint64_t *words, const void *value, size_t bytes)
{
    const char *at = value;
    for (size_t i = 0; i * 8 < bytes; i++) {
        uint64_t word = 0;
        memcpy(&word, at + i * 8, bytes - i * 8 < 8 ? bytes - i * 8 : 8);
        /* must not be written before the odd number */
        atomic_store_explicit(&words[i], word, memory_order_release);
    }
}

static void words_read(const _Atomic uint64_t *words, void *out, size_t bytes)
{
    char *at = out;
    for (size_t i = 0; i * 8 < bytes; i++) {
        /* acquire: must not be read after the caller's read of the sequence */
        uint64_t word = atomic_load_explicit(&words[i], memory_order_acquire);
        memcpy(at + i * 8, &word, bytes - i * 8 < 8 ? bytes - i * 8 : 8);
    }
}

static void section_publish(struct board_section *section, const void *value, size_t bytes)
{
    uint64_t revision = atomic_load_explicit(&section->revision, memory_order_relaxed) + 1;
    struct board_slot *slot = &section->slots[revision % 2];
    /* Already odd if an earlier writer was killed here. Any new odd number means the same to
     * readers. */
    uint64_t odd = (atomic_load_explicit(&slot->sequence, memory_order_relaxed) + 2) | 1;
    atomic_store_explicit(&slot->sequence, odd, memory_order_relaxed);
    words_write(slot->words, value, bytes);
    atomic_store_explicit(&slot->sequence, odd + 1, memory_order_release);
    atomic_store_explicit(&section->revision, revision, memory_order_release);
}

/* Returns false if nothing was published. Loops only while publications overtake the copy, two
 * within a microsecond; the limit is for memory that a crashing process has overwritten. */
static bool section_copy(const struct board_section *section, void *out, size_t bytes)
{
    for (int tries = 0; tries < BOARD_COPY_TRIES; tries++) {
        uint64_t revision = atomic_load_explicit(&section->revision, memory_order_acquire);
        if (revision == 0)
            return false;
        const struct board_slot *slot = &section->slots[revision % 2];
        uint64_t before = atomic_load_explicit(&slot->sequence, memory_order_acquire);
        if (before % 2 != 0)
            continue;
        words_read(slot->words, out, bytes);
        if (atomic_load_explicit(&slot->sequence, memory_order_relaxed) == before)
            return true;
    }
    return false;
}

static struct board_sections *worker_sections(const struct board *board, int worker_i)
{
    ASSERTF(worker_i >= 0 && worker_i < board->workers_n, "worker %d of %d", worker_i,
            board->workers_n);
    return &board->memory->workers[worker_i];
}

static enum board_phase valid_phase(enum board_phase phase)
{
    return (unsigned)phase < BOARD_PHASE_N ? phase : BOARD_PHASE_FAILED;
}

/* A reader survives any data that a crashing process has written over the memory: strings end,
 * phases exist. */
#define BOARD_END(string) ((string)[sizeof(string) - 1] = 0)

void board_node_publish(struct board *board, const struct board_node *node)
{
    ASSERTF(node->workers_n <= board->workers_n && (unsigned)node->phase < BOARD_PHASE_N,
            "%d workers, phase %d", node->workers_n, (int)node->phase);
    section_publish(&board->memory->node, node, sizeof(*node));
}

void board_node_copy(const struct board *board, struct board_node *out)
{
    if (!section_copy(&board->memory->node, out, sizeof(*out)))
        *out = (struct board_node){.n_nodes = 1,
                                   .mesh_data = 1,
                                   .mesh_shard = 1,
                                   .mesh_tensor = 1,
                                   .mesh_context = 1,
                                   .mesh_pipeline = 1};
    out->phase = valid_phase(out->phase);
    if (out->workers_n < 0 || out->workers_n > board->workers_n)
        out->workers_n = board->workers_n;
    BOARD_END(out->version);
    BOARD_END(out->backend);
    BOARD_END(out->device);
    BOARD_END(out->reached);
    BOARD_END(out->last_failure);
    BOARD_END(out->upload.bucket);
    BOARD_END(out->upload.error);
    BOARD_END(out->error.message);
}

void board_worker_publish(struct board *board, int worker_i, const struct board_worker *worker)
{
    ASSERTF((unsigned)worker->phase < BOARD_PHASE_N, "phase %d", (int)worker->phase);
    section_publish(&worker_sections(board, worker_i)->worker, worker, sizeof(*worker));
}

bool board_worker_copy(const struct board *board, int worker_i, struct board_worker *out)
{
    if (!section_copy(&worker_sections(board, worker_i)->worker, out, sizeof(*out)))
        return false;
    out->phase = valid_phase(out->phase);
    BOARD_END(out->device);
    BOARD_END(out->backend);
    BOARD_END(out->model.name);
    BOARD_END(out->model.task);
    BOARD_END(out->checkpoint.path);
    BOARD_END(out->checkpoint.error);
    BOARD_END(out->error.message);
    return true;
}

void board_worker_clear(struct board *board, int worker_i)
{
    struct board_sections *sections = worker_sections(board, worker_i);
    atomic_store_explicit(&sections->worker.revision, 0, memory_order_release);
    atomic_store_explicit(&sections->ready.revision, 0, memory_order_release);
    atomic_store_explicit(&sections->call.revision, 0, memory_order_release);
    atomic_store_explicit(&sections->gpu.revision, 0, memory_order_release);
    atomic_store_explicit(&sections->flip.revision, 0, memory_order_release);
    atomic_store_explicit(&sections->flip_choice, 0, memory_order_release);
    atomic_store_explicit(&sections->worker.heartbeat_ms, 0, memory_order_release);
}

void board_heartbeat(struct board *board, int worker_i)
{
    atomic_store_explicit(&worker_sections(board, worker_i)->worker.heartbeat_ms, clock_ms(),
                          memory_order_relaxed);
}

int64_t board_heartbeat_ms(const struct board *board, int worker_i)
{
    return atomic_load_explicit(&worker_sections(board, worker_i)->worker.heartbeat_ms,
                                memory_order_relaxed);
}

/* ---- how ranks connect ---- */

void board_ready_publish(struct board *board, int worker_i, const struct board_ready *ready)
{
    ASSERTF(ready->address.bytes >= 0 && ready->address.bytes <= BOARD_ADDRESS_MAX,
            "address of %lld bytes", (long long)ready->address.bytes);
    section_publish(&worker_sections(board, worker_i)->ready, ready, sizeof(*ready));
}

/* clamp_bytes — bounds the size: an overwritten size must not send a reader out of bounds. */
static void clamp_bytes(struct board_address *address)
{
    if (address->bytes < 0 || address->bytes > BOARD_ADDRESS_MAX)
        address->bytes = 0;
}

bool board_ready_copy(const struct board *board, int worker_i, struct board_ready *out)
{
    if (!section_copy(&worker_sections(board, worker_i)->ready, out, sizeof(*out)))
        return false;
    BOARD_END(out->why);
    clamp_bytes(&out->address);
    return true;
}

void board_call_publish(struct board *board, int worker_i, const struct board_call *call)
{
    section_publish(&worker_sections(board, worker_i)->call, call, sizeof(*call));
}

bool board_call_copy(const struct board *board, int worker_i, struct board_call *out)
{
    if (!section_copy(&worker_sections(board, worker_i)->call, out, sizeof(*out)))
        return false;
    BOARD_END(out->call);
    return true;
}

void board_gpu_publish(struct board *board, int worker_i, const struct board_gpu *gpu)
{
    section_publish(&worker_sections(board, worker_i)->gpu, gpu, sizeof(*gpu));
}

bool board_gpu_copy(const struct board *board, int worker_i, struct board_gpu *out)
{
    return section_copy(&worker_sections(board, worker_i)->gpu, out, sizeof(*out));
}

static struct board_world *world_of(const struct board *board)
{
    return (struct board_world *)(void *)((char *)board->memory + world_offset(board->workers_n));
}

int board_ranks(const struct board *board) { return board->ranks_n; }

void board_world_publish(struct board *board, const struct board_world_place *place,
                         const struct board_address *addresses, int ranks_n)
{
    ASSERTF(ranks_n > 0 && ranks_n <= board->ranks_n, "%d of %d ranks", ranks_n, board->ranks_n);
    ASSERTF(place->generation > 0 && place->node >= 0 && place->node < place->nodes,
            "generation %lld, node %d of %d", (long long)place->generation, place->node,
            place->nodes);
    struct board_world *world = world_of(board);
    uint64_t odd = (atomic_load_explicit(&world->sequence, memory_order_relaxed) + 2) | 1;
    atomic_store_explicit(&world->sequence, odd, memory_order_relaxed);
    atomic_store_explicit(&world->generation, place->generation, memory_order_release);
    atomic_store_explicit(&world->nodes, place->nodes, memory_order_relaxed);
    atomic_store_explicit(&world->node, place->node, memory_order_relaxed);
    atomic_store_explicit(&world->ranks_n, ranks_n, memory_order_relaxed);
    words_write(world->words, addresses, (size_t)ranks_n * sizeof(*addresses));
    atomic_store_explicit(&world->sequence, odd + 1, memory_order_release);
}

void board_secret_publish(struct board *board, int64_t generation,
                          const uint8_t secret[BOARD_SECRET_BYTES])
{
    struct board_world *world = world_of(board);
    uint64_t words[BOARD_SECRET_BYTES / 8];
    memcpy(words, secret, sizeof(words));
    atomic_store(&world->secret_generation, 0);
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        atomic_store(&world->secret[i], words[i]);
    atomic_store(&world->secret_generation, generation);
    explicit_bzero(words, sizeof(words));
}

bool board_secret_copy(const struct board *board, int64_t generation,
                       uint8_t out[BOARD_SECRET_BYTES])
{
    struct board_world *world = world_of(board);
    uint64_t words[BOARD_SECRET_BYTES / 8];
    bool is_it = atomic_load(&world->secret_generation) == generation;
    for (size_t i = 0; i < sizeof(words) / sizeof(*words); i++)
        words[i] = atomic_load(&world->secret[i]);
    is_it = is_it && atomic_load(&world->secret_generation) == generation;
    if (is_it)
        memcpy(out, words, sizeof(words));
    explicit_bzero(words, sizeof(words));
    return is_it;
}

bool board_world_copy(const struct board *board, int64_t after, struct board_world_place *out,
                      struct board_address *addresses)
{
    const struct board_world *world = world_of(board);
    for (int tries = 0; tries < BOARD_WORLD_TRIES; tries++) {
        uint64_t before = atomic_load_explicit(&world->sequence, memory_order_acquire);
        int64_t generation = atomic_load_explicit(&world->generation, memory_order_acquire);
        if (before == 0 ||
            (before % 2 == 0 && (generation <= after || generation <= board_aborted(board))))
            return false;
        if (before % 2 != 0)
            continue;
        const int32_t ranks_n = atomic_load_explicit(&world->ranks_n, memory_order_relaxed);
        *out = (struct board_world_place){generation,
                                          atomic_load_explicit(&world->nodes, memory_order_relaxed),
                                          atomic_load_explicit(&world->node, memory_order_relaxed)};
        if (ranks_n < 0 || ranks_n > board->ranks_n)
            continue;
        words_read(world->words, addresses, (size_t)ranks_n * sizeof(*addresses));
        if (atomic_load_explicit(&world->sequence, memory_order_relaxed) != before)
            continue;
        for (int rank = 0; rank < ranks_n; rank++)
            clamp_bytes(&addresses[rank]);
        return true;
    }
    return false;
}

void board_abort(struct board *board, int64_t generation)
{
    if (generation > board_aborted(board))
        atomic_store_explicit(&board->memory->aborted, generation, memory_order_release);
}

int64_t board_aborted(const struct board *board)
{
    return atomic_load_explicit(&board->memory->aborted, memory_order_acquire);
}

void board_flip_order(struct board *board, int worker_i, uint64_t choice)
{
    atomic_store_explicit(&worker_sections(board, worker_i)->flip_choice, choice,
                          memory_order_release);
}

uint64_t board_flip_ordered(const struct board *board, int worker_i)
{
    return atomic_load_explicit(&worker_sections(board, worker_i)->flip_choice,
                                memory_order_acquire);
}

void board_flip_done(struct board *board, int worker_i, const struct board_flip *flip)
{
    section_publish(&worker_sections(board, worker_i)->flip, flip, sizeof(*flip));
    board_flip_order(board, worker_i, 0);
}

bool board_flip_copy(const struct board *board, int worker_i, struct board_flip *out)
{
    return section_copy(&worker_sections(board, worker_i)->flip, out, sizeof(*out));
}

void board_break(struct board *board, int worker_i, int64_t generation)
{
    atomic_store_explicit(&worker_sections(board, worker_i)->broken, generation,
                          memory_order_release);
}

int64_t board_broken(const struct board *board, int worker_i)
{
    return atomic_load_explicit(&worker_sections(board, worker_i)->broken, memory_order_acquire);
}

struct log_tail *board_log_tail(const struct board *board, int worker_i)
{
    ASSERTF(worker_i >= 0 && worker_i < board->workers_n, "worker %d", worker_i);
    return &board->memory->workers[worker_i].tail;
}

static struct board_blob_slot *blob_of(const struct board *board, enum board_blob blob)
{
    ASSERTF((unsigned)blob < BOARD_BLOBS_N, "blob %d", (int)blob);
    char *first = (char *)board->memory + blobs_offset(board->workers_n, board->ranks_n);
    return (struct board_blob_slot *)(void *)(first + blob_offset(blob, board->ranks_n));
}

size_t board_blob_max(const struct board *board, enum board_blob blob)
{
    return blob_max(blob, board->ranks_n);
}

void board_blob_publish(struct board *board, enum board_blob blob, const void *bytes, size_t n)
{
    struct board_blob_slot *to = blob_of(board, blob);
    ASSERTF(n <= board_blob_max(board, blob), "a blob of %zu bytes", n);
    uint64_t odd = (atomic_load_explicit(&to->sequence, memory_order_relaxed) + 2) | 1;
    atomic_store_explicit(&to->sequence, odd, memory_order_relaxed);
    atomic_store_explicit(&to->bytes, n, memory_order_release);
    words_write(to->words, bytes, n);
    atomic_store_explicit(&to->sequence, odd + 1, memory_order_release);
}

uint64_t board_blob_revision(const struct board *board, enum board_blob blob)
{
    return atomic_load_explicit(&blob_of(board, blob)->sequence, memory_order_acquire);
}

bool board_blob_copy(const struct board *board, enum board_blob blob, void *out, size_t *n_out)
{
    const struct board_blob_slot *from = blob_of(board, blob);
    uint64_t before = atomic_load_explicit(&from->sequence, memory_order_acquire);
    uint64_t n = atomic_load_explicit(&from->bytes, memory_order_acquire);
    if (before == 0 || before % 2 != 0 || n > board_blob_max(board, blob))
        return false;
    words_read(from->words, out, (size_t)n);
    *n_out = (size_t)n;
    return atomic_load_explicit(&from->sequence, memory_order_relaxed) == before;
}

void board_request(struct board *board, enum board_request request)
{
    ASSERTF(request > BOARD_REQUEST_NONE && request <= BOARD_REQUEST_INTERRUPT, "request %d",
            (int)request);
    int now = atomic_load_explicit(&board->memory->request, memory_order_relaxed);
    while (now < (int)request &&
           !atomic_compare_exchange_weak_explicit(&board->memory->request, &now, (int)request,
                                                  memory_order_acq_rel, memory_order_relaxed))
        continue;
}

enum board_request board_requested(const struct board *board)
{
    return (enum board_request)atomic_load_explicit(&board->memory->request, memory_order_acquire);
}

void board_request_done(struct board *board, enum board_request request)
{
    int expected = (int)request;
    atomic_compare_exchange_strong_explicit(&board->memory->request, &expected, BOARD_REQUEST_NONE,
                                            memory_order_acq_rel, memory_order_relaxed);
}
