/* plan_choice — see plan_choice.h. Read plan_choice_make first, at the foot. */
#include "node/plan_choice.h"

#include <stdlib.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/text.h"
#include "conf/conf_choice.h"
#include "node/memory_check.h"

#define MIB ((int64_t)1 << 20)
#define SHARD_RANKS_MIN 4 /* GPUs from which on SHARD=auto shards */

/* clang-format off */
#define WORD(row, value, word) word,
static const char *const recompute_words[] = {CONF_RECOMPUTE_LIST(WORD)};
static const char *const shard_words[] = {CONF_SHARD_LIST(WORD)};
/* clang-format on */

/* ---- the ways ---- */

/* hybrid_or — SHARD=hybrid needs several nodes of several workers: with one node it is full, with
 * one worker on each it is none. */
static enum layout_shard hybrid_or(const struct comm_place *at)
{
    return at->nodes == 1    ? LAYOUT_SHARD_FULL
           : at->locals == 1 ? LAYOUT_SHARD_NONE
                             : LAYOUT_SHARD_HYBRID;
}

/* is_divided — matrices or layers are divided: then plans of ranks depend on each other, and the
 * ranks of a node have no replicas in another. */
static bool is_divided(const struct step_config *config)
{
    return config->axis_ranks[MESH_AXIS_TENSOR] > 1 || config->axis_ranks[MESH_AXIS_PIPELINE] > 1;
}

/* takes_hybrid — settings that conf_rules refuses with SHARD=hybrid keep it from being chosen. */
static bool takes_hybrid(const struct step_config *config)
{
    return config->store.compress == GRAD_COMPRESS_KIND_NONE &&
           config->store.embed_rows != SPARSE_EMBED_CHOICE_ON && !is_divided(config);
}

/* open_shards — what SHARD leaves open, the fastest first; full needs least memory. */
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
    if (hybrid == LAYOUT_SHARD_HYBRID && takes_hybrid(config))
        out[n++] = LAYOUT_SHARD_HYBRID;
    out[n++] = LAYOUT_SHARD_FULL;
    return n;
}

int plan_choice_ways(const struct step_config *config, const struct memory_plan_place *place,
                     struct plan_way out[PLAN_WAYS_MAX])
{
    bool is_open = config->recompute == MODEL_RECOMPUTE_AUTO;
    int fastest = place->is_discrete ? MODEL_RECOMPUTE_NONE : MODEL_RECOMPUTE_LIGHT;
    int first = is_open ? fastest : (int)config->recompute;
    int last = is_open ? MODEL_RECOMPUTE_BLOCK : (int)config->recompute, n = 0;
    enum layout_shard shards[LAYOUT_SHARD_AUTO];
    int shards_n = open_shards(config, place, shards);
    for (int recompute = first; recompute <= last; recompute++)
        for (int i = 0; i < shards_n; i++)
            out[n++] = (struct plan_way){(enum model_recompute)recompute, shards[i]};
    return n;
}

void plan_choice_set(struct step_config *config, struct plan_way way)
{
    config->recompute = way.recompute;
    config->store.shard = way.shard;
}

static bool is_shard_open(const struct plan_way *ways, int ways_n)
{
    return ways[0].shard != ways[ways_n - 1].shard;
}

/* is_common — the ranks have to take the same way: SHARD is open, a pass that computes something
 * again asks the other ranks of its tensor group, or the split of layers counts it. */
static bool is_common(const struct step_config *config, const struct plan_way *ways, int ways_n)
{
    return is_shard_open(ways, ways_n) || is_divided(config);
}

/* ---- the decision ---- */

static bool fits(const struct plan_offer *offer, int way, int ways_n)
{
    int64_t margin_bytes = way + 1 < ways_n ? offer->margin_bytes : 0;
    return offer->free_bytes < 0 || offer->need_bytes[way] <= offer->free_bytes - margin_bytes;
}

/* first_for_all — votes: on how many ranks each way fits. */
static int first_for_all(const float *votes, int ways_n, int ranks)
{
    for (int way = 0; way < ways_n; way++)
        if (votes[way] >= (float)ranks)
            return way;
    return ways_n - 1;
}

/* least — the rank with least free memory; mibs: of each, 0: unknown. */
static void least(const float *mibs, int ranks, struct plan_decision *out)
{
    out->free_bytes = -1;
    for (int rank = 0; rank < ranks; rank++)
        if (mibs[rank] > 0 &&
            (out->free_bytes < 0 || (int64_t)mibs[rank] * MIB < out->free_bytes)) {
            out->free_bytes = (int64_t)mibs[rank] * MIB;
            out->rank = rank;
        }
}

/* The ranks add up one vector: votes for each way, then a place for the free MiB of each rank. All
 * these numbers are exact in fp32. */
static enum status decide_by(struct comm *comm, const struct plan_offer *offer, int ways_n,
                             float *votes, struct plan_decision *out)
{
    int rank = comm ? comm_place(comm)->rank : 0, ranks = comm ? comm_place(comm)->ranks : 1;
    struct tensor all = {votes, DTYPE_F32};
    for (int way = 0; way < ways_n; way++)
        votes[way] = fits(offer, way, ways_n);
    votes[ways_n + rank] = offer->free_bytes < 0 ? 0 : (float)(offer->free_bytes / MIB);
    if (ranks > 1)
        TRY(comm_all_reduce(comm, all, all, ways_n + ranks));
    *out = (struct plan_decision){.way = first_for_all(votes, ways_n, ranks)};
    least(votes + ways_n, ranks, out);
    return ST_OK;
}

