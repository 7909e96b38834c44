/* model — presets, bounds of dimensions, and the table of architectures. The mathematics is in one
 * folder per architecture. */
#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/text.h"
#include "model/gpt2/gpt2.h"

#define DIM_MAX ((int64_t)1 << 24)

bool model_preset(const char *name, struct model_dims *out)
{
    static const struct {
        const char *name;
        int layers, heads, embed;
    } preset[] = {{"gpt2-nano", 4, 4, 128},     {"gpt2-mini", 6, 6, 384},
                  {"gpt2", 12, 12, 768},        {"gpt2-medium", 24, 16, 1024},
                  {"gpt2-large", 36, 20, 1280}, {"gpt2-xl", 48, 25, 1600}};
    for (size_t i = 0; i < sizeof preset / sizeof *preset; i++) {
        if (strcmp(name, preset[i].name) != 0)
            continue;
        *out = (struct model_dims){.layers = preset[i].layers,
                                   .heads = preset[i].heads,
                                   .embed = preset[i].embed,
                                   .context = 1024,
                                   .vocab = 50257};
        return text_copy(out->name, sizeof out->name, name);
    }
    return false;
}

enum status model_check(const struct model_dims *dims)
{
    const struct {
        const char *name;
        int64_t value, max;
    } row[] = {{"LAYERS", dims->layers, 4096},
               {"HEADS", dims->heads, 65536},
               {"EMBED", dims->embed, 1 << 20},
               {"CONTEXT", dims->context, DIM_MAX},
               {"VOCAB", dims->vocab, DIM_MAX}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (row[i].value < 1 || row[i].value > row[i].max)
            return FAIL(ST_BAD_SETTING, "%s is %lld, outside 1 … %lld; set it within", row[i].name,
                        (long long)row[i].value, (long long)row[i].max);
    if (dims->embed % dims->heads != 0)
        return FAIL(ST_BAD_SETTING,
                    "HEADS=%lld does not divide EMBED=%lld; choose a number of heads that does",
                    (long long)dims->heads, (long long)dims->embed);
    return ST_OK;
}

const struct model_ops *model_ops(const struct model_dims *dims)
{
    static const struct model_ops *const architectures[MODEL_ARCH_N][MODEL_TASK_N] = {
        [MODEL_ARCH_GPT2] = {[MODEL_TASK_LM] = &gpt2_lm_ops, [MODEL_TASK_QA] = &gpt2_qa_ops},
    };
    return architectures[dims->arch][dims->task];
}

double model_flops_per_token(const struct model_dims *dims, int64_t t)
{
    return model_ops(dims)->flops_per_token(dims, t);
}

enum status model_plan(const struct model_dims *dims, int64_t b, int64_t t,
                       enum model_recompute recompute, bool want_grad, enum dtype dtype,
                       struct arena *acts, struct arena *scratch, struct model_acts **out)
{
    ASSERTF(b > 0 && t > 0 && t <= dims->context, "b %lld t %lld context %lld", (long long)b,
            (long long)t, (long long)dims->context);
    ASSERTF(recompute < MODEL_RECOMPUTE_AUTO, "recompute %d", (int)recompute);
    return model_ops(dims)->plan(dims, b, t, recompute, want_grad, dtype, acts, scratch, out);
}

void model_plan_kv_cache(const struct model_dims *dims, struct model_acts *plan, struct arena *acts)
{
    model_ops(dims)->plan_kv_cache(dims, plan, acts);
}

void model_plan_free(struct model_acts *acts) { free(acts); }
