/* step_shard_check — see step_shard_check.h. */
#include "train/step_shard_check.h"

#include <stdlib.h>
#include <xxhash.h>

#include "base/assert.h"
#include "train/sentinel.h"
#include "train/sentinel_line.h"
#include "train/step_inside.h"

/* each — the samples of a shard. */
static int64_t each(const struct step *s) { return s->config.global_samples / s->config.shards; }

/* ---- what is compared ---- */

static bool can_compare(const struct step *s)
{
    const int ranks = step_mesh_data_ranks(s);
    return s->config.checks_shards && s->config.shards > 0 && !s->config.is_eval && ranks > 1 &&
           mesh_ranks(&s->mesh.mesh) == ranks;
}

bool step_shard_check_is_due(const struct step *s) { return s->check.turn > 0 && s->check.feed; }

void step_shard_check_ask(struct step *s, int64_t turn)
{
    ASSERTF(turn > 0, "turn %lld", (long long)turn);
    s->check.turn = can_compare(s) ? turn : 0;
}

enum step_shard_found step_shard_check_found(const struct step *s) { return s->check.found; }

void step_shard_check_flip(struct step *s, const struct step_shard_flip *flip)
{
    s->check.flip = *flip;
}

/* chosen — the shard of a rank's run that this step compares; all have their turn. */
static int chosen(const struct step *s, int rank)
{
    const int *begin = store_exact_deal(s->store);
    return begin[rank] + (int)(s->check.turn % (begin[rank + 1] - begin[rank]));
}

/* ---- life ---- */

int64_t step_shard_check_bytes(const struct step *s)
{
    const int64_t tokens = s->config.seq_tokens;
    if (!can_compare(s))
        return 0;
    return batch_bytes(step_task(s), each(s), tokens) +
           (step_has_first_key(&s->config) ? batch_documents_bytes(each(s), tokens) : 0);
}

enum status step_shard_check_open(struct step *s)
{
    struct batch *batch = &s->check.batch;
    if (!can_compare(s))
        return ST_OK;
    TRY(batch_init(batch, step_task(s), each(s), s->config.seq_tokens));
    return step_has_first_key(&s->config) ? batch_add_documents(batch) : ST_OK;
}

void step_shard_check_close(struct step *s) { batch_free(&s->check.batch); }

void step_shard_check_set_feed(struct step *s, const struct feed *feed, int64_t sample_first)
{
    s->check.feed = feed;
    s->check.sample_first = sample_first;
}

void step_shard_check_clear(struct step *s)
{
    s->check.feed = NULL;
    s->check.turn = 0;
    s->check.flip.passes = 0;
}

/* ---- checksums ---- */

/* add_unit — of a unit's gradient. Padding between tensors is not of it. */
static void add_unit(struct step *s, const struct pass *p, int unit)
{
    for (int row = 0; row < s->table.params_n; row++) {
        const struct param *param = &s->table.param[row];
        const struct tensor grad = tensor_at(p->grads, p->grad_table->param[row].offset);
        if (param->unit == unit)
            s->check.sum =
                XXH3_64bits_withSeed(grad.data, (size_t)param->elems * sizeof(float), s->check.sum);
    }
}

/* add_losses — of a shard whose first sample on this rank is `first`. */
static void add_losses(struct step *s, int64_t first)
{
    const int64_t losses = step_sample_losses(s);
    s->check.sum = XXH3_64bits_withSeed(s->losses_host + first * losses,
                                        (size_t)(each(s) * losses) * sizeof(float), s->check.sum);
}

/* flip — the bit that step_shard_check_flip has named; once in passes of a kind. */
static enum status flip(struct step *s, const struct pass *p, enum step_shard_pass kind)
{
    struct step_shard_flip *f = &s->check.flip;
    int64_t at = f->elem;
    int row = 0;
    f->passes &= ~(unsigned)kind;
    while (s->table.param[row].unit != f->unit || at >= s->table.param[row].elems) {
        at -= s->table.param[row].unit == f->unit ? s->table.param[row].elems : 0;
        row++;
        ASSERTF(row < s->table.params_n, "element %lld of unit %d", (long long)f->elem, f->unit);
    }
    uint32_t bits, *to = tensor_at(p->grads, p->grad_table->param[row].offset + at).data;
    TRY(dev_copy(s->stream, &bits, to, sizeof bits));
    TRY(dev_sync(s->stream));
    bits ^= UINT32_C(1) << f->bit;
    TRY(dev_copy(s->stream, to, &bits, sizeof bits));
    return dev_sync(s->stream);
}

