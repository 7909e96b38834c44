/* dev_cuda_graph — a stream that records its work, and submits the same work again as one CUDA
 * graph. Must not know the purpose of the work.
 *
 * Design. The host runs every step from its first to its last call, but work for the stream is
 * appended to a list: the operation and its arguments. A flush compares the list with the lists
 * that were submitted before:
 *   new              its work is submitted one by one, and the list is cached; afterwards every
 *                    plan, attribute and allocation that the work needs exists
 *   the second time  the work is submitted while the stream is captured (for this thread only);
 *                    the resulting graph is launched
 *   then             the graph is launched: one call instead of hundreds
 * So a graph runs only for exactly the same work. Another shape, address, mask or order of buckets
 * is another list, and no caller reports a change.
 *
 * Numbers that change from step to step are removed from the list (kernels/step_scalars.h):
 * learning rate, seed and offset of dropout, scale of the loss. Before a list is submitted, these
 * numbers are copied from a slot of the pinned ring to the device, where kernels read them; so no
 * list waits for the previous one.
 *
 * A graph can hold: operations, fills, copies within the device, reads into pinned memory and
 * records of events. An event in the middle of a list is a node of the graph, so the host can look
 * at results while later nodes run. Copies from the host or to pageable memory are never captured,
 * nor is anything that waits. No allocation happens in a capture: cuBLASLt works in the stream's
 * scratch. A failed capture is logged once, and work is submitted one by one from then on.
 *
 * Ranks. A collective waits for an event of the stream, so a list ends at each collective
 * (mesh/store/store.c), and with several ranks a step has several lists for each block. For a list
 * of at most WORK_FEW entries it is cheaper to submit them one by one: one or two launches, against
 * the launch of a graph and a copy of step scalars.
 *
 * Memory. LISTS_CACHED is enough for a step with SHARD=full and accumulation: four lists for each
 * of 250 blocks, namely forward, and backward in the first, a middle and the last micro-batch. An
 * entry of a list needs about 250 bytes of host memory, so WORK_CACHED limits the cache to 16 MiB,
 * and the nodes of CUDA's graphs to the same number. */
#include "dev/cuda/internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/assert.h"
#include "dev/blas/plan.h"

#define SCALARS_MAX 4096  /* entries of a list that read step scalars */
#define WORK_MAX 16384    /* entries of a list; a longer one is submitted in several lists */
#define WORK_FEW 2        /* lists up to this length are neither cached nor made a graph */
#define LISTS_CACHED 1024 /* the oldest is evicted, lists without a graph first */
#define WORK_CACHED 65536 /* entries of all cached lists together */
#define WORK_ALIGN 16

/* An entry of a list: this head, its arguments, and the spans of an optimiser. */
struct work_head {
    uint32_t work, bytes; /* bytes: of the arguments and spans after this head */
    int32_t scalars_i;    /* its step scalars; -1: it reads none */
    uint32_t spans_at;    /* adamw, sgd: offset of the spans after this head; 0: none */
};

/* Arguments of any kind of work. */
union work_args {
#define ARGS(name) struct name name;
    OP_LIST(ARGS)
#undef ARGS
    struct cuda_fill fill;
    struct cuda_copy copy;
    struct cuda_event event;
};

struct work_list {
    char *bytes;
    size_t used, cap;
    int work_n;
};

struct cached_list {
    struct work_list list;
    gpu_graph_exec graph; /* NULL: the list was submitted only once */
    int64_t used_at;
};

struct cuda_graphs {
    struct dev *dev;
    struct work_list list;         /* the recorded work */
    union work_args few[WORK_FEW]; /* the arguments of its first entries, with their step scalars */
    struct dev_event *event;       /* recorded at the end of the current list; NULL: none */
    struct step_scalars scalars[SCALARS_MAX], *scalars_device;
    int scalars_n;
    struct cached_list cached[LISTS_CACHED];
    uint64_t hash[LISTS_CACHED]; /* hash of each list, compared before the bytes are */
    int cached_n;
    int64_t cached_work_n;
    int64_t submitted_n; /* lists longer than WORK_FEW, so far */
    bool is_refused, is_reported;
    bool is_submitting; /* meanwhile the stream records nothing */
};

