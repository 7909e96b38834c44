/* adapter — see adapter.h. */
#include "train/weights/adapter.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "train/weights/outline.h"
#include "train/weights/weights.h"

struct adapter {
    struct peft *peft;
    struct ckpt *ckpt;
    struct load_file file;
    char path[FILE_PATH_MAX];
    struct param_table table;
    struct load_merge merge;
    float *values; /* made by adapter_merge */
};

/* ---- a PEFT folder ---- */

/* A search for the matrices that the tensors of a folder adapt. */
struct finder {
    const struct model_dims *dims;
    struct param_table all; /* tensors of an adapter of all linear layers */
    unsigned targets;       /* the matrices found */
};

/* find_target — notes the matrix of a tensor; false: the model has none for it. */
static bool find_target(void *arg, const char *name)
{
    struct finder *finder = arg;
    const bool is_known = param_find(&finder->all, name) != NULL;
    if (is_known)
        finder->targets |= model_targets_of(finder->dims, name);
    return is_known;
}

/* find_targets — sets the targets to the matrices whose tensors the folder has. Every block must
 * have all of them. */
static enum status find_targets(struct adapter *adapter, struct model_dims *dims)
{
    struct finder finder = {.dims = dims};
    char text[MODEL_TARGETS_TEXT_MAX];
    dims->adapter.targets = MODEL_TARGETS_ALL;
    TRY(model_check(dims));
    TRY(model_describe_trained(dims, &finder.all));
    const char *stray = peft_stray(adapter->peft, find_target, &finder);
    param_table_free(&finder.all);
    if (stray)
        return FAIL(ST_BAD_DATA,
                    "%s: tensor %s is of no linear layer of a block of %s; use an adapter of this "
                    "model, whose target_modules are such layers",
                    adapter->path, stray, dims->name);
    if (finder.targets == 0)
        return FAIL(ST_BAD_DATA, "%s holds no tensors; its file is damaged", adapter->path);
    dims->adapter.targets = finder.targets;
    TRY(model_describe_trained(dims, &adapter->table));
    if (peft_tensors(adapter->peft) == adapter->table.params_n)
        return ST_OK;
    return FAIL(
        ST_BAD_DATA,
        "%s adapts %s of %s only in some blocks: it has %d tensors, and %d would adapt "
        "them in every block; merge it in PEFT (merge_and_unload), and use the merged model",
        adapter->path, model_targets_text(dims, text), dims->name, peft_tensors(adapter->peft),
        adapter->table.params_n);
}

static enum status open_peft(struct adapter *adapter, struct model_dims *dims)
{
    TRY(peft_open(adapter->path, (enum hf_arch)dims->arch, &adapter->peft));
    const struct peft_config *config = peft_config(adapter->peft);
    dims->adapter = (struct model_adapter){.r = config->rank, .alpha = config->alpha};
    adapter->file.peft = adapter->peft;
    if (config->rank > MODEL_ADAPTER_RANK_MAX || !(config->alpha >= 1e-6))
        return FAIL(ST_BAD_DATA,
                    "%s/" PEFT_CONFIG
                    ": \"r\" is %lld and \"lora_alpha\" is %g; r must be at most %d, "
                    "and lora_alpha at least 1e-6",
                    adapter->path, (long long)config->rank, config->alpha, MODEL_ADAPTER_RANK_MAX);
    return find_targets(adapter, dims);
}

/* ---- a checkpoint ---- */

static enum status open_checkpoint(struct adapter *adapter, struct model_dims *dims)
{
    struct model_dims was;
    TRY(weights_checkpoint(adapter->path, &adapter->ckpt, &was));
    text_copy(adapter->path, sizeof adapter->path, ckpt_path(adapter->ckpt));
    if (was.adapter.r == 0)
        return FAIL(ST_BAD_DATA,
                    "%s is a checkpoint of a whole model, not of an adapter; use it as MODEL, "
                    "without ADAPTER",
                    adapter->path);
    dims->adapter = was.adapter;
    adapter->file.ckpt = adapter->ckpt;
    adapter->file.array = "model";
    return model_describe_trained(dims, &adapter->table);
}

/* ---- life ---- */

enum status adapter_open(const char *path, const struct model_dims *base, struct adapter **out)
{
    struct adapter *adapter = memory_new(1, sizeof *adapter);
    struct model_dims dims = *base;
    struct load_entry entry;
    enum status st = ST_OK;
    if (!text_copy(adapter->path, sizeof adapter->path, path))
        st = FAIL(ST_BAD_SETTING, "the path of an adapter is too long: %.64s…", path);
    else if (peft_is_folder(path))
        st = open_peft(adapter, &dims);
    else if (weights_are_ckpt(path))
        st = open_checkpoint(adapter, &dims);
    else
        st = FAIL(ST_NO_INPUT,
                  "%s holds no adapter; give a folder with adapter_config.json, or a checkpoint of "
                  "a run with LORA",
                  path);
    for (int i = 0; st == ST_OK && i < adapter->table.params_n; i++)
        st = load_find(&adapter->file, &adapter->table.param[i], &entry);
    if (st == ST_OK) {
        adapter->merge = (struct load_merge){.dims = dims, .table = &adapter->table};
        *out = adapter;
    } else {
        adapter_close(adapter);
    }
    return st;
}

void adapter_close(struct adapter *adapter)
{
    if (!adapter)
        return;
    peft_close(adapter->peft);
    ckpt_close(adapter->ckpt);
    param_table_free(&adapter->table);
    free(adapter->values);
    free(adapter);
}

struct model_adapter adapter_of(const struct adapter *adapter)
{
    return adapter->merge.dims.adapter;
}

enum status adapter_dims(const char *path, const struct model_dims *base, struct model_adapter *out)
{
    struct adapter *adapter;
    struct outline outline;
    if (outline_is_at(path)) {
        TRY(outline_read(path, &outline));
        *out = outline.dims.adapter;
        return ST_OK;
    }
    TRY(adapter_open(path, base, &adapter));
    *out = adapter->merge.dims.adapter;
    adapter_close(adapter);
    return ST_OK;
}

const char *adapter_path(const struct adapter *adapter) { return adapter->path; }
const struct ckpt *adapter_ckpt(const struct adapter *adapter) { return adapter->ckpt; }
const struct load_file *adapter_load_file(const struct adapter *adapter) { return &adapter->file; }

enum status adapter_merge(struct adapter *adapter, const struct load_merge **out)
{
    if (!adapter->values)
        adapter->values = memory_new((size_t)adapter->table.total_elems, sizeof(float));
    adapter->merge.values = adapter->values;
    const struct load_target to = {.table = &adapter->table, .data = {adapter->values, DTYPE_F32}};
    TRY(load_params(&to, &adapter->file));
    *out = &adapter->merge;
    return ST_OK;
}

enum status adapter_check(struct adapter *adapter, const char *sha256, const char *model)
{
    const char *was = adapter->merge.dims.adapter.base_sha256;
    const struct load_merge *merge;
    if (was[0] && strcmp(was, sha256) != 0)
        return FAIL(ST_BAD_DATA,
                    "%s is an adapter of other weights: of a model with SHA-256 %s, and %s has %s; "
                    "use the model with which it was trained",
                    adapter->path, was, model, sha256);
    TRY(adapter_merge(adapter, &merge));
    for (int i = 0; i < merge->table->params_n; i++) {
        const struct param *p = &merge->table->param[i];
        struct weights_finite finite = {0};
        weights_finite_add(&finite, merge->values + p->offset, p->elems);
        TRY(weights_finite_check(&finite, adapter->path, p->name));
    }
    return ST_OK;
}
