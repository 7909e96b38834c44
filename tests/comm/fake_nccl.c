/* fake_nccl — a libnccl.so.2 for tests: the functions of src/comm/nccl/nccl_lib.h over ordinary
 * memory, with NCCL's rules for communicators that do not block. Ranks are threads of one process.
 *
 * It answers as slowly as NCCL may:
 *   - a call reaches its stream only after the communicator's state was queried a few times, even
 *     if the call itself returned success;
 *   - a communicator refuses further calls meanwhile;
 *   - an operation ends when all ranks have posted theirs.
 * Sums are added in a binary tree over the ranks. FAKE_VERSION and FAKE_LACKS make libraries that
 * are too old or lack a function. */
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "fake_nccl.h"

#ifndef FAKE_VERSION
#define FAKE_VERSION 22809
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
};

struct world;
typedef struct ncclComm {
    struct world *world;
    int rank, polls, is_busy, result, is_aborted;
    struct op pending[OPS]; /* not on a stream yet */
    int pending_n;
    struct op posted[OPS]; /* in order; collectives and messages alike */
    int posted_n;
    struct ncclComm *next_grouped;
} * ncclComm_t;

struct world {
    struct world *next;
    char id[128];
    int n, joined, left;
    ncclComm_t comm[RANKS];
};

