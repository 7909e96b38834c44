/* dev_cuda_graph — a stream that gathers its work and gives it to the GPU together; the same work
 * again goes as one CUDA graph. Must not know what the work is for.
 *
 * Design. The host walks a step as ever, but what it asks of the stream is written into a list:
 * which operation, its arguments. When the list must begin (dev_flush, a copy to or from the host,
 * a wait, a mark), it is compared with the lists that were begun before:
 *   new              it is done one by one, and kept: so every plan, attribute and piece of memory
 *   that it needs exists
 *   the second time  the same is done while the stream is captured (of this thread alone); its
 *   graph is launched
 *   then             the graph is launched: one call instead of hundreds
 * So a graph runs only where the very same work is asked for: another shape, address, mask or order
 * of pieces is another list, and nobody has to say what changed. What does change from step to step
 * (learning rate, seed and offset of dropout, scale of the loss: kernels/step_scalars.h) is taken
 * out of the list into a block of numbers; these go to the device by one copy on the stream from
 * pinned memory, in slots of their own (dev_cuda_ring.c), before the list begins, and kernels read
 * them there. So no list waits for the one before it. Copies from the host, and to its ordinary
 * memory, are never captured, nor is anything that waits; what is brought to pinned memory is, and
 * a note of it is an event's node, so that the host may look at what a graph has done while the
 * graph goes on; nothing is taken meanwhile: cuBLASLt works in the stream's scratch.
 * A capture that fails is told once, and work goes one by one from then on.
 *
 * Ranks. A collective's place in the stream is a mark, so each is where a list ends, and the host
 * begins what is gathered before it waits for one (mesh/store.c): with several ranks a step is some
 * lists for each block. A list of no more than WORK_FEW is cheaper as it is: a launch or two
 * against the launch of a graph, which also needs a copy of numbers.
 *
 * Memory. LISTS_KEPT holds what a step of SHARD=full with accumulation asks for, forward, and
 * backward in the first, the other and the last micro-batch: four a block, of 250 blocks. The lists
 * take some 250 bytes of the host's memory for a piece of work, so 16 MiB at most (WORK_KEPT), and
 * as many nodes of CUDA's at most. */
#include "dev/dev_cuda_internal.h"

#ifdef CONVOY_CUDA
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/assert.h"
#include "kernels/step_scalars.h"

#define SCALARS_MAX 1024 /* operations of a list that read numbers of their own */
#define WORK_MAX 16384   /* pieces of work of a list: a longer one begins in parts */
#define WORK_FEW 2       /* a list of so few is neither kept nor a graph */
#define LISTS_KEPT 1024  /* the oldest goes; one that is no graph first */
#define WORK_KEPT 65536  /* pieces of work of all kept lists together */
#define WORK_ALIGN 16

struct work_head {
    uint32_t work, bytes; /* bytes: of the arguments that follow, and of runs after them */
    int32_t scalars_i;    /* -1: it reads none */
    uint32_t spans_at;    /* of adamw and sgd: where their runs lie in what follows; 0: none */
};

/* Arguments of any kind of work. */
union work_args {
#define ARGS(name) struct name name;
    OP_LIST(ARGS)
#undef ARGS
    struct cuda_fill fill;
    struct cuda_copy copy;
    struct cuda_event note;
};

struct work_list {
    char *bytes;
    size_t used, cap;
    int work_n;
};

struct kept {
    struct work_list list;
    cudaGraphExec_t graph; /* NULL: begun once so far */
    int64_t used_at;
};

struct cuda_graphs {
    struct dev *dev;
    struct work_list list;         /* what is gathered */
    union work_args few[WORK_FEW]; /* the arguments of its first pieces, with all numbers */
    struct step_scalars scalars[SCALARS_MAX], *scalars_device;
    int scalars_n;
    struct kept kept[LISTS_KEPT];
    uint64_t hash[LISTS_KEPT]; /* of each, to be compared before the bytes are */
    int kept_n;
    int64_t kept_work_n;
    int64_t begun; /* lists, so far */
    bool is_refused, is_reported;
};

