/* step_update_sums — see step_update_sums.h. */
#include "train/feature/step_update_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "mesh/store/state.h"
#include "train/step/feature.h"

/* ---- the update ---- */

static bool is_known(const struct step_update_sums *u, int bucket)
{
    const struct step_update_kept *kept = &u->kept[bucket];
    return kept->is_known && kept->writes == store_params_writes(u->s->store);
}

/* compare_sums — Compares a bucket's sums of now with the kept ones. */
static void compare_sums(struct step_update_sums *u, int bucket, const uint32_t *now)
{
    const struct step_update_kept *kept = &u->kept[bucket];
    if (!is_known(u, bucket))
        return;
    for (int array = 0; array < step_arrays(u->s->step) && !u->is_found; array++) {
        u->is_found = now[array] != kept->written[array];
        u->array = array;
        u->bucket = bucket;
        u->steps = kept->steps;
    }
}

static void keep_written(void *self, int bucket)
{
    struct step_update_sums *u = self;
    struct step_update_kept *kept = &u->kept[bucket];
    if (dev_is_discrete(u->s->config.dev))
        return;
    compare_sums(u, bucket, u->now.read);
    *kept = (struct step_update_kept){.writes = store_params_writes(u->s->store),
                                      .steps = step_steps_updated(u->s->step),
                                      .is_known = true};
    memcpy(kept->written, u->now.written, sizeof kept->written);
}

/* ---- all ranks ---- */

enum { TOLD_RANKS, TOLD_RANK, TOLD_STEPS };
_Static_assert(TOLD_STEPS + 1 == STEP_CHANGED, "all numbers have room");

static int own_rank(const struct step_update_sums *u) { return comm_place(step_world(u->s))->rank; }

/* Writes this rank's numbers. The suspect steps are counted back from the last update, which is the
 * same on all ranks. If several ranks report, the sum goes back too far, and never not far
 * enough. */
static void write_change(const struct step_update_sums *u, double *out)
{
    out[TOLD_RANKS] = u->is_found;
    out[TOLD_RANK] = u->is_found ? own_rank(u) : 0;
    out[TOLD_STEPS] = u->is_found ? (double)(step_steps_updated(u->s->step) - u->steps) : 0;
}

static enum status fail_own(const struct step_update_sums *u)
{
    const struct step_core *s = u->s;
    /* The first and the last tensor with elements in the bucket that this rank updates. */
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
                step_array_names[u->array], own_rank(u), (long long)u->steps, first, last);
}

/* check_changed — Fails if the sums over all ranks contain a difference. */
static enum status check_changed(struct step_update_sums *u, const double *sums)
{
    if (sums[TOLD_RANKS] == 0)
        return ST_OK;
    const int n = (int)sums[TOLD_RANKS];
    u->agreed =
        (struct step_changed){.ranks_n = n,
                              .rank = n == 1 ? (int)sums[TOLD_RANK] : -1,
                              .steps = step_steps_updated(u->s->step) - (int64_t)sums[TOLD_STEPS]};
    if (u->is_found)
        return fail_own(u);
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

/* ---- between two updates ---- */

static uint32_t bits_sum(struct tensor from, int64_t first, int64_t elems)
{
    const uint32_t *bits = tensor_at(from, first).data;
    uint32_t sum = 0;
    for (int64_t i = 0; i < elems; i++)
        sum += bits[i];
    return sum;
}

/* sum_up — Sums a bucket as it lies in memory. With Muon the second moments outside hidden matrices
 * are contiguous (step/update.c). */
static void sum_up(struct step_update_sums *u, int bucket, uint32_t now[STEP_ARRAYS_MAX])
{
    const struct step *step = u->s->step;
    const struct store_local_shard a = store_local_shard(u->s->store, bucket);
    const struct optim_span *span;
    const int64_t spans_n = step_update_spans(step, &a, &span);
    const struct tensor array[STEP_ARRAYS_MAX] = {a.p, a.m, a.v};
    memset(now, 0, STEP_ARRAYS_MAX * sizeof *now);
    for (int i = 0; i < step_arrays(step); i++)
        for (int64_t at = 0, packed = 0; at < spans_n; packed += span[at++].elems) {
            const bool is_packed = state_describe(store_state(u->s->store), i, 0).skips_hidden;
            now[i] += bits_sum(array[i], is_packed ? packed : span[at].offset, span[at].elems);
        }
}

static void verify_all(struct step_update_sums *u)
{
    for (int i = 0; i < store_layout(u->s->store)->buckets_n; i++) {
        uint32_t now[STEP_ARRAYS_MAX];
        if (!is_known(u, i))
            continue;
        sum_up(u, i, now);
        compare_sums(u, i, now);
    }
}

void step_update_sums_keep(struct step *step, int64_t steps)
{
    struct step_update_sums *u = step_update_sums_of(step);
    if (!u || dev_is_discrete(u->s->config.dev))
        return;
    step_set_steps_updated(step, steps);
    for (int i = 0; i < store_layout(u->s->store)->buckets_n; i++) {
        struct step_update_kept *kept = &u->kept[i];
        sum_up(u, i, kept->written);
        kept->writes = store_params_writes(u->s->store);
        kept->steps = steps;
        kept->is_known = true;
    }
}

enum status step_update_sums_verify(struct step *step)
{
    struct step_update_sums *u = step_update_sums_of(step);
    double sums[STEP_CHANGED];
    struct comm_ticket ticket;
    if (!u)
        return ST_OK;
    TRY(store_drain(u->s->store));
    verify_all(u);
    write_change(u, sums);
    TRY(store_all_reduce_begin(u->s->store, sums, STEP_CHANGED, &ticket));
    TRY(store_wait(u->s->store, ticket));
    return check_changed(u, sums);
}

enum status step_update_sums_verify_own(struct step *step)
{
    struct step_update_sums *u = step_update_sums_of(step);
    if (!u || u->agreed.ranks_n > 0)
        return ST_OK;
    verify_all(u);
    if (!u->is_found)
        return ST_OK;
    u->agreed = (struct step_changed){.ranks_n = 1, .rank = own_rank(u), .steps = u->steps};
    return fail_own(u);
}

/* ---- the feature ---- */

static enum status tell_all(void *self, struct step_now *now)
{
    write_change(self, now->changed);
    return ST_OK;
}

static enum status heed_all(void *self, struct step_now *now)
{
    return check_changed(self, now->changed);
}

static void close_sums(void *self)
{
    free(((struct step_update_sums *)self)->kept);
    free(self);
}

static const struct step_feature update_sums = {
    .name = "update sums",
    .phase = {[STEP_PHASE_BEGIN] = tell_all, [STEP_PHASE_COUNTED] = heed_all},
    .bucket_updated = keep_written,
    .close = close_sums};

struct step_update_sums *step_update_sums_of(const struct step *step)
{
    return step_feature_find(step, &update_sums);
}

struct step_changed step_update_sums_changed(const struct step *step)
{
    const struct step_update_sums *u = step_update_sums_of(step);
    return u ? u->agreed : (struct step_changed){.rank = -1};
}

enum status step_update_sums_add(struct step_core *s)
{
    if (!s->config.checks_updates || s->config.is_eval)
        return ST_OK;
    struct step_update_sums *u = memory_new(1, sizeof *u);
    u->s = s;
    u->kept = memory_new((size_t)store_layout(s->store)->buckets_n, sizeof *u->kept);
    step_feature_add(s, &update_sums, u);
    if (!dev_is_discrete(s->config.dev))
        step_want_sums(s->step, &u->now);
    return ST_OK;
}
