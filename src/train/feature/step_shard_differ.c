/* step_shard_differ — finds the faulty rank when two groups have computed a virtual shard
 * differently (step_shard_check.h). All groups compute it again, and a vote over all answers
 * decides which group was wrong. If the group has several ranks, the traces of both computations,
 * which are exchanged only now, show which rank sent the first wrong result. */
#include <stdlib.h>
#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/feature/sentinel.h"
#include "train/feature/step_sentinel.h"
#include "train/feature/step_shard_check.h"

#define UNKNOWN (-1)
#define NUMBERS_MAX 16 /* numbers of ranks, or of nodes, in a message */
#define GROUP_TEXT 256 /* bytes */

/* The computations of one shard: by its owner, by the checker, then by all groups, again. place:
 * the faulty rank among the ranks of a group; UNKNOWN: it was not found. */
struct answers {
    int shard, owner, checker, n, place;
    uint64_t *sum;
};

/* ---- groups ---- */

/* places_n — Returns the number of ranks in a group. */
static int places_n(const struct step_core *s)
{
    return mesh_ranks(&s->mesh.mesh) / step_mesh_data_ranks(s);
}

/* rank_at — Returns one of them: a tensor and context rank of a stage. */
static int rank_at(const struct step_core *s, int group, int place)
{
    const int *size = s->mesh.mesh.size, tensor = size[MESH_AXIS_TENSOR],
              within = tensor * size[MESH_AXIS_CONTEXT];
    const struct mesh_coord at = {.at = {[MESH_AXIS_TENSOR] = place % tensor,
                                         [MESH_AXIS_CONTEXT] = place % within / tensor,
                                         [MESH_AXIS_DATA] = group,
                                         [MESH_AXIS_PIPELINE] = place / within}};
    return mesh_rank_of(&s->mesh.mesh, &at);
}

/* own_place — Returns the place of this rank in its group. */
static int own_place(const struct step_core *s)
{
    const int *size = s->mesh.mesh.size, *at = s->mesh.at.at;
    return (at[MESH_AXIS_PIPELINE] * size[MESH_AXIS_CONTEXT] + at[MESH_AXIS_CONTEXT]) *
               size[MESH_AXIS_TENSOR] +
           at[MESH_AXIS_TENSOR];
}

/* of_group — Returns the checksum of a group's checksums number i; each rank has n. */
static uint64_t of_group(const struct step_core *s, const uint64_t *sum, int n, int i, int group)
{
    uint64_t all = 0;
    for (int place = 0; place < places_n(s); place++) {
        const uint64_t *one = &sum[rank_at(s, group, place) * n + i];
        all = XXH3_64bits_withSeed(one, sizeof *one, all);
    }
    return all;
}

/* ---- messages ---- */

/* add_numbers — Adds " 2, 3": the ranks of a group, or their nodes, which have `each` ranks. Each
 * number appears once, and of many only the first. Both ascend. */
static void add_numbers(const struct step_core *s, int group, int each, struct text *out)
{
    int last = UNKNOWN, n = 0;
    for (int place = 0; place < places_n(s) && n <= NUMBERS_MAX; place++) {
        const int at = rank_at(s, group, place) / each;
        if (at == last)
            continue;
        last = at;
        if (n++ < NUMBERS_MAX)
            text_add(out, "%s%d", n > 1 ? ", " : " ", at);
    }
    if (n > NUMBERS_MAX)
        text_add(out, ", …");
}

/* group_text — Writes "ranks 2, 3 on node 1". */
static const char *group_text(const struct step_core *s, int group, char out[GROUP_TEXT])
{
    const int locals = comm_place(s->config.comm)->locals;
    const bool is_one =
        rank_at(s, group, 0) / locals == rank_at(s, group, places_n(s) - 1) / locals;
    struct text ranks = {0}, nodes = {0};
    add_numbers(s, group, 1, &ranks);
    add_numbers(s, group, locals, &nodes);
    text_format(out, GROUP_TEXT, "ranks%s on node%s%s", ranks.data ? ranks.data : "",
                is_one ? "" : "s", nodes.data ? nodes.data : "");
    text_free(&ranks);
    text_free(&nodes);
    return out;
}