/* completes — the gradient of a shard that is compared is complete after this micro-batch; in a
 * step without a comparison, that of the last one. */
static bool completes(const struct step *s, const struct step_micro *m)
{
    const int rank = step_mesh_data_rank(s);
    if (!step_shard_check_is_due(s))
        return m->is_last;
    const int shard = m->is_check ? 0 : chosen(s, rank) - store_exact_deal(s->store)[rank];
    return m->first + s->config.batch_samples == (shard + 1) * each(s);
}

enum status step_shard_check_unit(struct step *s, const struct step_micro *m, int unit)
{
    const struct step_shard_flip *f = &s->check.flip;
    const enum step_shard_pass pass = m->is_check ? s->check.pass : STEP_SHARD_PASS_OWN;
    const bool is_due = step_shard_check_is_due(s), is_hit = f->passes & pass && f->unit == unit;
    struct pass p = {0};
    if ((!is_due && !is_hit) || !completes(s, m))
        return ST_OK;
    store_bind(s->store, &p);
    if (!m->is_check)
        step_shards_bind(s, m->first, &p);
    TRY(dev_sync(s->stream));
    if (is_hit)
        TRY(flip(s, &p, pass));
    if (is_due)
        add_unit(s, &p, unit);
    return ST_OK;
}

/* ---- passes ---- */

/* read_samples — of a shard, by its number in the batch. */
static void read_samples(struct step *s, int shard)
{
    struct step_shard_check *k = &s->check;
    k->batch.samples = each(s);
    feed_get(k->feed, k->sample_first + shard * each(s), each(s), &k->batch.host);
    step_run_set_window(s, &k->batch, k->step_i);
}

/* compute — the passes of any shard; only its checksum is of use. */
static enum status compute(struct step *s, int shard, enum step_shard_pass pass,
                           struct step_result *r, uint64_t *sum_out)
{
    struct step_shard_check *k = &s->check;
    read_samples(s, shard);
    k->pass = pass;
    k->sum = 0;
    for (int64_t first = 0; first < each(s); first += s->config.batch_samples) {
        const struct step_micro m = {.first = first, .is_check = true};
        struct pass p = step_run_pass(s, shard * each(s) + first, k->step_i);
        p.accumulate = first > 0;
        TRY(step_copy_inputs(s, &k->batch, first, &p));
        TRY(step_run_micro(s, &p, &m, r));
        TRY(step_copy_losses(s, &p, first));
    }
    TRY(dev_sync(s->stream));
    add_losses(s, 0);
    *sum_out = k->sum;
    return ST_OK;
}

enum status step_shard_check_begin(struct step *s, int64_t step_i, struct step_result *r)
{
    const int next = (step_mesh_data_rank(s) + 1) % step_mesh_data_ranks(s);
    if (!step_shard_check_is_due(s))
        return ST_OK;
    s->check.step_i = step_i;
    TRY(compute(s, chosen(s, next), STEP_SHARD_PASS_CHECK, r, &s->check.other));
    s->check.sum = 0;
    return ST_OK;
}

/* ---- a difference ---- */

/* The computations of one shard: its owner's, the checker's, then those of all ranks, again. */
struct answers {
    int shard, owner, checker, n;
    uint64_t *sum;
};

static bool is_majority(const struct answers *a, uint64_t sum)
{
    int same = 0;
    for (int i = 0; i < a->n; i++)
        same += a->sum[i] == sum;
    return 2 * same > a->n;
}

static enum status fail_undecided(const struct step *s, const struct answers *a)
{
    return FAIL(ST_PEER,
                "in step %lld ranks %d and %d have different gradients of virtual shard %d, and no "
                "majority of %d computations says which is wrong; memory or a processor is "
                "suspect: run `convoy check` on all nodes",
                (long long)s->check.step_i + 1, a->owner, a->checker, a->shard, a->n);
}

