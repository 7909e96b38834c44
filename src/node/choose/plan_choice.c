/* plan_choice — see plan_choice.h. Read plan_choice_make first, at the foot. */
#include "node/choose/plan_choice.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "conf/conf_choice.h"
#include "node/choose/memory_check.h"

#define MIB ((int64_t)1 << 20)
#define SHARD_RANKS_MIN 4 /* number of GPUs from which SHARD=auto shards */
#define STAGE_POINTS 8

/* clang-format off */
#define WORD(row, value, word) word,
static const char *const shard_words[] = {CONF_SHARD_LIST(WORD)};
/* clang-format on */

/* ---- the ways ---- */

/* hybrid_or — returns the value that SHARD=hybrid has for this job. hybrid needs several nodes with
 * several workers each: with one node it is full, with one worker on each node it is none. */
static enum layout_shard hybrid_or(const struct comm_place *at)
{
    return at->nodes == 1    ? LAYOUT_SHARD_FULL
           : at->locals == 1 ? LAYOUT_SHARD_NONE
                             : LAYOUT_SHARD_HYBRID;
}

/* is_divided — returns true if matrices, samples or layers are divided among ranks. Then the plans
 * of ranks depend on each other, and the ranks of a node have no replicas on another node. */
static bool is_divided(const struct step_config *config)
{
    return config->axis_ranks[MESH_AXIS_TENSOR] > 1 || config->axis_ranks[MESH_AXIS_CONTEXT] > 1 ||
           config->axis_ranks[MESH_AXIS_PIPELINE] > 1;
}

static bool has_stages(const struct step_config *config)
{
    return config->axis_ranks[MESH_AXIS_PIPELINE] > 1;
}

/* open_shards — lists the values that SHARD leaves open, the fastest first. full needs the least
 * memory. */
static int open_shards(const struct step_config *config, const struct memory_plan_place *place,
                       enum layout_shard out[LAYOUT_SHARD_AUTO])
{
    enum layout_shard asked = config->store.shard, hybrid = hybrid_or(&place->at);
    int n = 0;
    out[n++] = asked == LAYOUT_SHARD_HYBRID ? hybrid
               : asked == LAYOUT_SHARD_AUTO ? LAYOUT_SHARD_NONE
                                            : asked;
    if (asked != LAYOUT_SHARD_AUTO || !place->is_discrete || place->at.ranks < SHARD_RANKS_MIN)
        return n;
    out[n++] = LAYOUT_SHARD_OPTIMIZER;
    out[n++] = LAYOUT_SHARD_GRADIENTS;
    if (hybrid == LAYOUT_SHARD_HYBRID &&
        (!grad_compress_quantises(config->store.compress) && !is_divided(config)))
        out[n++] = LAYOUT_SHARD_HYBRID;
    out[n++] = LAYOUT_SHARD_FULL;
    return n;
}

void plan_choice_ways(const struct step_config *config, const struct memory_plan_place *place,
                      struct plan_ways *out)
{
    /* The number of steps from one value of RECOMPUTE to the next. Without stages it is the number
     * of layers. With stages, the split of layers depends on the recomputed layers, so keeping less
     * in total may need more memory in one stage. Each way is then planned separately, so there are
     * few steps. */
    int64_t layers = config->dims.layers > 0 ? config->dims.layers : 1;
    int64_t points = has_stages(config) && layers > STAGE_POINTS ? STAGE_POINTS : layers;
    *out = (struct plan_ways){.asked = config->recompute,
                              .layers = config->dims.layers > 0 ? config->dims.layers : 1,
                              .points = points,
                              .is_falling = !has_stages(config)};
    out->shards_n = open_shards(config, place, out->shard);
    out->first = place->is_discrete ? 0 : points; /* on a CPU, begin at light */
    int64_t recompute_n = config->recompute.way == MODEL_RECOMPUTE_AUTO
                              ? MODEL_RECOMPUTE_BLOCK * points - out->first + 1
                              : 1;
    out->n = (int)recompute_n * out->shards_n;
}

struct plan_way plan_choice_way(const struct plan_ways *ways, int i)
{
    struct plan_way way = {ways->asked, ways->shard[i % ways->shards_n]};
    if (ways->asked.way == MODEL_RECOMPUTE_AUTO)
        way.recompute = model_recompute_nth(ways->layers, (ways->first + i / ways->shards_n) *
                                                              ways->layers / ways->points);
    return way;
}

void plan_choice_set(struct step_config *config, struct plan_way way)
{
    config->recompute = way.recompute;
    config->store.shard = way.shard;
}

static bool is_shard_open(const struct plan_ways *ways) { return ways->shards_n > 1; }

/* is_common — returns true if all ranks must use the same way: SHARD is open, recomputation
 * communicates with the other ranks of the group, or the split of layers depends on it. */
static bool is_common(const struct step_config *config, const struct plan_ways *ways)
{
    return is_shard_open(ways) || is_divided(config);
}

/* ---- which ways fit ---- */