/* ---- life ---- */

enum status dev_cuda_graph_open(struct stream *s)
{
    struct cuda_graphs *g = calloc(1, sizeof *g);
    void *scalars = NULL;
    if (!g)
        return FAIL(ST_RETRY, "out of memory: %zu bytes for a stream's work", sizeof *g);
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

static void forget(struct kept *kept)
{
    if (kept->graph)
        (void)cudaGraphExecDestroy(kept->graph); /* one that runs ends first */
    free(kept->list.bytes);
    *kept = (struct kept){.graph = NULL};
}

void dev_cuda_graph_close(struct cuda_graphs *g)
{
    if (!g)
        return;
    for (int i = 0; i < g->kept_n; i++)
        forget(&g->kept[i]);
    dev_free(g->dev, g->scalars_device, sizeof g->scalars);
    free(g->list.bytes);
    free(g);
}

/* ---- gathering ---- */

/* take_dropout — out of the arguments; false: there is none. */
static bool take_dropout(struct dropout *d, struct step_scalars *out)
{
    *out = step_scalars_dropout(d);
    d->seed = d->offset = 0;
    return d->p > 0;
}

/* take_scalars — what changes from step to step goes from the arguments to *out; false: nothing
 * does. */
static bool take_scalars(enum cuda_work work, void *args, struct step_scalars *out)
{
    struct xent *xent = args;
    struct qa_xent *qa = args;
    struct grad_scale *grad_scale = args;
    struct adamw *adamw = args;
    struct sgd *sgd = args;
    struct cuda_event *note = args;
    switch (work) {
    case CUDA_WORK_embed_fwd:
        return take_dropout(&((struct embed_fwd *)args)->dropout, out);
    case CUDA_WORK_embed_bwd:
        return take_dropout(&((struct embed_bwd *)args)->dropout, out);
    case CUDA_WORK_matmul_fwd:
        return take_dropout(&((struct matmul_fwd *)args)->dropout, out);
    case CUDA_WORK_attention_fwd:
        return take_dropout(&((struct attention_fwd *)args)->dropout, out);
    case CUDA_WORK_attention_bwd:
        return take_dropout(&((struct attention_bwd *)args)->dropout, out);
    case CUDA_WORK_drop:
        return take_dropout(&((struct drop *)args)->dropout, out);
    case CUDA_WORK_EVENT:
        *out = step_scalars_none();
        out->seed = note->number;
        note->number = 0;
        return true;
    case CUDA_WORK_grad_scale:
        *out = step_scalars_grad_scale(grad_scale);
        grad_scale->loss_scale = 0;
        return true;
    case CUDA_WORK_xent:
        *out = step_scalars_xent(xent);
        xent->scale = 0;
        return true;
    case CUDA_WORK_qa_xent:
        *out = step_scalars_qa_xent(qa);
        qa->scale_start = qa->scale_end = 0;
        return true;
    case CUDA_WORK_adamw:
        *out = step_scalars_adamw(adamw);
        adamw->lr = 0, adamw->step = 0;
        return true;
    case CUDA_WORK_sgd:
        *out = step_scalars_sgd(sgd);
        sgd->lr = 0, sgd->step = 0;
        return true;
    default:
        return false;
    }
}

/* The optimisers' runs, which are the caller's: where the arguments say so, and how many. */
static const struct optim_span **spans_of(enum cuda_work work, void *args, int64_t *n_out)
{
    struct adamw *adamw = args;
    struct sgd *sgd = args;
    *n_out = work == CUDA_WORK_adamw ? adamw->spans_n : work == CUDA_WORK_sgd ? sgd->spans_n : 0;
    return work == CUDA_WORK_adamw ? &adamw->spans : work == CUDA_WORK_sgd ? &sgd->spans : NULL;
}

static size_t rounded(size_t bytes) { return (bytes + WORK_ALIGN - 1) / WORK_ALIGN * WORK_ALIGN; }

/* room — for `bytes` more, zeroed, so that lists can be compared as bytes. */
static enum status room(struct work_list *list, size_t bytes, char **out)
{
    if (list->used + bytes > list->cap) {
        size_t cap = 2 * (list->used + bytes);
        char *grown = realloc(list->bytes, cap);
        if (!grown)
            return FAIL(ST_RETRY, "out of memory: %zu bytes of gathered work", cap);
        list->bytes = grown;
        list->cap = cap;
    }
    *out = list->bytes + list->used;
    memset(*out, 0, bytes);
    list->used += bytes;
    list->work_n++;
    return ST_OK;
}

enum status dev_cuda_graph_add(struct stream *s, enum cuda_work work, void *args, size_t bytes)
{
    struct cuda_graphs *g = s->graphs;
    struct work_head head = {.work = (uint32_t)work, .scalars_i = -1};
    struct step_scalars scalars;
    int64_t spans_n = 0;
    char *at = NULL;
    if (g->scalars_n == SCALARS_MAX || g->list.work_n == WORK_MAX)
        TRY(dev_cuda_graph_flush(s));
    if (g->list.work_n < WORK_FEW)
        memcpy(&g->few[g->list.work_n], args, bytes);
    if (take_scalars(work, args, &scalars)) {
        head.scalars_i = g->scalars_n;
        g->scalars[g->scalars_n++] = scalars;
    }
    const struct optim_span **spans = spans_of(work, args, &spans_n), *runs = spans ? *spans : NULL;
    if (spans)
        *spans = NULL;
    head.spans_at = spans ? (uint32_t)rounded(bytes) : 0;
    head.bytes = (uint32_t)(rounded(bytes) + rounded((size_t)spans_n * sizeof *runs));
    TRY(room(&g->list, sizeof head + head.bytes, &at));
    memcpy(at, &head, sizeof head);
    memcpy(at + sizeof head, args, bytes);
    for (int64_t i = 0; i < spans_n; i++) { /* member by member: padding stays zero */
        struct optim_span *to = (struct optim_span *)(void *)(at + sizeof head + head.spans_at) + i;
        to->offset = runs[i].offset;
        to->elems = runs[i].elems;
        to->weight_decay = runs[i].weight_decay;
    }
    return ST_OK;
}

/* ---- doing ---- */

/* play — the list, one by one, onto the stream. few: their arguments instead of the list's, numbers
 * and all. */
static enum status play(struct stream *s, const struct work_list *list, const union work_args *few)
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

/* record — the list as a graph; what is asked of the stream meanwhile is kept instead of done. */
static enum status record(struct stream *s, const struct work_list *list, cudaGraph_t *out)
{
    cudaGraph_t graph = NULL;
    CUDA_CHECK(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal));
    s->is_captured = true;
    enum status st = play(s, list, NULL);
    s->is_captured = false;
    /* Also when the capture is lost: else the stream would stay in it. */
    cudaError_t error = cudaStreamEndCapture(s->stream, &graph);
    if (st == ST_OK && error != cudaSuccess)
        st = dev_cuda_error_fail(error, "capturing a step's work");
    if (st != ST_OK && graph)
        (void)cudaGraphDestroy(graph);
    if (st == ST_OK)
        *out = graph;
    return st;
}