enum status plan_choice_decide(struct comm *comm, const struct plan_offer *offer, int ways_n,
                               struct plan_decision *out)
{
    size_t n = (size_t)ways_n + (size_t)(comm ? comm_place(comm)->ranks : 1);
    float *votes = calloc(n, sizeof *votes);
    if (!votes)
        return FAIL(ST_RETRY, "out of memory: the votes of %zu ranks; use a machine with more",
                    n - (size_t)ways_n);
    enum status st = decide_by(comm, offer, ways_n, votes, out);
    free(votes);
    return st;
}

/* ---- the log ---- */

/* text_way — "RECOMPUTE=auto takes light", and the same of SHARD. */
static void text_way(const struct step_config *asked, struct plan_way way, struct text *out)
{
    if (asked->recompute == MODEL_RECOMPUTE_AUTO)
        text_add(out, "RECOMPUTE=auto takes %s", recompute_words[way.recompute]);
    if (asked->recompute == MODEL_RECOMPUTE_AUTO && asked->store.shard == LAYOUT_SHARD_AUTO)
        text_add(out, ", ");
    if (asked->store.shard == LAYOUT_SHARD_AUTO)
        text_add(out, "SHARD=auto takes %s", shard_words[way.shard]);
}

/* text_faster — the way before, which would be faster, and what it would need. */
static void text_faster(const struct plan_way *before, const struct plan_offer *offer, int way,
                        struct text *out)
{
    char need[32], margin[32];
    text_format_bytes(margin, sizeof margin, (double)offer->margin_bytes);
    text_format_bytes(need, sizeof need, (double)offer->need_bytes[way]);
    text_add(out, "; RECOMPUTE=%s SHARD=%s would need %s, and %s are kept free",
             recompute_words[before->recompute], shard_words[before->shard], need, margin);
}

static void log_choice(const struct step_config *asked, const struct plan_way *ways, int ways_n,
                       const struct plan_offer *offer, const struct plan_decision *got,
                       const struct plan_way *last)
{
    struct text text = {.limit = 512};
    struct plan_way way = ways[got->way];
    char need[32], free_text[32];
    text_way(asked, way, &text);
    text_format_bytes(need, sizeof need, (double)offer->need_bytes[got->way]);
    text_format_bytes(free_text, sizeof free_text, (double)got->free_bytes);
    if (got->free_bytes < 0)
        text_add(&text, ": needs %s; how much memory is free is unknown", need);
    else if (is_common(asked, ways, ways_n))
        text_add(&text, ": needs %s on rank 0; %s are free on rank %d, which has least", need,
                 free_text, got->rank);
    else
        text_add(&text, ": needs %s of the %s that are free", need, free_text);
    if (got->way > 0)
        text_faster(&ways[got->way - 1], offer, got->way - 1, &text);
    if (last->recompute == MODEL_RECOMPUTE_AUTO)
        LOG_INFO("%s", text.data);
    else
        LOG_WARN("%s; before this restart it was RECOMPUTE=%s SHARD=%s", text.data,
                 recompute_words[last->recompute], shard_words[last->shard]);
    text_free(&text);
}

/* log_hybrid — what SHARD=hybrid means here. */
static void log_hybrid(const struct comm_place *at)
{
    enum layout_shard shard = hybrid_or(at);
    if (shard == LAYOUT_SHARD_HYBRID)
        LOG_INFO("SHARD=hybrid: full over the %d workers of a node, replicas on %d nodes",
                 at->locals, at->nodes);
    else
        LOG_WARN("SHARD=hybrid needs several nodes with several workers each; with nodes=%d and "
                 "workers of a node=%d it is SHARD=%s",
                 at->nodes, at->locals, shard_words[shard]);
}

/* ---- for a generation ---- */

static enum status read_offer(const struct conf *conf, int worker_i, const struct dev *dev,
                              const struct trainer_config *asked, const struct plan_way *ways,
                              int ways_n, struct plan_offer *out)
{
    struct trainer_config config = *asked;
    for (int way = 0; way < ways_n; way++) {
        plan_choice_set(&config.step, ways[way]);
        TRY(memory_check_offer(conf, &config, worker_i, dev, &out->need_bytes[way], out));
    }
    return ST_OK;
}

enum status plan_choice_make(const struct conf *conf, struct comm *comm, const struct dev *dev,
                             struct trainer_config *config, struct plan_way *last)
{
    const struct memory_plan_place place = {.at = *comm_place(comm),
                                            .is_discrete = dev_is_discrete(dev)};
    struct plan_way ways[PLAN_WAYS_MAX];
    struct plan_offer offer;
    struct plan_decision got;
    struct step_config asked = config->step;
    int ways_n = plan_choice_ways(&asked, &place, ways);
    bool is_first = last->recompute == MODEL_RECOMPUTE_AUTO;
    plan_choice_set(&config->step, ways[0]);
    if (asked.store.shard == LAYOUT_SHARD_HYBRID && is_first && place.at.rank == 0)
        log_hybrid(&place.at);
    if (!is_shard_open(ways, ways_n)) /* one way alone is no choice */
        asked.store.shard = ways[0].shard;
    if (ways_n == 1) {
        *last = ways[0];
        return ST_OK;
    }
    if (!is_common(&asked, ways, ways_n))
        comm = NULL;
    TRY(read_offer(conf, place.at.local, dev, config, ways, ways_n, &offer));
    TRY(plan_choice_decide(comm, &offer, ways_n, &got));
    struct plan_way way = ways[got.way];
    bool is_new = way.recompute != last->recompute || way.shard != last->shard;
    if (is_new && (place.at.rank == 0 || (comm == NULL && got.way > 0)))
        log_choice(&asked, ways, ways_n, &offer, &got, last);
    plan_choice_set(&config->step, way);
    *last = way;
    return ST_OK;
}