/* ---- open, close ---- */

enum status dev_cuda_graph_open(struct stream *s)
{
    struct cuda_graphs *g = memory_new(1, sizeof *g);
    void *scalars = NULL;
    enum status st = dev_alloc(s->head.dev, sizeof g->scalars, &scalars);
    if (st != ST_OK) {
        free(g);
        return st;
    }
    g->dev = s->head.dev;
    g->scalars_device = scalars;
    s->graphs = g;
    return ST_OK;
}

static void release_list(struct cached_list *cached)
{
    if (cached->graph)
        (void)dev_runtime->GraphExecDestroy(cached->graph); /* waits for a running one */
    free(cached->list.bytes);
    *cached = (struct cached_list){.graph = NULL};
}

void dev_cuda_graph_close(struct cuda_graphs *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->cached_n; i++)
        release_list(&g->cached[i]);
    dev_free(g->dev, g->scalars_device, sizeof g->scalars);
    free(g->list.bytes);
    free(g);
}

/* ---- recording ---- */

/* Returns the address of the pointer to an optimiser's spans in the arguments, and their number;
 * NULL: other work. The spans belong to the caller. */
static const struct optim_span **spans_of(enum cuda_work work, void *args, int64_t *n_out)
{
    struct adamw *adamw = args;
    struct sgd *sgd = args;
    *n_out = work == CUDA_WORK_adamw ? adamw->spans_n : work == CUDA_WORK_sgd ? sgd->spans_n : 0;
    return work == CUDA_WORK_adamw ? &adamw->spans : work == CUDA_WORK_sgd ? &sgd->spans : NULL;
}

static size_t align_up(size_t bytes) { return (bytes + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN; }

/* Appends `bytes` zeroed bytes, so that lists can be compared as bytes. */
static enum status append_work(struct work_list *list, size_t bytes, char **out)
{
    if (list->used + bytes > list->cap) {
        list->cap = 2 * (list->used + bytes);
        list->bytes = memory_resize(list->bytes, list->cap, 1);
    }
    *out = list->bytes + list->used;
    memset(*out, 0, bytes);
    list->used += bytes;
    list->work_n++;
    return ST_OK;
}

/* Adds an event that was recorded at the end of the list, before new work is added. */
static enum status settle_event(struct stream *s)
{
    struct dev_event *event = s->graphs->event;
    if (!event)
        return ST_OK;
    s->graphs->event = NULL;
    event->number = ++s->ring.recorded;
    return dev_cuda_graph_add(s, CUDA_WORK_EVENT, &(struct cuda_event){event->event, event->number},
                              sizeof(struct cuda_event));
}

enum status dev_cuda_graph_record(struct stream *s, struct dev_event *event)
{
    struct cuda_graphs *g = s->graphs;
    if (g->event && g->event != event)
        TRY(dev_cuda_graph_flush(s));
    g->event = event;
    return ST_OK;
}

bool dev_cuda_graph_is_recording(const struct stream *s)
{
    return s->graphs && !s->graphs->is_submitting;
}

enum status dev_cuda_graph_add(struct stream *s, enum cuda_work work, void *args, size_t bytes)
{
    struct cuda_graphs *g = s->graphs;
    struct work_head head = {.work = (uint32_t)work, .scalars_i = -1};
    struct step_scalars scalars;
    int64_t spans_n = 0;
    char *at = NULL;
    TRY(settle_event(s));
    if (g->scalars_n == SCALARS_MAX || g->list.work_n == WORK_MAX)
        TRY(dev_cuda_graph_flush(s));
    if (g->list.work_n < WORK_FEW)
        memcpy(&g->few[g->list.work_n], args, bytes);
    if (dev_cuda_scalars_take(work, args, &scalars)) {
        head.scalars_i = g->scalars_n;
        g->scalars[g->scalars_n++] = scalars;
    }
    const struct optim_span **spans = spans_of(work, args, &spans_n), *runs = spans ? *spans : NULL;
    if (spans)
        *spans = NULL;
    head.spans_at = spans ? (uint32_t)align_up(bytes) : 0;
    head.bytes = (uint32_t)(align_up(bytes) + align_up((size_t)spans_n * sizeof *runs));
    TRY(append_work(&g->list, sizeof head + head.bytes, &at));
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, args, bytes);
    for (int64_t i = 0; i < spans_n; i++) { /* member by member, so that padding stays zero */
        struct optim_span *to = (struct optim_span *)(void *)(at + sizeof head + head.spans_at) + i;
        to->offset = runs[i].offset;
        to->elems = runs[i].elems;
        to->weight_decay = runs[i].weight_decay;
    }
    return ST_OK;
}