static const char *again_text(const struct step_shard_check *k)
{
    return k->found == STEP_SHARD_FOUND_ONCE ? "right" : "wrong as well";
}

/* fail_group — Fails: one of the group's ranks was wrong. */
static enum status fail_group(const struct step_shard_check *k, const struct answers *a, int group)
{
    const struct step_core *s = k->s;
    char text[GROUP_TEXT];
    return FAIL(ST_PEER,
                "in step %lld the gradients that %s computed together differ from most of %d "
                "computations of virtual shard %d, and computed again they are %s; several of "
                "these ranks differ at once, so it is unknown which was wrong first: memory or a "
                "processor is suspect; run `convoy check` on their nodes",
                (long long)k->now->step_i + 1, group_text(s, group, text), a->n, a->shard,
                again_text(k));
}

static enum status fail_rank(const struct step_shard_check *k, const struct answers *a, int group)
{
    const struct step_core *s = k->s;
    const long long step = k->now->step_i + 1;
    const int rank = rank_at(s, group, a->place);
    char first[GROUP_TEXT + 64] = "", text[GROUP_TEXT];
    if (rank != comm_place(s->config.comm)->rank)
        return FAIL(ST_PEER,
                    "in step %lld the gradients of rank %d differ from most of %d computations of "
                    "virtual shard %d",
                    step, rank, a->n, a->shard);
    if (places_n(s) > 1)
        text_format(first, sizeof first, " (of %s, which computed it together, it differed first)",
                    group_text(s, group, text));
    return FAIL(
        ST_FAULT,
        "in step %lld the gradients of rank %d differ from most of %d computations of virtual "
        "shard %d%s, and computed again they are %s: a processor or memory of this node is "
        "suspect; run `convoy check` there, and replace the node if this comes back",
        step, rank, a->n, a->shard, first, again_text(k));
}

/* ---- which rank of a group ---- */

/* find_longest_trace — Finds the length of the longest trace of any rank. */
static enum status find_longest_trace(struct step_core *s, const struct step_shard_trace *own,
                                      int *n_out)
{
    const int ranks = mesh_ranks(&s->mesh.mesh);
    const uint64_t n = own ? (uint64_t)own->n : 0;
    uint64_t *all = memory_new((size_t)ranks, sizeof *all);
    enum status st = step_sentinel_exchange(s, &n, 1, all);
    *n_out = 0;
    for (int rank = 0; rank < ranks; rank++)
        *n_out = (int)all[rank] > *n_out ? (int)all[rank] : *n_out;
    free(all);
    return st;
}

_Static_assert(sizeof(struct sentinel_entry) == 2 * sizeof(uint64_t),
               "entries travel as checksums");

/* find_place — Finds the place from the traces of the two computations that were compared. */
static enum status find_place(struct step_shard_check *k, struct answers *a)
{
    struct step_core *s = k->s;
    const int group = step_mesh_data_rank(s), places = places_n(s);
    const struct step_shard_trace *own =
        group == a->owner     ? step_shard_check_trace(k, STEP_SHARD_PASS_OWN)
        : group == a->checker ? step_shard_check_trace(k, STEP_SHARD_PASS_CHECK)
                              : NULL;
    const int slot = (group == a->owner ? 0 : places) + own_place(s);
    int n = 0;
    TRY(find_longest_trace(s, own, &n));
    /* Traces of n entries of all ranks of both groups: the owner's group first. */
    struct sentinel_entry *all = calloc((size_t)n * 2 * (size_t)places, sizeof *all),
                          *entry = calloc((size_t)n, sizeof *entry);
    enum status st =
        all && entry
            ? ST_OK
            : FAIL(ST_RETRY, "out of memory: %d checksums of each of %d ranks", n, 2 * places);
    for (int i = 0; st == ST_OK && own && i < own->n; i++)
        entry[i] = own->entry[i];
    if (st == ST_OK)
        st = step_sentinel_exchange_some(s, own ? &entry->order : NULL, 2 * n, slot, 2 * places,
                                         &all->order);
    if (st == ST_OK)
        a->place = sentinel_first(all, all + (ptrdiff_t)places * n, places, n);
    free(entry);
    free(all);
    return st;
}

