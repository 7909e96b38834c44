/* step_update_sums — see step_update_sums.h. */
#include "train/feature/step_update_sums.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/memory.h"
#include "mesh/store/state.h"
#include "train/feature/step_checksums.h"
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
    for (int array = 0; array < step_arrays(u->s->step) && !u->is_found; array++) {
        u->is_found = now[array] != kept->written[array];
        u->array = array;
        u->bucket = bucket;
        u->steps = kept->steps;
    }
}

/* keep_written — Compares what a bucket's last update has read, and keeps what it has written. A
 * device that decides on updates may have skipped it. */
static void keep_written(struct step_update_sums *u, int bucket, const struct optim_sums *now)
{
    struct step_update_kept *kept = &u->kept[bucket];
    if (!kept->is_pending)
        return;
    kept->is_pending = false;
    if (now->updates == 0)
        return;
    if (kept->is_known && kept->writes == kept->next_writes)
        compare_sums(u, bucket, now->read);
    memcpy(kept->written, now->written, sizeof kept->written);
    kept->writes = kept->next_writes;
    kept->steps = kept->next_steps;
    kept->is_known = true;
}

/* collect_sums — Waits until the device has made the updates whose sums are not compared yet, and
 * compares them. */
static enum status collect_sums(struct step_update_sums *u)
{
    struct step_core *s = u->s;
    const int buckets_n = store_layout(s->store)->buckets_n;
    const size_t bytes = (size_t)buckets_n * sizeof *s->sums.updates;
    const struct optim_sums *now = s->sums.host;
    if (!u->is_pending)
        return ST_OK;
    u->is_pending = false;
    TRY(dev_copy(s->stream, s->sums.host, s->sums.updates, bytes));
    TRY(dev_sync(s->stream));
    for (int i = 0; i < buckets_n; i++)
        keep_written(u, i, &now[i]);
    return dev_fill(s->stream, s->sums.updates, 0, bytes);
}

/* begin_update — The sums of a bucket have room for one update. Between two steps a deferred update
 * may run while the one before it is not compared. */
static enum status begin_update(void *self, int bucket)
{
    struct step_update_sums *u = self;
    struct step_update_kept *kept = &u->kept[bucket];
    if (kept->is_pending)
        TRY(collect_sums(u));
    kept->next_writes = store_params_writes(u->s->store);
    kept->next_steps = step_steps_updated(u->s->step);
    kept->is_pending = u->is_pending = true;
    return ST_OK;
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
    char suspect[STEP_CHECKSUMS_SUSPECT];
    step_checksums_suspect(s, suspect, sizeof suspect);
    if (u->array == STEP_ARRAYS_MAX)
        return FAIL(ST_FAULT,
                    "frozen parameters of rank %d changed by themselves after step %lld: memory or "
                    "a processor of %s is suspect; run `convoy check` there, and replace it if "
                    "this comes back",
                    own_rank(u), (long long)u->steps, suspect);
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
                "to %s: memory or a processor of %s is suspect; run `convoy check` there, and "
                "replace it if this comes back",
                step_array_names[u->array], own_rank(u), (long long)u->steps, first, last, suspect);
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

/* sum_bucket — Adds a bucket to its checksums as it lies in memory. With Muon the second moments
 * outside hidden matrices are contiguous (step/update.c). */
static enum status sum_bucket(struct step_core *s, int bucket)
{
    const struct step *step = s->step;
    const struct store_local_shard a = store_local_shard(s->store, bucket);
    const struct optim_span *span;
    const int64_t spans_n = step_update_spans(step, &a, &span);
    const struct tensor array[STEP_ARRAYS_MAX] = {a.p, a.m, a.v};
    for (int i = 0; i < step_arrays(step); i++)
        for (int64_t at = 0, packed = 0; at < spans_n; packed += span[at++].elems) {
            const bool is_packed = state_describe(store_state(s->store), i, 0).skips_hidden;
            const int64_t from = is_packed ? packed : span[at].offset;
            TRY(step_checksums_add(s, bucket * STEP_ARRAYS_MAX + i, tensor_at(array[i], from),
                                   span[at].elems, span[at].offset));
        }
    return ST_OK;
}

