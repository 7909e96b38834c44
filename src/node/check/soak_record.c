/* check_soak_record — see check/soak_record.h. */
#include "node/check/soak_record.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/memory.h"
#include "base/text.h"

#define LOGIT_TOKENS 8

void check_soak_record_init(struct check_soak_record *r, const struct param_table *table, int steps)
{
    *r = (struct check_soak_record){
        .steps = steps, .tensors = table->params_n, .n = 1 + steps * (1 + 2 * table->params_n)};
    r->sum = memory_new((size_t)r->n, sizeof *r->sum);
}

void check_soak_record_free(struct check_soak_record *r)
{
    free(r->sum);
    *r = (struct check_soak_record){0};
}

enum status check_soak_record_logits(struct check_soak_record *r, struct step *step, int64_t vocab,
                                     float *host)
{
    int32_t tokens[LOGIT_TOKENS];
    for (int i = 0; i < LOGIT_TOKENS; i++)
        tokens[i] = (int32_t)((i * 37 + 11) % vocab);
    TRY(step_logits(step, tokens, LOGIT_TOKENS, host));
    r->sum[0] = XXH3_64bits(host, (size_t)vocab * sizeof *host);
    return ST_OK;
}

/* Checksums of all tensors of a part that lies on the step's device. */
static enum status take_tensors(struct step *step, struct tensor from, float *host, uint64_t *out)
{
    const struct param_table *table = step_own_table(step);
    TRY(dev_copy(step_stream(step), host, from.data, (size_t)table->total_elems * sizeof *host));
    TRY(dev_sync(step_stream(step)));
    for (int i = 0; i < table->params_n; i++)
        out[i] = XXH3_64bits(host + table->param[i].offset,
                             (size_t)table->param[i].elems * sizeof *host);
    return ST_OK;
}

static int place_of(const struct check_soak_record *r, int step_i)
{
    return 1 + step_i * (1 + 2 * r->tensors);
}

enum status check_soak_record_step(struct check_soak_record *r, struct step *step, int step_i,
                                   double loss, float *host)
{
    uint64_t *sum = r->sum + place_of(r, step_i);
    TRY(step_drain(step));
    memcpy(sum, &loss, sizeof loss);
    TRY(take_tensors(step, step_grads(step), host, sum + 1));
    return take_tensors(step, step_tensor(step, 0), host, sum + 1 + r->tensors);
}

int check_soak_record_differs(const struct check_soak_record *a, const struct check_soak_record *b)
{
    for (int i = 0; i < a->n; i++)
        if (a->sum[i] != b->sum[i])
            return i;
    return -1;
}

const char *check_soak_record_about(const struct check_soak_record *r,
                                    const struct param_table *table, int at, char *out, size_t cap)
{
    const int each = 1 + 2 * r->tensors, step_n = (at - 1) / each + 1, in = (at - 1) % each;
    if (at <= 0)
        text_format(out, cap, "the logits before the first step");
    else if (in == 0)
        text_format(out, cap, "the loss of step %d", step_n);
    else if (in <= r->tensors)
        text_format(out, cap, "the gradient of %s in step %d", table->param[in - 1].name, step_n);
    else
        text_format(out, cap, "%s after step %d", table->param[in - 1 - r->tensors].name, step_n);
    return out;
}

uint64_t check_soak_record_digest(const struct check_soak_record *r,
                                  enum check_soak_record_part part)
{
    const int each = 1 + (part == CHECK_SOAK_RECORD_SUMS ? 1 : 2) * r->tensors;
    uint64_t digest = part == CHECK_SOAK_RECORD_ALL ? r->sum[0] : 0;
    for (int i = 0; i < r->steps; i++)
        digest =
            XXH3_64bits_withSeed(r->sum + place_of(r, i), (size_t)each * sizeof *r->sum, digest);
    return digest;
}

void check_soak_record_vote(struct check_soak_vote *votes, int n)
{
    int *support = memory_new((size_t)n, sizeof *support);
    /* Ranks of equal kind and digest are counted once, at the first of them. */
    for (int i = 0; i < n; i++) {
        int first = -1, count = 0;
        for (int k = 0; k < n; k++) {
            if (votes[k].is_left_out || votes[k].kind != votes[i].kind ||
                votes[k].digest != votes[i].digest)
                continue;
            first = first < 0 ? k : first;
            count++;
        }
        support[i] = first == i ? count : 0;
    }
    for (int i = 0; i < n; i++) {
        int best = -1, others = 0;
        for (int k = 0; k < n; k++)
            if (support[k] > 0 && votes[k].kind == votes[i].kind &&
                (best < 0 || support[k] > support[best]))
                best = k;
        for (int k = 0; k < n && best >= 0; k++)
            others += k != best && votes[k].kind == votes[i].kind && support[k] == support[best];
        votes[i].model = best;
        votes[i].is_unclear = others > 0;
        votes[i].differs = others == 0 && best >= 0 && votes[i].digest != votes[best].digest;
    }
    free(support);
}
