/* rehearse_plan — see rehearse/plan.h. */
#include "node/rehearse/plan.h"

#include <stdbool.h>
#include <string.h>

#include "base/quantile.h"
#include "base/rand.h"
#include "base/text.h"

enum stream { DECK, INSTANT, NODE, CHOICE };

static const struct {
    const char *word, *text;
} kinds[] = {
#define KIND_ROW(name, word, what) {word, what},
    REHEARSE_KIND_LIST(KIND_ROW)
#undef KIND_ROW
};

const char *rehearse_plan_word(enum rehearse_kind kind) { return kinds[kind].word; }

const char *rehearse_plan_text(enum rehearse_kind kind) { return kinds[kind].text; }

/* ---- the mix ---- */

static int kind_of(const char *word)
{
    for (int kind = 0; kind < REHEARSE_KINDS_N; kind++)
        if (strcmp(kinds[kind].word, word) == 0)
            return kind;
    return -1;
}

/* parse_one — reads "KIND:WEIGHT", or "KIND", whose weight is 1. */
static enum status parse_one(char *one, struct rehearse_mix *out)
{
    char *colon = strchr(one, ':');
    int64_t weight = 1;
    if (colon != NULL)
        *colon = 0;
    int kind = kind_of(one);
    if (kind < 0)
        return FAIL(ST_BAD_SETTING, "names an unknown fault; known are kill, node, hang, slow, "
                                    "flip, disk, cut and comm");
    if (out->weight[kind] >= 0)
        return FAIL(ST_BAD_SETTING, "names %s twice", kinds[kind].word);
    if (colon != NULL && text_parse_i64(colon + 1, 0, REHEARSE_WEIGHT_MAX, &weight) != TEXT_OK)
        return FAIL(ST_BAD_SETTING, "needs after %s a weight from 0 to %d, as in %s:3",
                    kinds[kind].word, REHEARSE_WEIGHT_MAX, kinds[kind].word);
    out->weight[kind] = (int)weight;
    out->total += (int)weight;
    return ST_OK;
}

enum status rehearse_plan_mix(const char *text, struct rehearse_mix *out)
{
    char one[32];
    *out = (struct rehearse_mix){.total = 0};
    for (int kind = 0; kind < REHEARSE_KINDS_N; kind++)
        out->weight[kind] = -1;
    for (bool is_last = false; !is_last;) {
        size_t n = strcspn(text, ",");
        text_format(one, sizeof one, "%.*s", n < sizeof one ? (int)n : 0, text);
        TRY(parse_one(one, out));
        is_last = text[n] == 0;
        text += n + 1;
    }
    for (int kind = 0; kind < REHEARSE_KINDS_N; kind++)
        out->weight[kind] = out->weight[kind] > 0 ? out->weight[kind] : 0;
    return out->total > 0 ? ST_OK : FAIL(ST_BAD_SETTING, "has no fault; try kill:3,hang:1");
}

void rehearse_plan_drop(struct rehearse_mix *mix, enum rehearse_kind kind)
{
    mix->total -= mix->weight[kind];
    mix->weight[kind] = 0;
}

/* ---- the faults ---- */

static uint64_t stream_of(enum stream stream) { return RAND_STREAM(REHEARSE, stream); }

/* kind_at — returns the kind of a card in a deck that holds `weight` cards of each kind. */
static enum rehearse_kind kind_at(const struct rehearse_mix *mix, int64_t card)
{
    int kind = 0;
    while (card >= mix->weight[kind])
        card -= mix->weight[kind++];
    return (enum rehearse_kind)kind;
}

struct rehearse_fault rehearse_plan_fault(uint64_t seed, const struct rehearse_mix *mix, int nodes,
                                          int64_t every_ms, int64_t i)
{
    uint64_t n = (uint64_t)mix->total, at = (uint64_t)i, deck = at / n;
    uint64_t card = rand_permute(seed + deck, stream_of(DECK), at % n, n);
    return (struct rehearse_fault){
        .kind = kind_at(mix, (int64_t)card),
        .node = (int)rand_below(seed, stream_of(NODE), at, (uint64_t)nodes),
        .at_ms =
            i * every_ms + (int64_t)rand_below(seed, stream_of(INSTANT), at, (uint64_t)every_ms),
        .choice = rand_u64(seed, stream_of(CHOICE), at),
    };
}

/* ---- statistics ---- */

struct rehearse_times rehearse_plan_times(double *ms, int n)
{
    if (n == 0)
        return (struct rehearse_times){0, -1, -1, -1};
    quantile_sort(ms, n);
    return (struct rehearse_times){n, (int64_t)quantile_of(ms, n, 0.5),
                                   (int64_t)quantile_of(ms, n, 0.95), (int64_t)ms[n - 1]};
}