typedef struct {
    size_t size;
    unsigned magic, version;
    int blocking;
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

/* ---- memory, numbers ---- */

static char *at(const void *address)
{
    const char *p = address;
    if (p && p >= knobs.base && p < knobs.base + knobs.bytes)
        return knobs.alias + (p - knobs.base);
    return (char *)(uintptr_t)p;
}

static size_t bytes_of(int type) { return type == 8 ? 8 : type == 7 ? 4 : type == 9 ? 2 : 1; }

static float widen(uint16_t x)
{
    uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static uint16_t narrow(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? u >> 16 | 0x40
                                                    : (u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static double read_one(const char *p, int type, size_t i)
{
    return type == 8   ? ((const double *)(const void *)p)[i]
           : type == 7 ? (double)((const float *)(const void *)p)[i]
                       : (double)widen(((const uint16_t *)(const void *)p)[i]);
}

static double tree(char *const *in, int type, size_t i, int first, int n)
{
    int left = 1;
    if (n == 1)
        return read_one(in[first], type, i);
    while (left < n - left)
        left *= 2;
    double a = tree(in, type, i, first, left), b = tree(in, type, i, first + left, n - left);
    return type == 8 ? a + b : (double)((float)a + (float)b);
}

/* out = the sum of elements [first, first + n) over all ranks' buffers. */
static void add(char *const *in, char *out, int type, size_t first, size_t n, int ranks)
{
    char *sum = malloc(n * bytes_of(type) + 1);
    for (size_t i = 0; i < n; i++) {
        double x = tree(in, type, first + i, 0, ranks);
        if (type == 8)
            ((double *)(void *)sum)[i] = x;
        else if (type == 7)
            ((float *)(void *)sum)[i] = (float)x;
        else
            ((uint16_t *)(void *)sum)[i] = narrow((float)x);
    }
    memcpy(out, sum, n * bytes_of(type));
    free(sum);
}

/* ---- operations, under the mutex ---- */

static void done(ncclComm_t comm, int i)
{
    atomic_fetch_sub(&comm->posted[i].stream->pending, 1);
    memmove(&comm->posted[i], &comm->posted[i + 1],
            (size_t)(comm->posted_n - i - 1) * sizeof(struct op));
    comm->posted_n--;
}

static int is_message(const struct op *op) { return op->kind == SEND || op->kind == RECV; }

/* The first collective that this rank waits in; -1: none. */
static int first_collective(const struct ncclComm *comm)
{
    for (int i = 0; i < comm->posted_n; i++)
        if (!is_message(&comm->posted[i]))
            return i;
    return -1;
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
    for (int r = 0; r < w->n; r++) {
        char *out = at(op[r]->out);
        switch (op[0]->kind) {
        case ALL_REDUCE:
            add(in, out, op[0]->type, 0, n, w->n);
            break;
        case REDUCE:
            if (r == op[0]->peer)
                add(in, out, op[0]->type, 0, n, w->n);
            break;
        case REDUCE_SCATTER:
            add(in, out, op[0]->type, (size_t)r * n, n, w->n);
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

static int run_collective(struct world *w)
{
    struct op *op[RANKS];
    int index[RANKS];
    for (int r = 0; r < w->n; r++) {
        if (!w->comm[r] || w->comm[r]->is_aborted || (index[r] = first_collective(w->comm[r])) < 0)
            return 0;
        op[r] = &w->comm[r]->posted[index[r]];
    }
    for (int r = 1; r < w->n; r++)
        if (op[r]->kind != op[0]->kind || op[r]->n != op[0]->n || op[r]->type != op[0]->type ||
            op[r]->peer != op[0]->peer) {
            fail_world(w, INVALID_USAGE);
            return 0;
        }
    carry_out(w, op);
    for (int r = 0; r < w->n; r++)
        done(w->comm[r], index[r]);
    return 1;
}

static int find_message(const struct ncclComm *comm, enum kind kind, int peer)
{
    for (int i = 0; i < comm->posted_n; i++)
        if (comm->posted[i].kind == kind && comm->posted[i].peer == peer)
            return i;
    return -1;
}

static int run_message(struct world *w, int from, int to)
{
    ncclComm_t a = w->comm[from], b = w->comm[to];
    if (!a || !b || a->is_aborted || b->is_aborted)
        return 0;
    int s = find_message(a, SEND, to), r = find_message(b, RECV, from);
    if (s < 0 || r < 0)
        return 0;
    if (a->posted[s].n != b->posted[r].n) {
        fail_world(w, INVALID_USAGE);
        return 0;
    }
    memmove(at(b->posted[r].out), at(a->posted[s].in), a->posted[s].n);
    done(a, s);
    done(b, find_message(b, RECV, from));
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
        ranks > RANKS)
        return INVALID_ARGUMENT;
    pthread_mutex_lock(&mutex);
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

/* Puts pending calls on their streams. */
static void post_pending(ncclComm_t comm)
{
    for (int i = 0; i < comm->pending_n; i++) {
        comm->posted[comm->posted_n++] = comm->pending[i];
        atomic_fetch_add(&comm->pending[i].stream->pending, 1);
        if (atomic_load(&knobs.fail_after) >= 0 && atomic_fetch_sub(&knobs.fail_after, 1) == 0)
            fail_world(comm->world, atomic_load(&knobs.fail_result));
    }
    atomic_fetch_add(&knobs.posted_n, comm->pending_n);
    comm->pending_n = 0;
    if (comm->result == SUCCESS)
        run_all(comm->world);
}

int ncclCommGetAsyncError(ncclComm_t comm, int *result)
{
    pthread_mutex_lock(&mutex);
    atomic_fetch_add(&knobs.polled_n, 1);
    int is_open = comm->world->joined == comm->world->n;
    if (comm->is_busy && is_open && ++comm->polls >= POLLS) {
        comm->is_busy = comm->polls = 0;
        post_pending(comm);
    }
    *result = comm->result != SUCCESS ? comm->result : comm->is_busy ? IN_PROGRESS : SUCCESS;
    pthread_mutex_unlock(&mutex);
    return SUCCESS;
}

int ncclCommAbort(ncclComm_t comm)
{
    pthread_mutex_lock(&mutex);
    struct world *w = comm->world, **link = &worlds;
    while (comm->posted_n > 0)
        done(comm, comm->posted_n - 1);
    atomic_fetch_add(&knobs.aborted_n, 1);
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
    return SUCCESS;
}

/* ---- calls ---- */

int ncclGroupStart(void)
{
    group_depth++;
    return SUCCESS;
}

int ncclGroupEnd(void)
{
    if (--group_depth > 0)
        return SUCCESS;
    for (ncclComm_t comm = grouped; comm; comm = comm->next_grouped)
        comm->is_busy = 1;
    grouped = NULL;
    return IN_PROGRESS;
}

static int say(ncclComm_t comm, struct op op)
{
    int refusal = atomic_exchange(&knobs.refuses_next, 0);
    if (refusal != 0)
        return refusal;
    pthread_mutex_lock(&mutex);
    int result = comm->result,
        is_misused = result != SUCCESS || comm->is_busy || comm->pending_n == OPS;
    if (!is_misused)
        comm->pending[comm->pending_n++] = op;
    if (!is_misused && group_depth == 0) {
        comm->is_busy = 1;
    } else if (!is_misused && grouped != comm) {
        comm->next_grouped = grouped;
        grouped = comm;
    }
    pthread_mutex_unlock(&mutex);
    if (result != SUCCESS)
        return result;
    if (is_misused) {
        atomic_fetch_add(&knobs.misused_n, 1);
        return INVALID_ARGUMENT;
    }
    return comm->rank % 2 == 0 ? IN_PROGRESS : SUCCESS; /* SUCCESS must not be relied on */
}

int ncclAllReduce(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm,
                  void *stream)
{
    (void)op;
    return say(comm, (struct op){ALL_REDUCE, in, out, n, type, 0, stream});
}
int ncclReduce(const void *in, void *out, size_t n, int type, int op, int root, ncclComm_t comm,
               void *stream)
{
    (void)op;
    return say(comm, (struct op){REDUCE, in, out, n, type, root, stream});
}
int ncclReduceScatter(const void *in, void *out, size_t n, int type, int op, ncclComm_t comm,
                      void *stream)
{
    (void)op;
    return say(comm, (struct op){REDUCE_SCATTER, in, out, n, type, 0, stream});
}
int ncclAllGather(const void *in, void *out, size_t n, int type, ncclComm_t comm, void *stream)
{
    return say(comm, (struct op){ALL_GATHER, in, out, n, type, 0, stream});
}
int ncclBroadcast(const void *in, void *out, size_t n, int type, int root, ncclComm_t comm,
                  void *stream)
{
    return say(comm, (struct op){BROADCAST, in, out, n, type, root, stream});
}
int ncclSend(const void *data, size_t n, int type, int peer, ncclComm_t comm, void *stream)
{
    return say(comm, (struct op){SEND, data, NULL, n, type, peer, stream});
}
int ncclRecv(void *data, size_t n, int type, int peer, ncclComm_t comm, void *stream)
{
    return say(comm, (struct op){RECV, NULL, data, n, type, peer, stream});
}
