/* fake_nccl — a libnccl.so.2 for tests: the functions of src/comm/nccl/lib.h over ordinary
 * memory, with NCCL's rules for communicators that do not block. Ranks are threads of one process.
 *
 * It answers as slowly as NCCL may:
 *   - a call reaches its stream only after the communicator's state was queried a few times, even
 *     if the call itself returned success;
 *   - a communicator refuses further calls meanwhile;
 *   - a call is executed in its stream's turn, and when all ranks have come to theirs; the calls of
 *     a group begin together.
 * It is strict: counts, types, buffers outside of the device, two streams for one communicator, a
 * call after ncclCommFinalize, ncclCommDestroy before that is done: all count as misuse.
 * Two threads in one communicator at a time are misuse.
 * ncclCommAbort waits for the streams of its communicator, as the real one waits for the device.
 * Sums are added in a binary tree over the ranks. FAKE_VERSION and FAKE_LACKS make libraries that
 * are too old or lack a function; FAKE_RUNTIME makes a librccl.so.1 with an AMD runtime inside. */
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "fake_nccl.h"
#include "fake_nccl_sum.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
#endif

#ifdef FAKE_RUNTIME
int hipGetDevice(int *device);
int hipGetDevice(int *device)
{
    *device = 0;
    return 0;
}
#endif

enum { SUCCESS, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, IN_PROGRESS = 7 };
enum { POLLS = 3, RANKS = 16, OPS = 64 };
enum kind { ALL_REDUCE, REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST, SEND, RECV };

typedef struct {
    char bytes[128];
} ncclUniqueId;

struct op {
    enum kind kind;
    const char *in;
    char *out;
    size_t n;
    int type, peer;
    struct fake_stream *stream;
    int is_done;
};

/* The calls of a group, or one call: one operation on the stream. */
struct launch {
    struct ncclComm *comm;
    struct launch *next; /* of the communicator, in order */
    int is_begun;        /* its turn has come */
    int ops_n;
    struct op op[];
};

struct world;
typedef struct ncclComm {
    struct world *world;
    int rank, polls, is_busy, result;
    int is_aborted, is_finalized; /* is_finalized: asked for */
    int registered_n;
    int has_called, is_connected; /* knobs.is_lazy */
    struct op pending[OPS];       /* not on a stream yet */
    int pending_n;
    struct launch *first;       /* on a stream */
    struct fake_stream *stream; /* of the first call, and of all others */
    struct ncclComm *next_grouped;
    int64_t ready_ns; /* when the call reaches its stream (knobs.slow_us) */
    atomic_int users; /* threads inside */
} * ncclComm_t;

struct world {
    struct world *next;
    char id[128];
    int n, joined, left, finalized[RANKS];
    ncclComm_t comm[RANKS];
};

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking, cga, min_ctas, max_ctas;
} ncclConfig_t;

static struct fake_nccl knobs = {.fail_after = -1};
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct world *worlds;
static _Thread_local int group_depth;
static _Thread_local ncclComm_t grouped;

struct fake_nccl *fake_nccl_knobs(void) { return &knobs; }

#define API __attribute__((visibility("default")))
API int ncclGetVersion(int *version);
API const char *ncclGetErrorString(int result);
API const char *ncclGetLastError(ncclComm_t comm);
API int ncclGetUniqueId(ncclUniqueId *id);
API int ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                               ncclConfig_t *config);
API int ncclCommAbort(ncclComm_t comm);
API int ncclCommFinalize(ncclComm_t comm);
API int ncclCommDestroy(ncclComm_t comm);
API int ncclMemAlloc(void **out, size_t bytes);
API int ncclMemFree(void *data);
API int ncclCommRegister(ncclComm_t comm, void *data, size_t bytes, void **handle);
API int ncclCommDeregister(ncclComm_t comm, void *handle);
API int ncclCommGetAsyncError(ncclComm_t comm, int *result);
API int ncclGroupStart(void);
API int ncclGroupEnd(void);
API int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm,
                      void *stream);
API int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, ncclComm_t comm,
                   void *stream);
API int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm,
                          void *stream);
API int ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm_t comm, void *stream);
API int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, ncclComm_t comm,
                      void *stream);
API int ncclSend(const void *data, size_t n, int type, int peer, ncclComm_t comm, void *stream);
API int ncclRecv(void *data, size_t n, int type, int peer, ncclComm_t comm, void *stream);

static int misused(void)
{
    atomic_fetch_add(&knobs.misused_n, 1);
    return INVALID_USAGE;
}

