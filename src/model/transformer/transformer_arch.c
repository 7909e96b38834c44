/* transformer_arch — the table of architectures. */
#include "model/transformer/transformer_arch.h"

#include "model/gpt2/gpt2.h"
#include "model/llama/llama.h"
#include "model/neox/neox.h"
#include "model/qwen/qwen.h"

const struct transformer_arch *transformer_arch(enum model_arch arch)
{
    static const struct transformer_arch *const row[MODEL_ARCH_N] = {
        [MODEL_ARCH_GPT2] = &gpt2_arch,    [MODEL_ARCH_LLAMA] = &llama_arch,
        [MODEL_ARCH_QWEN2] = &qwen_2_arch, [MODEL_ARCH_QWEN3] = &qwen_3_arch,
        [MODEL_ARCH_NEOX] = &neox_arch,
    };
    return row[arch];
}

enum status transformer_arch_check(const struct model_dims *dims, const char *setting,
                                   int64_t value, int64_t want, const char *why)
{
    if (value == want)
        return ST_OK;
    return FAIL(ST_BAD_SETTING, "%s is %lld, but %s needs %lld (%s); leave %s out", setting,
                (long long)value, transformer_arch(dims->arch)->name, (long long)want, why,
                setting);
}
