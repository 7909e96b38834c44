/* load — see load.h. */
#include "train/load.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/assert.h"
#include "base/text.h"

#define BUFFER_ELEMS ((int64_t)1 << 18)

void load_read(const struct load_entry *entry, int64_t first, int64_t n, float *out)
{
    if (entry->is_llmc)
        llmc_to_f32(&entry->llmc, first, n, out);
    else if (entry->gguf.tensor)
        gguf_model_to_f32(&entry->gguf, first, n, out);
    else
        safetensors_to_f32(entry->plain, first, n, out);
}

bool load_has(const struct load_entry *entry)
{
    return entry->plain || entry->is_llmc || entry->gguf.tensor;
}

void load_release(const struct load_file *file, const struct load_entry *entry)
{
    if (entry->is_llmc)
        llmc_release(file->llmc, &entry->llmc);
    else if (entry->gguf.tensor)
        gguf_model_release(file->gguf, &entry->gguf);
    else if (file->hf)
        hf_release(file->hf, entry->plain);
    else
        ckpt_release(file->ckpt, entry->plain);
}

/* is_head — true for the head of question answering, which a language model lacks. */
static bool is_head(const struct param *p) { return text_starts(p->name, "qa_outputs."); }

enum status load_find(const struct load_file *file, const struct param *p, struct load_entry *out)
{
    *out = (struct load_entry){.plain = NULL};
    if (is_head(p) &&
        (file->llmc || file->gguf || file->is_headless || (file->hf && !hf_has(file->hf, p->name))))
        return ST_OK;
    out->is_llmc = file->llmc != NULL;
    if (file->llmc)
        return llmc_tensor(llmc_of(file->llmc), p->name, p->dims_n, p->dim, &out->llmc);
    if (file->gguf)
        return gguf_model_tensor(file->gguf, p->name, p->dims_n, p->dim, &out->gguf);
    if (file->hf)
        return hf_tensor(file->hf, p->name, p->dims_n, p->dim, &out->plain);
    return ckpt_tensor(file->ckpt, file->part, p->name, p->dims_n, p->dim, &out->plain);
}

/* plain_f32 — true if the file's bytes are the bytes in memory, so they are only copied. */
static bool plain_f32(const struct load_entry *entry)
{
    return entry->plain && entry->plain->dtype == DTYPE_F32;
}

static int64_t elems_of(const struct load_entry *entry)
{
    return entry->is_llmc       ? entry->llmc.elems
           : entry->gguf.tensor ? entry->gguf.elems
                                : entry->plain->elems;
}

/* copy_range — to where the target keeps it. The buffer takes n elements. */
static enum status copy_range(const struct load_target *to, const struct param *p,
                              const struct load_entry *entry, int64_t first, int64_t n,
                              float *buffer)
{
    if (to->put) {
        load_read(entry, first, n, buffer);
        return to->put(to->arg, p->offset + first, n, buffer);
    }
    void *out = tensor_at(to->data, p->offset + first).data;
    load_read(entry, first, n, to->stream ? buffer : out);
    if (!to->stream)
        return ST_OK;
    TRY(dev_copy(to->stream, out, buffer, (size_t)n * sizeof *buffer));
    return dev_sync(to->stream);
}

/* copy_entry — f32 is copied directly, with all threads of the device. Other types and layouts are
 * converted in a small buffer, in whole rows where they fit. */
static enum status copy_entry(const struct load_target *to, const struct param *p,
                              const struct load_entry *entry, float *buffer)
{
    int64_t elems = elems_of(entry), row = p->dim[p->dims_n - 1];
    int64_t most = row < BUFFER_ELEMS ? BUFFER_ELEMS / row * row : BUFFER_ELEMS;
    ASSERTF(elems == p->elems, "%s: %lld elements, expected %lld", p->name, (long long)elems,
            (long long)p->elems);
    if (!to->put && to->stream && plain_f32(entry)) {
        TRY(dev_copy(to->stream, tensor_at(to->data, p->offset).data, entry->plain->data,
                     entry->plain->bytes));
        return dev_sync(to->stream);
    }
    for (int64_t first = 0; first < p->elems; first += most) {
        int64_t n = p->elems - first < most ? p->elems - first : most;
        TRY(copy_range(to, p, entry, first, n, buffer));
    }
    return ST_OK;
}

static enum status load_one(const struct load_target *to, const struct load_file *file,
                            const struct param *p, float *buffer)
{
    struct load_entry entry;
    TRY(load_find(file, p, &entry));
    if (!to->data.data && !to->put)
        return ST_OK;
    if (!load_has(&entry)) {
        LOG_INFO("%s is missing in the model that weights come from: it keeps its initial value",
                 p->name);
        return ST_OK;
    }
    TRY(copy_entry(to, p, &entry, buffer));
    load_release(file, &entry);
    return ST_OK;
}

enum status load_params(const struct load_target *to, const struct load_file *file)
{
    float *buffer = malloc(BUFFER_ELEMS * sizeof *buffer);
    if (!buffer)
        return FAIL(ST_RETRY,
                    "out of memory: a buffer for loading; use a machine with more memory");
    enum status st = ST_OK;
    for (int i = 0; i < to->table->params_n && st == ST_OK; i++)
        if (!to->skips_hidden || !to->table->param[i].is_hidden)
            st = load_one(to, file, &to->table->param[i], buffer);
    free(buffer);
    return st;
}