/* ALONE — until the end of the block no other thread may call a function of the communicator. */
static void step_out(ncclComm_t *comm) { atomic_fetch_sub(&(*comm)->users, 1); }
static ncclComm_t step_in(ncclComm_t comm)
{
    if (atomic_fetch_add(&comm->users, 1) > 0)
        (void)misused();
    return comm;
}
#define ALONE(comm) __attribute__((cleanup(step_out))) ncclComm_t alone_ = step_in(comm)

/* ---- memory, numbers ---- */

static char *at(const void *address)
{
    const char *p = address;
    if (p && p >= knobs.base && p < knobs.base + knobs.bytes)
        return knobs.alias + (p - knobs.base);
    return (char *)(uintptr_t)p;
}

/* ---- operations, under the mutex ---- */

static int is_message(const struct op *op) { return op->kind == SEND || op->kind == RECV; }

/* The first collective of this rank that is not done, if its turn has come; NULL: none. */
static struct op *first_collective(const struct ncclComm *comm)
{
    for (struct launch *l = comm->first; l; l = l->next)
        for (int i = 0; l->is_begun && i < l->ops_n; i++)
            if (!is_message(&l->op[i]) && !l->op[i].is_done)
                return &l->op[i];
    return NULL;
}

static void fail_world(struct world *w, int result)
{
    for (int r = 0; r < w->n; r++)
        if (w->comm[r] && !w->comm[r]->is_aborted)
            w->comm[r]->result = result;
}

static void carry_out(struct world *w, struct op *const *op)
{
    char *in[RANKS], *copy[RANKS];
    size_t each = bytes_of(op[0]->type), n = op[0]->n;
    size_t in_n = op[0]->kind == REDUCE_SCATTER ? n * (size_t)w->n : n;
    for (int r = 0; r < w->n; r++) {
        int is_read = op[0]->kind != BROADCAST || r == op[0]->peer;
        in[r] = copy[r] = malloc(in_n * each + 1);
        if (is_read)
            memcpy(copy[r], at(op[r]->in), in_n * each);
    }
    const size_t part = op[0]->kind == REDUCE_SCATTER ? n : (n + (size_t)w->n - 1) / (size_t)w->n,
                 ring_part = atomic_load(&knobs.adds_in_ring) ? part : 0;
    for (int r = 0; r < w->n; r++) {
        char *out = at(op[r]->out);
        switch (op[0]->kind) {
        case ALL_REDUCE:
            add(in, out, op[0]->type, 0, n, w->n, ring_part);
            break;
        case REDUCE:
            if (r == op[0]->peer)
                add(in, out, op[0]->type, 0, n, w->n, ring_part);
            break;
        case REDUCE_SCATTER:
            add(in, out, op[0]->type, (size_t)r * n, n, w->n, ring_part);
            break;
        case ALL_GATHER:
            for (int from = 0; from < w->n; from++)
                memcpy(out + (size_t)from * n * each, in[from], n * each);
            break;
        default:
            memcpy(out, in[op[0]->peer], n * each);
            break;
        }
    }
    for (int r = 0; r < w->n; r++)
        free(copy[r]);
}

static int is_here(const struct ncclComm *comm) { return comm && !comm->is_aborted; }

static int run_collective(struct world *w)
{
    struct op *op[RANKS];
    for (int r = 0; r < w->n; r++)
        if (!is_here(w->comm[r]) || (op[r] = first_collective(w->comm[r])) == NULL)
            return 0;
    for (int r = 1; r < w->n; r++)
        if (op[r]->kind != op[0]->kind || op[r]->n != op[0]->n || op[r]->type != op[0]->type ||
            op[r]->peer != op[0]->peer) {
            fail_world(w, INVALID_USAGE);
            return 0;
        }
    if (atomic_load(&knobs.hangs))
        return 0;
    carry_out(w, op);
    for (int r = 0; r < w->n; r++)
        op[r]->is_done = 1;
    return 1;
}

static struct op *find_message(const struct ncclComm *comm, enum kind kind, int peer)
{
    for (struct launch *l = comm->first; l && l->is_begun; l = l->next)
        for (int i = 0; i < l->ops_n; i++)
            if (l->op[i].kind == kind && l->op[i].peer == peer && !l->op[i].is_done)
                return &l->op[i];
    return NULL;
}

static int run_message(struct world *w, int from, int to)
{
    if (!is_here(w->comm[from]) || !is_here(w->comm[to]))
        return 0;
    struct op *s = find_message(w->comm[from], SEND, to),
              *r = find_message(w->comm[to], RECV, from);
    if (!s || !r)
        return 0;
    if (s->n != r->n) {
        fail_world(w, INVALID_USAGE);
        return 0;
    }
    memmove(at(r->out), at(s->in), s->n);
    s->is_done = r->is_done = 1;
    return 1;
}