/* sum_frozen — Adds the frozen parameters that this rank holds, if there are any, to checksum i. */
static enum status sum_frozen(struct step_core *s, int i)
{
    const struct store *frozen = store_frozen(s->store);
    int64_t words = 0;
    for (int bucket = 0; frozen && bucket < store_layout(frozen)->buckets_n; bucket++) {
        const struct store_local_shard a = store_local_shard(frozen, bucket);
        TRY(step_checksums_add(s, i, a.p, a.elems, words));
        words += (a.elems * (int64_t)dtype_bytes(a.p.dtype) + 3) / 4;
    }
    return ST_OK;
}

enum status step_update_sums_submit(struct step_core *s)
{
    const int buckets_n = store_layout(s->store)->buckets_n;
    TRY(step_checksums_begin(s, buckets_n * STEP_ARRAYS_MAX + 1));
    for (int i = 0; i < buckets_n; i++)
        TRY(sum_bucket(s, i));
    return sum_frozen(s, buckets_n * STEP_ARRAYS_MAX);
}

/* sum_all — Computes the checksums of the state. *out: as step_update_sums_submit. */
static enum status sum_all(struct step_update_sums *u, const struct step_checksum **out)
{
    TRY(step_update_sums_submit(u->s));
    return step_checksums_end(u->s, out);
}

/* take_bucket — Returns the sums of a bucket as an update computes them. */
static void take_bucket(const struct step_checksum *sums, int bucket, uint32_t out[STEP_ARRAYS_MAX])
{
    for (int i = 0; i < STEP_ARRAYS_MAX; i++)
        out[i] = (uint32_t)sums[bucket * STEP_ARRAYS_MAX + i].sum[0];
}

/* compare_frozen — Compares the frozen parameters with their checksum. */
static void compare_frozen(struct step_update_sums *u, const struct step_checksum *now)
{
    if (u->is_found)
        return;
    u->is_found = memcmp(now, &u->frozen, sizeof *now) != 0;
    u->array = STEP_ARRAYS_MAX;
    u->steps = u->frozen_steps;
    if (!u->is_found)
        u->frozen_steps = step_steps_updated(u->s->step);
}

static enum status verify_all(struct step_update_sums *u)
{
    const int buckets_n = store_layout(u->s->store)->buckets_n;
    const struct step_checksum *sums;
    TRY(collect_sums(u));
    TRY(sum_all(u, &sums));
    for (int i = 0; i < buckets_n; i++) {
        uint32_t now[STEP_ARRAYS_MAX];
        take_bucket(sums, i, now);
        if (is_known(u, i))
            compare_sums(u, i, now);
    }
    compare_frozen(u, &sums[buckets_n * STEP_ARRAYS_MAX]);
    return ST_OK;
}

enum status step_update_sums_keep(struct step *step, int64_t steps)
{
    struct step_update_sums *u = step_update_sums_of(step);
    const struct step_checksum *sums;
    if (!u)
        return ST_OK;
    TRY(collect_sums(u));
    step_set_steps_updated(step, steps);
    TRY(sum_all(u, &sums));
    for (int i = 0; i < store_layout(u->s->store)->buckets_n; i++) {
        struct step_update_kept *kept = &u->kept[i];
        take_bucket(sums, i, kept->written);
        kept->writes = store_params_writes(u->s->store);
        kept->steps = steps;
        kept->is_known = true;
    }
    u->frozen = sums[store_layout(u->s->store)->buckets_n * STEP_ARRAYS_MAX];
    u->frozen_steps = steps;
    return ST_OK;
}

enum status step_update_sums_verify(struct step *step)
{
    struct step_update_sums *u = step_update_sums_of(step);
    double sums[STEP_CHANGED];
    struct comm_ticket ticket;
    if (!u)
        return ST_OK;
    TRY(store_drain(u->s->store));
    TRY(verify_all(u));
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
    TRY(verify_all(u));
    if (!u->is_found)
        return ST_OK;
    u->agreed = (struct step_changed){.ranks_n = 1, .rank = own_rank(u), .steps = u->steps};
    return fail_own(u);
}

/* ---- the feature ---- */

static enum status tell_all(void *self, struct step_now *now)
{
    TRY(collect_sums(self));
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
    .bucket_update = begin_update,
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
    if (s->config.sentinel_every == 0 || s->config.is_eval)
        return ST_OK;
    struct step_update_sums *u = memory_new(1, sizeof *u);
    u->s = s;
    u->kept = memory_new((size_t)store_layout(s->store)->buckets_n, sizeof *u->kept);
    ASSERT(store_layout(s->store)->buckets_n <= s->table.params_n);
    step_feature_add(s, &update_sums, u);
    return ST_OK;
}