/* ---- which group ---- */

/* attribute_fault — Attributes the fault. The first answer that differs from the majority is one of
 * the two that were compared. If both differ from it, their traces do not show the place in
 * either. */
static enum status attribute_fault(struct step_shard_check *k, struct answers *a)
{
    struct step_core *s = k->s;
    const struct sentinel_vote vote = sentinel_vote(a->sum, a->n);
    const uint64_t right = a->sum[vote.most];
    const int odd = vote.odd, group = odd == 0 ? a->owner : a->checker;
    k->found = STEP_SHARD_FOUND_LASTING;
    if (!vote.is_majority) {
        k->found = STEP_SHARD_FOUND_UNKNOWN;
        char owner[GROUP_TEXT], checker[GROUP_TEXT];
        group_text(s, a->owner, owner);
        group_text(s, a->checker, checker);
        if (a->place != UNKNOWN) {
            text_format(owner, sizeof owner, "ranks %d", rank_at(s, a->owner, a->place));
            text_format(checker, sizeof checker, "%d", rank_at(s, a->checker, a->place));
        }
        return FAIL(ST_PEER,
                    "in step %lld %s and %s have different gradients of virtual shard %d, and no "
                    "majority of %d computations shows which is wrong; memory or a processor is "
                    "suspect: run `convoy check` on all nodes",
                    (long long)k->now->step_i + 1, owner, checker, a->shard, a->n);
    }
    ASSERTF(odd == 0 || odd == 1, "answer %d of %d", odd, a->n);
    if (a->sum[2 + group] == right)
        k->found = STEP_SHARD_FOUND_ONCE;
    if (places_n(s) > 1 && a->sum[1 - odd] != right)
        a->place = UNKNOWN;
    return a->place == UNKNOWN ? fail_group(k, a, group) : fail_rank(k, a, group);
}

/* compute_again — Computes the shard again on all groups. */
static enum status compute_again(struct step_shard_check *k, struct answers *a)
{
    struct step_core *s = k->s;
    uint64_t again, *all = memory_new((size_t)mesh_ranks(&s->mesh.mesh), sizeof *all);
    enum status st = step_shard_check_again(k, a->shard, &again);
    if (st == ST_OK)
        st = step_sentinel_exchange(s, &again, 1, all);
    for (int group = 0; st == ST_OK && group < step_mesh_data_ranks(s); group++)
        a->sum[2 + group] = of_group(s, all, 1, 0, group);
    free(all);
    return st;
}

enum status step_shard_differ(struct step_shard_check *k, const uint64_t *sum)
{
    struct step_core *s = k->s;
    const int groups = step_mesh_data_ranks(s);
    for (int owner = 0; owner < groups; owner++) {
        const int checker = (owner + groups - 1) % groups;
        if (of_group(s, sum, 2, 0, owner) != of_group(s, sum, 2, 1, checker)) {
            struct answers a = {.shard = step_shard_check_chosen(k, owner),
                                .owner = owner,
                                .checker = checker,
                                .n = groups + 2};
            a.sum = memory_new((size_t)a.n, sizeof *a.sum);
            a.sum[0] = of_group(s, sum, 2, 0, owner);
            a.sum[1] = of_group(s, sum, 2, 1, checker);
            enum status st = compute_again(k, &a);
            if (st == ST_OK && places_n(s) > 1)
                st = find_place(k, &a);
            if (st == ST_OK)
                st = attribute_fault(k, &a);
            free(a.sum);
            return st;
        }
    }
    return ST_OK;
}