static void run_all(struct world *w)
{
    int more = 1;
    while (more) {
        more = run_collective(w);
        for (int a = 0; a < w->n; a++)
            for (int b = 0; b < w->n; b++)
                more |= run_message(w, a, b);
    }
}

/* A launch in its stream's turn; arg: the launch. Returns 1 when it is done, or was aborted. */
static int run_launch(void *arg)
{
    struct launch *l = arg, **link;
    int left = 0;
    pthread_mutex_lock(&mutex);
    ncclComm_t comm = l->comm;
    l->is_begun = 1;
    if (!comm->is_aborted && comm->result == SUCCESS)
        run_all(comm->world);
    for (int i = 0; i < l->ops_n; i++)
        left += !l->op[i].is_done;
    if (comm->is_aborted || left == 0) {
        for (link = &comm->first; *link != l; link = &(*link)->next)
            continue;
        *link = l->next;
        free(l);
        left = 0;
    }
    pthread_mutex_unlock(&mutex);
    return left == 0;
}

/* ---- communicators ---- */

static const char *const results[] = {"no error",
                                      "unhandled cuda error",
                                      "unhandled system error",
                                      "internal error",
                                      "invalid argument",
                                      "invalid usage",
                                      "remote process exited or there was a network error",
                                      "NCCL operation in progress"};
const char *ncclGetErrorString(int result)
{
    return (unsigned)result < 8 ? results[result] : "unknown result code";
}
#ifndef FAKE_LACKS
const char *ncclGetLastError(ncclComm_t comm)
{
    (void)comm;
    return "said by the fake";
}
#endif
int ncclGetVersion(int *version)
{
    *version = FAKE_VERSION;
    return SUCCESS;
}

int ncclGetUniqueId(ncclUniqueId *id)
{
    static atomic_int count;
    memset(id, 0, sizeof *id);
    int number = atomic_fetch_add(&count, 1) + 1;
    memcpy(id->bytes, &number, sizeof number);
    return SUCCESS;
}

int ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                           ncclConfig_t *config)
{
    if (config->magic != 0xcafebeefu || config->version < 21800 || config->blocking != 0 ||
        ranks > RANKS || config->version > FAKE_VERSION ||
        config->size != (config->version >= 22800   ? 80
                         : config->version >= 22700 ? 72
                                                    : 48))
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&mutex);
    knobs.max_ctas = config->max_ctas;
    struct world *w = worlds;
    while (w && memcmp(w->id, id.bytes, sizeof w->id) != 0)
        w = w->next;
    if (!w) {
        w = calloc(1, sizeof *w);
        memcpy(w->id, id.bytes, sizeof w->id);
        w->n = ranks;
        w->next = worlds;
        worlds = w;
    }
    ncclComm_t comm = calloc(1, sizeof *comm);
    *comm = (struct ncclComm){.world = w, .rank = rank, .is_busy = 1};
    w->comm[rank] = comm;
    w->joined += atomic_load(&knobs.init_hangs) == 0 || rank < ranks - 1;
    w->left++;
    atomic_fetch_add(&knobs.open_n, 1);
    pthread_mutex_unlock(&mutex);
    *out = comm;
    return IN_PROGRESS;
}

/* Puts pending calls on their stream. Returns the launch, which is to be posted without the lock;
 * NULL: there are none. */
static struct launch *enqueue_pending(ncclComm_t comm)
{
    size_t bytes = (size_t)comm->pending_n * sizeof(struct op);
    struct launch *l, **link = &comm->first;
    int under_way = 1;
    if (comm->pending_n == 0)
        return NULL;
    l = calloc(1, sizeof *l + bytes);
    l->comm = comm;
    l->ops_n = comm->pending_n;
    memcpy(l->op, comm->pending, bytes);
    for (; *link; link = &(*link)->next)
        under_way++;
    *link = l;
    if (under_way > atomic_load(&knobs.under_way_most))
        atomic_store(&knobs.under_way_most, under_way);
    for (int i = 0; i < l->ops_n; i++)
        if (atomic_load(&knobs.fail_after) >= 0 && atomic_fetch_sub(&knobs.fail_after, 1) == 0)
            fail_world(comm->world, atomic_load(&knobs.fail_result));
    atomic_fetch_add(&knobs.posted_n, l->ops_n);
    comm->pending_n = 0;
    return l;
}