enum status plan_choice_vote(const struct plan_ways *ways, plan_choice_fits_fn *fits, void *arg,
                             float *votes)
{
    for (int shard = 0; ways->is_falling && shard < ways->shards_n; shard++) {
        /* The need falls along the ways of one SHARD: find the first way that fits. All later ways
         * fit too. */
        /* the first way that fits is in [low, high] */
        int low = 0, high = ways->n / ways->shards_n;
        while (low < high) {
            int middle = (low + high) / 2;
            bool does;
            TRY(fits(arg, middle * ways->shards_n + shard, &does));
            if (does)
                high = middle;
            else
                low = middle + 1;
        }
        for (int i = low; i < ways->n / ways->shards_n; i++)
            votes[i * ways->shards_n + shard] = 1;
    }
    for (int i = 0; !ways->is_falling && i < ways->n; i++) {
        bool does;
        TRY(fits(arg, i, &does));
        votes[i] = does;
    }
    return ST_OK;
}

int plan_choice_first(const float *votes, int ways_n, int ranks)
{
    for (int way = 0; way < ways_n; way++)
        if (votes[way] >= (float)ranks)
            return way;
    return ways_n - 1;
}

/* ---- the decision ---- */

/* The ranks sum one vector: votes for each way, followed by one element for the free MiB of each
 * rank; -1: the rank failed. All these numbers are exact in fp32. */
enum status plan_choice_decide(struct comm *comm, const struct plan_offer *offer, float *votes,
                               int ways_n, struct plan_decision *out)
{
    int rank = comm ? comm_place(comm)->rank : 0, ranks = comm ? comm_place(comm)->ranks : 1;
    struct tensor all = {votes, DTYPE_F32};
    float *mibs = votes + ways_n;
    mibs[rank] = offer->has_failed       ? -1
                 : offer->free_bytes < 0 ? 0
                                         : (float)(offer->free_bytes / MIB);
    if (ranks > 1)
        TRY(comm_all_reduce(comm, all, all, ways_n + ranks));
    struct plan_decision got = {.way = plan_choice_first(votes, ways_n, ranks), .free_bytes = -1};
    for (int i = 0; i < ranks; i++) {
        const int64_t free_bytes = (int64_t)mibs[i] * MIB; /* 0: unknown */
        if (mibs[i] < 0)
            return FAIL(ST_PEER,
                        "rank %d failed before the ranks had chosen RECOMPUTE and SHARD; see its "
                        "own message",
                        i);
        if (free_bytes > 0 && (got.free_bytes < 0 || free_bytes < got.free_bytes)) {
            got.free_bytes = free_bytes;
            got.rank = i;
        }
    }
    *out = got;
    return ST_OK;
}

/* ---- the need of this rank ---- */

/* A choice in progress, on this rank. */
struct plan_choice {
    const struct conf *conf;
    const struct dev *dev;
    int worker_i;
    const struct trainer_config *config;
    /* the settings; SHARD is resolved for these nodes unless it is open */
    struct step_config asked;
    struct plan_ways ways;
    struct plan_offer offer;
};

/* need_of — returns the bytes that a way needs. */
static enum status need_of(const struct plan_choice *c, int way, int64_t *bytes_out)
{
    struct trainer_config config = *c->config;
    plan_choice_set(&config.step, plan_choice_way(&c->ways, way));
    return memory_check_need(c->conf, &config, c->worker_i, c->dev, bytes_out);
}

/* fits_here — returns true if a way fits on this rank. The last way needs no margin, because no way
 * is smaller. */
static enum status fits_here(void *arg, int way, bool *out)
{
    const struct plan_choice *c = arg;
    int64_t need_bytes, margin_bytes = way + 1 < c->ways.n ? c->offer.margin_bytes : 0;
    TRY(need_of(c, way, &need_bytes));
    *out = c->offer.free_bytes < 0 || need_bytes <= c->offer.free_bytes - margin_bytes;
    return ST_OK;
}

/* ---- the log ---- */

/* text_faster — appends the previous way, which would be faster, and its need. */
static void text_faster(const struct plan_choice *c, int way, struct text *out)
{
    const struct plan_way before = plan_choice_way(&c->ways, way - 1);
    char need[32], margin[32], word[32];
    int64_t need_bytes;
    if (need_of(c, way - 1, &need_bytes) != ST_OK) {
        status_clear();
        return;
    }
    text_format_bytes(margin, sizeof margin, (double)c->offer.margin_bytes);
    text_format_bytes(need, sizeof need, (double)need_bytes);
    text_add(out, "; RECOMPUTE=%s SHARD=%s would need %s, and %s are kept free",
             model_recompute_text(before.recompute, word, sizeof word), shard_words[before.shard],
             need, margin);
}

/* log_choice — logs the choice. auto moves by single layers, so with a little less memory after a
 * restart it may choose another number of layers: that is no warning. */