/* ---- submitting ---- */

/* Submits the work of a list, one by one. few: arguments to use instead of the list's, with their
 * step scalars; or NULL. */
static enum status submit_list(struct stream *s, const struct work_list *list,
                               const union work_args *few)
{
    enum status st = ST_OK;
    for (size_t at = 0; st == ST_OK && at < list->used;) {
        struct work_head head;
        union work_args args;
        int64_t spans_n;
        memcpy(&head, list->bytes + at, sizeof head);
        at += sizeof head;
        if (few)
            args = *few++;
        else
            memcpy(&args, list->bytes + at, head.bytes < sizeof args ? head.bytes : sizeof args);
        if (head.spans_at > 0)
            *spans_of((enum cuda_work)head.work, &args, &spans_n) =
                (const void *)(list->bytes + at + head.spans_at);
        s->cuda.scalars =
            few || head.scalars_i < 0 ? NULL : s->graphs->scalars_device + head.scalars_i;
        st = dev_cuda_do(s, (enum cuda_work)head.work, &args);
        at += head.bytes;
    }
    s->cuda.scalars = NULL;
    return st;
}

static void set_captured(struct stream *s, bool is_captured)
{
    s->is_captured = is_captured;
    if (s->blas)
        blas_plan_capture(s->blas, is_captured);
}

/* Captures the list as a graph; work submitted to the stream meanwhile does not run. */
static enum status capture_list(struct stream *s, const struct work_list *list, gpu_graph *out)
{
    gpu_graph graph = NULL;
    CUDA_CHECK(dev_runtime->StreamBeginCapture(s->stream, GPU_CAPTURE_THREAD));
    set_captured(s, true);
    enum status st = submit_list(s, list, NULL);
    set_captured(s, false);
    /* Also when the capture has failed: else the stream would stay in it. */
    gpu_error error = dev_runtime->StreamEndCapture(s->stream, &graph);
    if (st == ST_OK && error != GPU_SUCCESS)
        st = dev_cuda_error_fail(error, "capturing a step's work");
    if (st != ST_OK && graph)
        (void)dev_runtime->GraphDestroy(graph);
    if (st == ST_OK)
        *out = graph;
    return st;
}

static enum status make_graph(struct stream *s, const struct work_list *list, gpu_graph_exec *out)
{
    gpu_graph graph = NULL;
    size_t nodes_n = 0;
    TRY(capture_list(s, list, &graph));
    gpu_error error = dev_runtime->GraphGetNodes(graph, NULL, &nodes_n);
    if (error == GPU_SUCCESS)
        error = dev_runtime->GraphInstantiate(out, graph, 0);
    (void)dev_runtime->GraphDestroy(graph);
    if (error != GPU_SUCCESS)
        return dev_cuda_error_fail(error, "making a graph of a step's work");
    if (!s->graphs->is_reported)
        LOG_INFO(
            "repeated work is submitted to the GPU as %s graphs: the first has %d operations, %zu "
            "nodes",
            dev_runtime->vendor, list->work_n, nodes_n);
    s->graphs->is_reported = true;
    return ST_OK;
}

/* Makes a graph of a list. Fails only for a fault of the GPU. Without a graph, work is submitted
 * one by one, and reports the failure then. */
static enum status try_graph(struct stream *s, struct cached_list *cached)
{
    struct cuda_graphs *g = s->graphs;
    if (cached->graph || g->is_refused)
        return ST_OK;
    enum status st = make_graph(s, &cached->list, &cached->graph);
    if (st == ST_OK || st == ST_FAULT)
        return st;
    (void)dev_runtime->GetLastError(); /* clears the error of the capture */
    cached->graph = NULL;
    g->is_refused = true;
    LOG_WARN("work is submitted one operation at a time, because it cannot be made a %s graph: %s",
             dev_runtime->vendor, status_message());
    return ST_OK;
}

