/* load — reads parameters and moments from files into a device's memory, with an adapter added if
 * wanted; writes and parses the model's dimensions as JSON.
 *
 * For training and generation. It must not know how the numbers are used, nor how a file was
 * found. */
#ifndef CONVOY_TRAIN_LOAD_H
#define CONVOY_TRAIN_LOAD_H

#include <stddef.h>

#include <openssl/evp.h>

#include "base/status.h"
#include "dev/dev.h"
#include "format/ckpt.h"
#include "format/gguf/model.h"
#include "format/hf.h"
#include "format/llmc.h"
#include "train/weights/peft.h"
#include "model/model.h"

/* An adapter (LoRA) that is added to weights while they are read: W + (alpha/r)·B·A. Its tensors
 * are in `values`, with the offsets of `table`. There each A precedes the B's of its layer. */
struct load_merge {
    struct model_dims dims; /* with the adapter */
    const struct param_table *table;
    const float *values;
};

/* A sum of a model's weights: SHA-256 of all values as f32, little-endian, parameter by parameter
 * in the order of the table. */
EVP_MD_CTX *load_sum_open(void);
/* load_sum_close — writes the digits to out (NULL: not wanted), and frees the sum. Accepts NULL. */
void load_sum_close(EVP_MD_CTX *sum, char out[MODEL_SHA256_MAX]);

/* The target of a load: table->total_elems f32 elements on stream's device. stream NULL: in host
 * memory. data NULL: names and shapes are checked and nothing is read. With put, values are passed
 * to it range by range instead, for a state that is sharded or otherwise not one array. */
struct load_target {
    const struct param_table *table;
    struct stream *stream;
    struct tensor data;
    /* range of the table's elements */
    enum status (*put)(void *arg, int64_t first, int64_t n, const float *values);
    void *arg;
    EVP_MD_CTX *sum;                /* the values before a merge are added to it; NULL: none */
    const struct load_merge *merge; /* an adapter to be added; NULL: none */
    bool skips_hidden;              /* the file has no hidden matrices */
    bool ignores_tensors; /* leaves out tensors of a Hugging Face folder that are not the model's */
};

/* An open file or folder with parameters: one of the five. */
struct load_file {
    const struct peft *peft;
    const struct hf_model *hf;
    const struct llmc_file *llmc;
    const struct gguf_model *gguf;
    const struct ckpt *ckpt;
    const char *array; /* array of ckpt: "model", "optim_m", "optim_v" */
    bool is_headless;  /* ckpt is of a language model: it has no qa_outputs */
};

/* One parameter in a file: of llm.c, of GGUF (tensor set), or plain. None of them: the file lacks
 * the head of question answering. */
struct load_entry {
    const struct safetensors_entry *plain;
    struct gguf_entry gguf;
    struct llmc_entry llmc;
    bool is_llmc;
};

/* load_find — finds a parameter by its name. ST_BAD_DATA: the file has none, or one of another
 * shape. */
enum status load_find(const struct load_file *file, const struct param *p, struct load_entry *out);
/* load_has — returns false if the file lacks the parameter, as a language model lacks
 * qa_outputs. */
bool load_has(const struct load_entry *entry);
/* load_read — reads elements [first, first+n) as float; the range must be valid. Whole rows are
 * fastest. */
void load_read(const struct load_entry *entry, int64_t first, int64_t n, float *out);
/* load_merge_add — adds the adapter to `values`: elements [first, first + n) of a parameter of the
 * model. No effect if the parameter has no adapter. */
void load_merge_add(const struct load_merge *merge, const struct param *p, int64_t first, int64_t n,
                    float *values);
/* load_release — removes a parameter's pages from resident memory. Call it when the parameter has
 * been read. */
void load_release(const struct load_file *file, const struct load_entry *entry);
/* load_params — loads every parameter by name and shape, one after the other. Parameters that the
 * file lacks keep their values. */
enum status load_params(const struct load_target *to, const struct load_file *file);

/* load_dims_of_config — returns the dimensions in a config; dims.name becomes the last component of
 * the path. */
void load_dims_of_config(const struct hf_config *config, const char *path, enum model_task task,
                         struct model_dims *out);
/* load_dims_of_hf — for tests: returns the dimensions of a Hugging Face folder. */
enum status load_dims_of_hf(const char *dir, enum model_task task, struct model_dims *out);
/* load_dims_json — writes {"name":…,"task":…,"layers":…,…}. ST_RETRY: out of memory. */
enum status load_dims_json(const struct model_dims *dims, char *out, size_t cap);
/* load_dims_parse — reads it back, strictly. It also reads the forms of older versions. */
enum status load_dims_parse(const char *json, struct model_dims *out);
/* load_dims_agree — fails with ST_BAD_SETTING and both values if models of the same tensors compute
 * different functions. where: the location of `was`, for the message. */
enum status load_dims_agree(const struct model_dims *was, const struct model_dims *is,
                            const char *where);

#endif
