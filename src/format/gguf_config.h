/* gguf_config — the model that the keys of a GGUF file describe. Must not know the bytes of weights
 * but those of rope_freqs.weight, which stand for Llama-3's scaling. */
#ifndef CONVOY_FORMAT_GGUF_CONFIG_H
#define CONVOY_FORMAT_GGUF_CONFIG_H

#include "base/status.h"
#include "format/gguf.h"
#include "format/hf.h"

/* gguf_config_read — architectures llama, qwen2, qwen3, gptneox and gpt2, with the defaults of
 * llama.cpp. Refuses by name what hf_config_parse refuses, experts, and a part of a split file. */
enum status gguf_config_read(const struct gguf *gguf, struct hf_config *out);

#endif