static enum status make_graph(struct stream *s, const struct work_list *list, cudaGraphExec_t *out)
{
    cudaGraph_t graph = NULL;
    size_t nodes_n = 0;
    TRY(record(s, list, &graph));
    cudaError_t error = cudaGraphGetNodes(graph, NULL, &nodes_n);
    if (error == cudaSuccess)
        error = cudaGraphInstantiate(out, graph, 0);
    (void)cudaGraphDestroy(graph);
    if (error != cudaSuccess)
        return dev_cuda_error_fail(error, "making a graph of a step's work");
    if (!s->graphs->is_reported)
        LOG_INFO("work that comes again goes to the GPU as CUDA graphs: %d operations at once, in "
                 "%zu nodes",
                 list->work_n, nodes_n);
    s->graphs->is_reported = true;
    return ST_OK;
}

/* try_graph — no failure but a fault of the GPU's own: without a graph work goes one by one, and is
 * told when that fails. */
static enum status try_graph(struct stream *s, struct kept *kept)
{
    struct cuda_graphs *g = s->graphs;
    if (kept->graph || g->is_refused)
        return ST_OK;
    enum status st = make_graph(s, &kept->list, &kept->graph);
    if (st == ST_OK || st == ST_FAULT)
        return st;
    (void)cudaGetLastError(); /* of the capture alone */
    kept->graph = NULL;
    g->is_refused = true;
    LOG_WARN("work goes to the GPU one operation at a time, for it cannot be made a CUDA graph: %s",
             status_message());
    return ST_OK;
}