/* ---- the cache of lists ---- */

/* Returns the hash of a list; lists are whole 64-bit words. */
static uint64_t hash_of(const struct work_list *list)
{
    uint64_t hash = list->used;
    for (size_t at = 0; at < list->used; at += sizeof hash) {
        uint64_t word;
        memcpy(&word, list->bytes + at, sizeof word);
        hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
        hash ^= hash >> 32;
    }
    return hash;
}

static struct cached_list *find_cached(struct cuda_graphs *g, uint64_t hash)
{
    for (int i = 0; i < g->cached_n; i++) {
        struct cached_list *cached = &g->cached[i];
        if (g->hash[i] == hash && cached->list.used == g->list.used &&
            memcmp(cached->list.bytes, g->list.bytes, g->list.used) == 0)
            return cached;
    }
    return NULL;
}

/* Drops the cheapest list: the oldest one, lists without a graph first. The last list moves to its
 * place. */
static void evict_cheapest(struct cuda_graphs *g)
{
    int oldest = 0;
    for (int i = 1; i < g->cached_n; i++) {
        const struct cached_list *cached = &g->cached[i], *other = &g->cached[oldest];
        bool is_cheaper = other->graph && !cached->graph,
             is_alike = !other->graph == !cached->graph;
        if (is_cheaper || (is_alike && cached->used_at < other->used_at))
            oldest = i;
    }
    const int last = --g->cached_n;
    g->cached_work_n -= g->cached[oldest].list.work_n;
    release_list(&g->cached[oldest]);
    g->cached[oldest] = g->cached[last];
    g->hash[oldest] = g->hash[last];
    if (oldest != last)
        g->cached[last] = (struct cached_list){.graph = NULL};
}

static enum status submit_recorded(struct stream *s)
{
    struct cuda_graphs *g = s->graphs;
    if (g->list.work_n <= WORK_FEW)
        return submit_list(s, &g->list, g->few);
    uint64_t hash = hash_of(&g->list);
    struct cached_list *cached = find_cached(g, hash);
    g->submitted_n++;
    if (g->scalars_n > 0)
        TRY(dev_cuda_ring_in(&s->ring, s->stream, g->scalars_device, g->scalars,
                             (size_t)g->scalars_n * sizeof *g->scalars));
    if (!cached) {
        TRY(submit_list(s, &g->list, NULL));
        while (g->cached_n == LISTS_CACHED ||
               (g->cached_n > 0 && g->cached_work_n + g->list.work_n > WORK_CACHED))
            evict_cheapest(g);
        char *bytes = memory_new(g->list.used, 1);
        memcpy(bytes, g->list.bytes, g->list.used);
        g->hash[g->cached_n] = hash;
        g->cached[g->cached_n++] = (struct cached_list){
            .list = {bytes, g->list.used, g->list.used, g->list.work_n}, .used_at = g->submitted_n};
        g->cached_work_n += g->list.work_n;
        return ST_OK;
    }
    cached->used_at = g->submitted_n;
    TRY(try_graph(s, cached));
    if (!cached->graph)
        return submit_list(s, &g->list, NULL);
    CUDA_CHECK(dev_runtime->GraphLaunch(cached->graph, s->stream));
    return ST_OK;
}

enum status dev_cuda_graph_flush(struct stream *s)
{
    struct cuda_graphs *g = s->graphs;
    if (!g || g->is_submitting)
        return ST_OK;
    struct dev_event *event = g->event;
    g->is_submitting = true;
    enum status st = g->list.used > 0 ? submit_recorded(s) : ST_OK;
    g->is_submitting = false;
    g->event = NULL;
    g->list.used = 0;
    g->list.work_n = g->scalars_n = 0;
    if (st == ST_OK && event)
        CUDA_CHECK(dev_runtime->EventRecord(event->event, s->stream));
    return st;
}