static enum status log_choice(const struct plan_choice *c, const struct plan_decision *got,
                              const struct plan_way *last)
{
    struct text text = {.limit = 512};
    char word[32];
    const struct plan_way way = plan_choice_way(&c->ways, got->way);
    bool is_first = last->recompute.way == MODEL_RECOMPUTE_AUTO;
    /* "RECOMPUTE=auto uses light", and the same for SHARD. */
    if (c->asked.recompute.way == MODEL_RECOMPUTE_AUTO)
        text_add(&text, "RECOMPUTE=auto uses %s",
                 model_recompute_text(way.recompute, word, sizeof word));
    if (c->asked.store.shard == LAYOUT_SHARD_AUTO)
        text_add(&text, "%sSHARD=auto uses %s", text.len > 0 ? ", " : "", shard_words[way.shard]);
    /* The need of the way, and the free memory. */
    char need[32], free_text[32];
    int64_t need_bytes;
    TRY(need_of(c, got->way, &need_bytes));
    text_format_bytes(need, sizeof need, (double)need_bytes);
    text_format_bytes(free_text, sizeof free_text, (double)got->free_bytes);
    if (got->free_bytes < 0)
        text_add(&text, ": needs %s; how much memory is free is unknown", need);
    else if (is_common(&c->asked, &c->ways))
        text_add(&text, ": needs %s %s; %s are free on rank %d, which has the least", need,
                 dev_is_discrete(c->dev) ? "on rank 0" : "on node 0", free_text, got->rank);
    else
        text_add(&text, ": needs %s of the %s that are free", need, free_text);
    if (got->way > 0)
        text_faster(c, got->way, &text);
    if (!is_first)
        text_add(&text, "; before this restart it was RECOMPUTE=%s SHARD=%s",
                 model_recompute_text(last->recompute, word, sizeof word),
                 shard_words[last->shard]);
    const bool is_other_word = way.recompute.way != last->recompute.way || way.shard != last->shard;
    log_at(!is_first && is_other_word ? LOG_LEVEL_WARN : LOG_LEVEL_INFO, __FILE__, "%s", text.data);
    text_free(&text);
    return ST_OK;
}

/* ---- for a generation ---- */

/* vote_on_ways — votes and decides. A rank that fails sends its failure instead of its votes, and
 * reports its own error. */
static enum status vote_on_ways(struct plan_choice *c, struct comm *comm, float *votes,
                                struct plan_decision *out)
{
    enum status st = plan_choice_vote(&c->ways, fits_here, c, votes);
    if (st == ST_OK)
        return plan_choice_decide(comm, &c->offer, votes, c->ways.n, out);
    struct status_saved saved;
    status_save(&saved);
    c->offer.has_failed = true;
    if (comm)
        (void)plan_choice_decide(comm, &c->offer, votes, c->ways.n, out);
    status_restore(&saved);
    return st;
}

static enum status choose_way(struct plan_choice *c, struct comm *comm,
                              struct trainer_config *config, struct plan_way *last)
{
    struct plan_decision got;
    const bool is_alone = !is_common(&c->asked, &c->ways);
    /* votes has room for all ways and ranks. */
    float *votes = memory_new((size_t)c->ways.n + (size_t)(is_alone ? 1 : comm_place(comm)->ranks),
                              sizeof *votes);
    memory_check_offer(c->conf, c->worker_i, c->dev, &c->offer);
    enum status st = vote_on_ways(c, is_alone ? NULL : comm, votes, &got);
    free(votes);
    TRY(st);
    struct plan_way way = plan_choice_way(&c->ways, got.way);
    const bool is_same = way.recompute.way == last->recompute.way &&
                         way.recompute.layers == last->recompute.layers && way.shard == last->shard;
    if (!is_same && (comm_place(comm)->rank == 0 || (is_alone && got.way > 0)))
        TRY(log_choice(c, &got, last));
    plan_choice_set(&config->step, way);
    *last = way;
    return ST_OK;
}

enum status plan_choice_make(const struct conf *conf, struct comm *comm, const struct dev *dev,
                             struct trainer_config *config, struct plan_way *last)
{
    const struct memory_plan_place place = {.at = *comm_place(comm),
                                            .is_discrete = dev_is_discrete(dev)};
    struct plan_choice c = {.conf = conf,
                            .dev = dev,
                            .worker_i = place.at.local,
                            .config = config,
                            .asked = config->step};
    bool is_first = last->recompute.way == MODEL_RECOMPUTE_AUTO;
    plan_choice_ways(&c.asked, &place, &c.ways);
    if (c.asked.store.shard == LAYOUT_SHARD_HYBRID && is_first && place.at.rank == 0) {
        /* Log the value that SHARD=hybrid has on these nodes. */
        enum layout_shard shard = hybrid_or(&place.at);
        if (shard == LAYOUT_SHARD_HYBRID)
            LOG_INFO("SHARD=hybrid: full over the %d workers of a node, replicas on %d nodes",
                     place.at.locals, place.at.nodes);
        else
            LOG_WARN(
                "SHARD=hybrid needs several nodes with several workers each; with nodes=%d and "
                "workers of a node=%d it is SHARD=%s",
                place.at.nodes, place.at.locals, shard_words[shard]);
    }
    if (!is_shard_open(&c.ways)) /* a single way is no choice */
        c.asked.store.shard = c.ways.shard[0];
    if (c.ways.n > 1)
        return choose_way(&c, comm, config, last);
    *last = plan_choice_way(&c.ways, 0);
    plan_choice_set(&config->step, *last);
    return ST_OK;
}
