/* step_update_sums — see step_update_sums.h. */
#include "train/feature/step_update_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "mesh/store/state.h"

/* ---- open and close ---- */

void step_update_sums_open(struct step *s)
{
    if (!s->config.checks_updates || s->config.is_eval)
        return;
    struct step_update_sums *u = memory_new(1, sizeof *u);
    u->kept = memory_new((size_t)store_layout(s->store)->buckets_n, sizeof *u->kept);
    s->update_sums = u;
}

void step_update_sums_close(struct step *s)
{
    if (s->update_sums)
        free(s->update_sums->kept);
    free(s->update_sums);
    s->update_sums = NULL;
}

/* ---- the update ---- */

/* steps_updated — steps done with the update that was made last, or is deferred. */
static int64_t steps_updated(const struct step *s) { return s->step_i + s->spikes.skipped_n + 1; }

static bool is_known(const struct step *s, int bucket)
{
    const struct step_update_kept *kept = &s->update_sums->kept[bucket];
    return kept->is_known && kept->writes == store_params_writes(s->store);
}

/* compare — the sums of what a bucket has now with the kept ones. */
static void compare(struct step *s, int bucket, const uint32_t *now)
{
    struct step_update_sums *u = s->update_sums;
    const struct step_update_kept *kept = &u->kept[bucket];
    if (!is_known(s, bucket))
        return;
    for (int part = 0; part < step_parts(s) && !u->is_found; part++) {
        u->is_found = now[part] != kept->written[part];
        u->part = part;
        u->bucket = bucket;
        u->steps = kept->steps;
    }
}

struct optim_sums *step_update_sums_of(const struct step *s)
{
    return s->update_sums && !dev_is_discrete(s->config.dev) ? &s->update_sums->now : NULL;
}

void step_update_sums_begin(struct step *s)
{
    if (s->update_sums)
        s->update_sums->now = (struct optim_sums){{0}, {0}};
}

void step_update_sums_end(struct step *s, int bucket)
{
    struct step_update_sums *u = s->update_sums;
    if (!step_update_sums_of(s))
        return;
    compare(s, bucket, u->now.read);
    u->kept[bucket] = (struct step_update_kept){
        .writes = store_params_writes(s->store), .steps = steps_updated(s), .is_known = true};
    memcpy(u->kept[bucket].written, u->now.written, sizeof u->kept[bucket].written);
}

/* ---- between two updates ---- */

static uint32_t bits_sum(struct tensor from, int64_t first, int64_t elems)
{
    const uint32_t *bits = tensor_at(from, first).data;
    uint32_t sum = 0;
    for (int64_t i = 0; i < elems; i++)
        sum += bits[i];
    return sum;
}

/* sum_up — a bucket as it lies in memory. Muon's second moments of what no hidden matrix has lie
 * one behind the other (step/run.c). */
static void sum_up(struct step *s, int bucket, uint32_t now[STEP_PARTS_MAX])
{
    const struct store_local_shard a = store_local_shard(s->store, bucket);
    const int64_t spans_n = optim_cut(s->spans, s->spans_n, a.first, a.elems, s->cut);
    const struct tensor part[STEP_PARTS_MAX] = {a.p, a.m, a.v};
    memset(now, 0, STEP_PARTS_MAX * sizeof *now);
    for (int i = 0; i < step_parts(s); i++)
        for (int64_t span = 0, packed = 0; span < spans_n; packed += s->cut[span++].elems) {
            const bool is_packed = state_describe(store_state(s->store), i, 0).skips_hidden;
            now[i] +=
                bits_sum(part[i], is_packed ? packed : s->cut[span].offset, s->cut[span].elems);
        }
}

static void verify(struct step *s, int bucket)
{
    uint32_t now[STEP_PARTS_MAX];
    if (!is_known(s, bucket))
        return;
    sum_up(s, bucket, now);
    compare(s, bucket, now);
}

void step_update_sums_keep(struct step *s, int64_t steps)
{
    if (!step_update_sums_of(s))
        return;
    s->step_i = steps - s->spikes.skipped_n - 1;
    for (int i = 0; i < store_layout(s->store)->buckets_n; i++) {
        struct step_update_kept *kept = &s->update_sums->kept[i];
        sum_up(s, i, kept->written);
        kept->writes = store_params_writes(s->store);
        kept->steps = steps;
        kept->is_known = true;
    }
}