/* A communicator connects at its first call, when all of its ranks have made one. */
static int is_connected(ncclComm_t comm)
{
    const struct world *w = comm->world;
    comm->has_called |= comm->pending_n > 0;
    for (int r = 0; r < w->n && !comm->is_connected && comm->has_called; r++)
        if (!w->comm[r] || !w->comm[r]->has_called)
            return 0;
    comm->is_connected |= comm->has_called;
    return 1;
}

static int is_quiescent(const struct world *w)
{
    for (int r = 0; r < w->n; r++)
        if (w->finalized[r] == 0)
            return 0;
    return 1;
}

/* Returns true if the call reaches its stream now: at its third query, or knobs.slow_us after the
 * first. */
static int has_arrived(ncclComm_t comm)
{
    const int64_t slow_us = atomic_load(&knobs.slow_us);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t now_ns = (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
    if (comm->polls++ == 0)
        comm->ready_ns = now_ns + 1000 * slow_us;
    return slow_us > 0 ? now_ns >= comm->ready_ns : comm->polls >= POLLS;
}

int ncclCommGetAsyncError(ncclComm_t comm, int *result)
{
    struct launch *l = NULL;
    ALONE(comm);
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&knobs.polled_n, 1);
    int is_open = comm->world->joined == comm->world->n &&
                  (!atomic_load(&knobs.is_lazy) || is_connected(comm));
    if (comm->is_finalized)
        comm->is_busy = !is_quiescent(comm->world);
    else if (comm->is_busy && is_open && has_arrived(comm)) {
        comm->is_busy = comm->polls = 0;
        l = enqueue_pending(comm);
    }
    *result = comm->result != SUCCESS ? comm->result : comm->is_busy ? IN_PROGRESS : SUCCESS;
    pthread_mutex_unlock(&mutex);
    if (l)
        comm->stream->post(comm->stream, run_launch, l);
    return SUCCESS;
}

static void leave(ncclComm_t comm)
{
    pthread_mutex_lock(&mutex);
    struct world *w = comm->world, **link = &worlds;
    atomic_fetch_sub(&knobs.open_n, 1);
    w->comm[comm->rank] = NULL;
    if (--w->left == 0) {
        while (*link != w)
            link = &(*link)->next;
        *link = w->next;
        free(w);
    }
    pthread_mutex_unlock(&mutex);
    free(comm);
}

int ncclCommAbort(ncclComm_t comm)
{
    pthread_mutex_lock(&mutex);
    comm->is_aborted = 1;
    pthread_mutex_unlock(&mutex);
    atomic_fetch_add(&knobs.aborted_n, 1);
    for (int tries = 0; comm->stream && comm->stream->advance(comm->stream) > 0; tries++) {
        usleep(100);
        if (tries == 100000) {
            fprintf(stderr, "# ncclCommAbort waits for the device without end\n");
            abort();
        }
    }
    atomic_fetch_sub(&knobs.registered_n, comm->registered_n); /* ends with the communicator */
    leave(comm);
    return SUCCESS;
}

int ncclCommFinalize(ncclComm_t comm)
{
    pthread_mutex_lock(&mutex);
    int is_wrong =
        comm->is_finalized || comm->is_busy || comm->result != SUCCESS || comm->first != NULL;
    comm->is_finalized = comm->is_busy = 1;
    comm->world->finalized[comm->rank] = 1;
    pthread_mutex_unlock(&mutex);
    return is_wrong ? misused() : IN_PROGRESS;
}

int ncclCommDestroy(ncclComm_t comm)
{
    if (!comm->is_finalized || comm->is_busy)
        return misused();
    atomic_fetch_add(&knobs.finalized_n, 1);
    leave(comm);
    return SUCCESS;
}

/* ---- memory ---- */

int ncclMemAlloc(void **out, size_t bytes)
{
    *out = knobs.mem_alloc ? knobs.mem_alloc(bytes) : NULL;
    return *out ? SUCCESS : 1;
}
int ncclMemFree(void *data)
{
    knobs.mem_free(data);
    return SUCCESS;
}
int ncclCommRegister(ncclComm_t comm, void *data, size_t bytes, void **handle)
{
    const char *p = data;
    if (comm->is_busy || comm->is_finalized || p < knobs.base ||
        p + bytes > knobs.base + knobs.bytes)
        return misused();
    atomic_fetch_add(&knobs.registered_n, 1);
    comm->registered_n++;
    *handle = data;
    return SUCCESS;
}
int ncclCommDeregister(ncclComm_t comm, void *handle)
{
    if (comm->is_finalized || handle == NULL)
        return misused();
    atomic_fetch_sub(&knobs.registered_n, 1);
    comm->registered_n--;
    return SUCCESS;
}

#include "fake_nccl_calls.h"