static enum status fail_named(const struct step *s, const struct answers *a, int rank)
{
    const long long step = s->check.step_i + 1;
    if (rank != step_mesh_data_rank(s))
        return FAIL(ST_PEER,
                    "in step %lld the gradients" SENTINEL_LINE_OF_RANK "%d" SENTINEL_LINE_DIFFER
                    "%d computations of virtual shard %d",
                    step, rank, a->n, a->shard);
    return FAIL(ST_FAULT,
                "in step %lld the gradients" SENTINEL_LINE_OF_RANK "%d" SENTINEL_LINE_DIFFER
                "%d computations of virtual shard %d, and computed again they are %s: a processor "
                "or memory of this node is suspect; run `convoy check` there, and replace the node "
                "if this comes back",
                step, rank, a->n, a->shard,
                s->check.found == STEP_SHARD_FOUND_ONCE ? "right" : "wrong as well");
}

/* decide — the first answer that differs from the majority is one of the two that were compared. */
static enum status decide(struct step *s, const struct answers *a)
{
    const int odd = sentinel_vote(a->sum, a->n), rank = odd == 0 ? a->owner : a->checker;
    s->check.found = STEP_SHARD_FOUND_LASTING;
    if (odd == SENTINEL_UNDECIDED)
        return fail_undecided(s, a);
    ASSERTF(odd == 0 || odd == 1, "answer %d of %d", odd, a->n);
    if (is_majority(a, a->sum[2 + rank]))
        s->check.found = STEP_SHARD_FOUND_ONCE;
    return fail_named(s, a, rank);
}

/* compute_again — on all ranks, from parameters that are gathered or rounded anew. */
static enum status compute_again(struct step *s, struct answers *a)
{
    struct step_result r = {0};
    uint64_t again;
    store_params_invalidate(s->store);
    TRY(compute(s, a->shard, STEP_SHARD_PASS_AGAIN, &r, &again));
    return step_sentinel_exchange(s, &again, 1, a->sum + 2);
}

/* resolve — sum: two of each rank: of its own shard, and of the next rank's. */
static enum status resolve(struct step *s, const uint64_t *sum, int owner)
{
    const int ranks = step_mesh_data_ranks(s), checker = (owner + ranks - 1) % ranks;
    struct answers a = {
        .shard = chosen(s, owner), .owner = owner, .checker = checker, .n = ranks + 2};
    a.sum = calloc((size_t)a.n, sizeof *a.sum);
    if (!a.sum)
        return FAIL(ST_RETRY, "out of memory: checksums of %d ranks", ranks);
    a.sum[0] = sum[2 * owner];
    a.sum[1] = sum[2 * checker + 1];
    enum status st = compute_again(s, &a);
    if (st == ST_OK)
        st = decide(s, &a);
    free(a.sum);
    return st;
}

/* compare — each rank's own shard with what the rank before it has computed. */
static enum status compare(struct step *s, const uint64_t *sum)
{
    const int ranks = step_mesh_data_ranks(s);
    for (int owner = 0; owner < ranks; owner++)
        if (sum[2 * owner] != sum[2 * ((owner + ranks - 1) % ranks) + 1])
            return resolve(s, sum, owner);
    return ST_OK;
}

enum status step_shard_check_end(struct step *s, struct step_result *r)
{
    const int ranks = step_mesh_data_ranks(s), rank = step_mesh_data_rank(s);
    if (!step_shard_check_is_due(s))
        return ST_OK;
    r->is_compared = true;
    add_losses(s, (chosen(s, rank) - store_exact_deal(s->store)[rank]) * each(s));
    const uint64_t own[2] = {s->check.sum, s->check.other};
    uint64_t *all = calloc((size_t)ranks * 2, sizeof *all);
    if (!all)
        return FAIL(ST_RETRY, "out of memory: checksums of %d ranks", ranks);
    enum status st = step_sentinel_exchange(s, own, 2, all);
    if (st == ST_OK)
        st = compare(s, all);
    free(all);
    return st;
}