enum status step_update_sums_verify(struct step *s)
{
    double sums[STEP_UPDATE_SUMS_TOLD];
    struct comm_ticket ticket;
    if (!s->update_sums)
        return ST_OK;
    TRY(store_drain(s->store));
    for (int i = 0; i < store_layout(s->store)->buckets_n; i++)
        verify(s, i);
    step_update_sums_tell(s, sums);
    TRY(store_all_reduce_begin(s->store, sums, STEP_UPDATE_SUMS_TOLD, &ticket));
    TRY(store_wait(s->store, ticket));
    return step_update_sums_heed(s, sums);
}

/* ---- all ranks ---- */

enum { TOLD_RANKS, TOLD_RANK, TOLD_STEPS };
_Static_assert(TOLD_STEPS + 1 == STEP_UPDATE_SUMS_TOLD, "all numbers have room");

static int own_rank(const struct step *s)
{
    return comm_place(s->local.world ? s->local.world : s->config.comm)->rank;
}

/* The steps that are suspect are counted back from the last update, which is the same on all ranks:
 * of several ranks the sum goes back too far, and never not far enough. */
void step_update_sums_tell(const struct step *s, double *out)
{
    const struct step_update_sums *u = s->update_sums;
    const bool is_found = u && u->is_found;
    out[TOLD_RANKS] = is_found;
    out[TOLD_RANK] = is_found ? own_rank(s) : 0;
    out[TOLD_STEPS] = is_found ? (double)(steps_updated(s) - u->steps) : 0;
}

struct step_changed step_update_sums_changed(const struct step *s)
{
    return s->update_sums ? s->update_sums->agreed : (struct step_changed){.rank = -1};
}

static enum status fail_own(const struct step *s)
{
    const struct step_update_sums *u = s->update_sums;
    /* The first and the last tensor of which this rank updates elements in the bucket. */
    const struct store_local_shard a = store_local_shard(s->store, u->bucket);
    const char *first = "", *last = "";
    for (int i = 0; i < s->table.params_n; i++) {
        const struct param *p = &s->table.param[i];
        if (p->offset + p->elems <= a.first || p->offset >= a.first + a.elems)
            continue;
        first = first[0] ? first : p->name;
        last = p->name;
    }
    return FAIL(ST_FAULT,
                "the %s of rank %d changed by themselves after the update of step %lld, within %s "
                "to %s: memory or a processor of this "
                "node is suspect; run `convoy check` there, and replace the node if this comes "
                "back",
                step_part_names[u->part], own_rank(s), (long long)u->steps, first, last);
}

enum status step_update_sums_verify_own(struct step *s)
{
    struct step_update_sums *u = s->update_sums;
    if (!u || u->agreed.ranks_n > 0)
        return ST_OK;
    for (int i = 0; i < store_layout(s->store)->buckets_n; i++)
        verify(s, i);
    if (!u->is_found)
        return ST_OK;
    u->agreed = (struct step_changed){.ranks_n = 1, .rank = own_rank(s), .steps = u->steps};
    return fail_own(s);
}

enum status step_update_sums_heed(struct step *s, const double *sums)
{
    struct step_update_sums *u = s->update_sums;
    if (!u || sums[TOLD_RANKS] == 0)
        return ST_OK;
    const int n = (int)sums[TOLD_RANKS];
    u->agreed = (struct step_changed){.ranks_n = n,
                                      .rank = n == 1 ? (int)sums[TOLD_RANK] : -1,
                                      .steps = steps_updated(s) - (int64_t)sums[TOLD_STEPS]};
    if (u->is_found)
        return fail_own(s);
    if (n > 1)
        return FAIL(ST_PEER,
                    "parameters or moments of %d ranks changed by themselves after the update of "
                    "step %lld; their logs name them",
                    n, (long long)u->agreed.steps);
    return FAIL(
        ST_PEER,
        "parameters or moments of rank %d changed by themselves after the update of step %lld",
        u->agreed.rank, (long long)u->agreed.steps);
}