/* ---- lists that were begun before ---- */

/* Lists are whole 64-bit words. */
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

static struct kept *find(struct cuda_graphs *g, uint64_t hash)
{
    for (int i = 0; i < g->kept_n; i++) {
        struct kept *kept = &g->kept[i];
        if (g->hash[i] == hash && kept->list.used == g->list.used &&
            memcmp(kept->list.bytes, g->list.bytes, g->list.used) == 0)
            return kept;
    }
    return NULL;
}

/* drop — the least dear one. The last takes its place: what is kept is without gaps. */
static void drop(struct cuda_graphs *g)
{
    int oldest = 0, last = --g->kept_n;
    for (int i = 1; i <= last; i++) {
        const struct kept *kept = &g->kept[i], *other = &g->kept[oldest];
        bool is_dearer = other->graph && !kept->graph, is_as_dear = !other->graph == !kept->graph;
        if (is_dearer || (is_as_dear && kept->used_at < other->used_at))
            oldest = i;
    }
    g->kept_work_n -= g->kept[oldest].list.work_n;
    forget(&g->kept[oldest]);
    g->kept[oldest] = g->kept[last];
    g->hash[oldest] = g->hash[last];
    g->kept[last] = (struct kept){.graph = NULL};
}

static enum status keep(struct cuda_graphs *g, uint64_t hash)
{
    char *bytes = malloc(g->list.used);
    if (!bytes)
        return FAIL(ST_RETRY, "out of memory: %zu bytes of gathered work", g->list.used);
    memcpy(bytes, g->list.bytes, g->list.used);
    while (g->kept_n == LISTS_KEPT ||
           (g->kept_n > 0 && g->kept_work_n + g->list.work_n > WORK_KEPT))
        drop(g);
    g->hash[g->kept_n] = hash;
    g->kept[g->kept_n++] = (struct kept){
        .list = {bytes, g->list.used, g->list.used, g->list.work_n}, .used_at = g->begun};
    g->kept_work_n += g->list.work_n;
    return ST_OK;
}

static enum status begin(struct stream *s)
{
    struct cuda_graphs *g = s->graphs;
    if (g->list.work_n <= WORK_FEW)
        return play(s, &g->list, g->few);
    uint64_t hash = hash_of(&g->list);
    struct kept *kept = find(g, hash);
    g->begun++;
    if (g->scalars_n > 0)
        TRY(dev_cuda_ring_in(&s->ring, s->stream, g->scalars_device, g->scalars,
                             (size_t)g->scalars_n * sizeof *g->scalars));
    if (!kept) {
        TRY(play(s, &g->list, NULL));
        return keep(g, hash);
    }
    kept->used_at = g->begun;
    TRY(try_graph(s, kept));
    if (!kept->graph)
        return play(s, &g->list, NULL);
    CUDA_CHECK(cudaGraphLaunch(kept->graph, s->stream));
    return ST_OK;
}

enum status dev_cuda_graph_flush(struct stream *s)
{
    struct cuda_graphs *g = s->graphs;
    if (!g || g->list.used == 0)
        return ST_OK;
    enum status st = begin(s);
    g->list.used = 0;
    g->list.work_n = g->scalars_n = 0;
    return st;
}
#endif
