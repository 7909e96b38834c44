/* peft — a folder of the program PEFT with an adapter: adapter_config.json and
 * adapter_model.safetensors. Only LoRA, whose output is W·x + (alpha/rank)·B·(A·x).
 *
 * Convoy's names of the tensors lack the model's prefix, for example
 * "layers.0.self_attn.q_proj.lora_A.weight"; PEFT's begin with "base_model.model." and the prefix.
 * The shapes are the same: A is (rank, in), B is (out, rank). It must not know the models' code. */
#ifndef CONVOY_TRAIN_PEFT_H
#define CONVOY_TRAIN_PEFT_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "format/hf.h"
#include "format/safetensors.h"

struct peft_config {
    int64_t rank;
    double alpha;
};

#define PEFT_CONFIG "adapter_config.json"
#define PEFT_WEIGHTS "adapter_model.safetensors"

bool peft_is_folder(const char *path); /* holds an adapter_config.json */
/* peft_refuse — fails with ST_BAD_SETTING if the folder is given as a model or as a checkpoint; the
 * message has its path, its model, and the settings that use it. */
enum status peft_refuse(const char *path);
struct peft;
/* peft_open — reads the config, and maps and parses the weights. arch: the model's, which decides
 * on the prefix. Refuses, with the key, adapters that compute something else: DoRA, rsLoRA, ranks
 * or alphas that differ by layer, biases, modules that are saved whole (ST_BAD_DATA). */
enum status peft_open(const char *dir, enum hf_arch arch, struct peft **out);
void peft_close(struct peft *peft); /* accepts NULL */
/* peft_config — returns the config; valid until peft_close. */
const struct peft_config *peft_config(const struct peft *peft);
/* peft_tensor — finds a tensor by our name; ST_BAD_DATA with file, name, expected and actual
 * shape. */
enum status peft_tensor(const struct peft *peft, const char *name, int dims_n, const int64_t *dim,
                        const struct safetensors_entry **out);
/* peft_tensors — returns the number of all tensors. */
int peft_tensors(const struct peft *peft);
/* peft_stray — returns the name in the file of the first tensor that is_known does not accept by
 * our name; NULL: none. */
const char *peft_stray(const struct peft *peft, bool (*is_known)(void *arg, const char *name),
                       void *arg);

/* peft_name — writes a tensor's name in the file; false: cut. */
bool peft_name(enum hf_arch arch, const char *name, char *out, size_t cap);
/* peft_write_config — appends an adapter_config.json. base: path or name of the model; modules: the
 * adapted modules ("q_proj"), one after the other with commas, in quotes. The caller checks
 * out->overflow. */
void peft_write_config(const struct peft_config *config, enum hf_arch arch, const char *base,
                       const char *modules, struct text *out);

#endif
