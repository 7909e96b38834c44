/* hf — see hf.h. The weights are one file, or several with an index. Either way every tensor is in
 * one sorted list, by its name without prefix, so two tensors for one parameter are found. It must
 * not know our models' code, only their names (hf_names.h). */
#include "format/hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "format/gguf/model.h"
#include "format/hf_config.h"
#include "format/hf_names.h"

#define CONFIG "config.json"
#define GENERATION "generation_config.json"
#define WEIGHTS "model.safetensors"
#define INDEX WEIGHTS ".index.json"
#define CONFIG_BYTES_MAX (1 << 20)
#define INDEX_BYTES_MAX (16 << 20)

/* One file of weights. */
struct weights_file {
    char path[FILE_PATH_MAX];
    struct file_map map;
    struct safetensors tensors;
};

/* A tensor and the file that holds it. */
struct row {
    const char *name; /* without prefix */
    const struct safetensors_entry *entry;
    int file_i;
};

struct hf_model {
    char path[FILE_PATH_MAX]; /* path of the weights or their index, for messages */
    struct weights_file *file;
    int files_n;
    struct row *row; /* by name, ascending */
    int rows_n;
    const struct hf_names *names;
    bool is_tied;
};

bool hf_is_folder(const char *path)
{
    char config[FILE_PATH_MAX];
    return file_join(config, sizeof(config), path, CONFIG) == ST_OK && file_bytes(config) >= 0;
}

static bool is_json(const char *bytes, size_t n, const char *path)
{
    cJSON *root = NULL;
    const bool is = json_parse(bytes, n, path, &root) == ST_OK;
    cJSON_Delete(root);
    return is;
}

/* read_generation — reads generation_config.json, if there is one. No weight depends on it, so a
 * damaged file (or a pointer of git-lfs) costs a warning, not the model. A whole file must fit the
 * model. */
static enum status read_generation(const char *from, struct hf_config *config)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    size_t n = 0;
    TRY(file_join(path, sizeof(path), from, GENERATION));
    if (!file_exists(path))
        return ST_OK;
    enum status st = file_read(path, CONFIG_BYTES_MAX, &bytes, &n);
    const bool is_whole = st == ST_OK && is_json(bytes, n, path);
    if (is_whole)
        st = hf_config_parse_generation(bytes, n, path, config);
    free(bytes);
    if (is_whole || st == ST_RETRY)
        return st;
    LOG_WARN("%s; the tokens that end a text come from " CONFIG " instead", status_message());
    status_clear();
    return ST_OK;
}

enum status hf_read_config(const char *from, struct hf_config *out)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    size_t n = 0;
    if (gguf_model_is_file(from)) {
        struct gguf_model *model;
        TRY(gguf_model_open(from, &model));
        *out = *gguf_model_config(model);
        gguf_model_close(model);
        return ST_OK;
    }
    TRY(file_join(path, sizeof(path), from, CONFIG));
    TRY(file_read(path, CONFIG_BYTES_MAX, &bytes, &n));
    struct hf_config config;
    enum status st = hf_config_parse(bytes, n, path, &config);
    free(bytes);
    TRY(st);
    TRY(read_generation(from, &config));
    if (config.has_more_eos)
        return FAIL(ST_BAD_DATA,
                    "%s: \"eos_token_id\" (of " GENERATION ", else of " CONFIG
                    ") lists more than %d tokens, the most that are read; remove the tokens that "
                    "end no text",
                    from, HF_EOS_MAX);
    *out = config;
    return ST_OK;
}

/* ---- the files of a model ---- */

/* open_file — maps and parses one file; hf->file has room for it. */
static enum status open_file(struct hf_model *hf, const char *dir, const char *name)
{
    /* hf_close undoes all steps from here on */
    struct weights_file *file = &hf->file[hf->files_n++];
    TRY(file_join(file->path, sizeof(file->path), dir, name));
    if (!file_exists(file->path))
        return FAIL(ST_BAD_DATA, "%s lists %s, which is not there; fetch the missing file",
                    hf->path, name);
    TRY(file_map_open(file->path, &file->map));
    return safetensors_parse(file->map.data, file->map.bytes, file->path, &file->tensors);
}

/* ---- one list of all tensors ---- */

static int compare_rows(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

/* our_name — returns the name without prefix; all spellings of the output layer become one name. */
static const char *our_name(const struct hf_model *hf, const char *name)
{
    if (strcmp(name, "lm_head.weight") == 0 || strcmp(name, "embed_out.weight") == 0)
        return hf->names->head;
    return text_starts(name, hf->names->prefix) ? name + strlen(hf->names->prefix) : name;
}

static enum status list_rows(struct hf_model *hf)
{
    size_t n = 0;
    for (int i = 0; i < hf->files_n; i++)
        n += (size_t)hf->file[i].tensors.entries_n;
    hf->row = memory_new(n, sizeof(hf->row[0]));
    for (int i = 0; i < hf->files_n; i++)
        for (int k = 0; k < hf->file[i].tensors.entries_n; k++) {
            const struct safetensors_entry *entry = &hf->file[i].tensors.entry[k];
            hf->row[hf->rows_n++] = (struct row){our_name(hf, entry->name), entry, i};
        }
    qsort(hf->row, n, sizeof(hf->row[0]), compare_rows);
    for (int i = 1; i < hf->rows_n; i++) {
        const struct row *a = &hf->row[i - 1], *b = &hf->row[i];
        if (strcmp(a->name, b->name) == 0)
            return FAIL(ST_BAD_DATA,
                        "two tensors stand for %s: %s in %s and %s in %s; the folder is ambiguous",
                        a->name, a->entry->name, hf->file[a->file_i].path, b->entry->name,
                        hf->file[b->file_i].path);
    }
    return ST_OK;
}

static const struct row *find_row(const struct hf_model *hf, const char *name)
{
    struct row key = {.name = name};
    return hf->rows_n == 0 ? NULL
                           : bsearch(&key, hf->row, (size_t)hf->rows_n, sizeof(key), compare_rows);
}

/* find_weight — finds a tensor; a tied embedding may have the name of the output layer. */
static const struct row *find_weight(const struct hf_model *hf, const char *name)
{
    const struct row *row = find_row(hf, name);
    return row || !hf->is_tied || strcmp(name, hf->names->embedding) != 0
               ? row
               : find_row(hf, hf->names->head);
}

/* ---- the index against the files ---- */

static enum status open_listed(struct hf_model *hf, const char *dir, const struct hf_index *index)
{
    hf->file = memory_new((size_t)index->files_n, sizeof(hf->file[0]));
    for (int i = 0; i < index->files_n; i++)
        TRY(open_file(hf, dir, index->file[i]));
    TRY(list_rows(hf));
    /* Checks that the file in the index holds the tensor. */
    for (int i = 0; i < index->rows_n; i++) {
        const struct hf_index_row *listed = &index->row[i];
        const struct row *row = find_row(hf, our_name(hf, listed->name));
        if (row && strcmp(row->entry->name, listed->name) == 0 && row->file_i == listed->file_i)
            continue;
        if (row && strcmp(row->entry->name, listed->name) == 0)
            return FAIL(
                ST_BAD_DATA,
                "%s: tensor %s is listed in %s, but lies in %s; the files do not belong together",
                hf->path, listed->name, index->file[listed->file_i], hf->file[row->file_i].path);
        if (!safetensors_has_other(&hf->file[listed->file_i].tensors, listed->name))
            return FAIL(
                ST_BAD_DATA,
                "%s: tensor %s is listed in %s, which does not hold it; fetch the file again",
                hf->path, listed->name, index->file[listed->file_i]);
    }
    /* Checks that no file holds a tensor that is not listed. */
    for (int i = 0; i < hf->rows_n; i++) {
        const struct row *row = &hf->row[i];
        if (!hf_index_find(index, row->entry->name))
            return FAIL(ST_BAD_DATA,
                        "%s does not list tensor %s of %s; the files do not belong together",
                        hf->path, row->entry->name, hf->file[row->file_i].path);
    }
    /* Compares the index's number of bytes with the sum of all tensors. */
    double bytes = 0;
    if (index->total_bytes < 0)
        return ST_OK;
    for (int i = 0; i < hf->files_n; i++)
        bytes += (double)hf->file[i].tensors.data_bytes;
    if (bytes == index->total_bytes)
        return ST_OK;
    return FAIL(
        ST_BAD_DATA,
        "%s: \"total_size\" is %s, but the tensors of its %d file%s have %s bytes; the files "
        "do not belong together, or the index is damaged: fetch them again",
        hf->path, text_f64(index->total_bytes).text, hf->files_n, hf->files_n == 1 ? "" : "s",
        text_f64(bytes).text);
}

/* ---- checks of the architecture ---- */

/* check_tied — refuses an output layer of a tied model that differs from the embedding; a copy is
 * harmless. */
static enum status check_tied(const struct hf_model *hf)
{
    const struct row *head_row = find_row(hf, hf->names->head),
                     *embedding_row = find_row(hf, hf->names->embedding);
    if (!hf->is_tied || !head_row || !embedding_row)
        return ST_OK;
    const struct safetensors_entry *head = head_row->entry, *embedding = embedding_row->entry;
    bool is_same = head->dtype == embedding->dtype && head->bytes == embedding->bytes &&
                   memcmp(head->data, embedding->data, embedding->bytes) == 0;
    hf_release(hf, head);
    hf_release(hf, embedding);
    if (is_same)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: %s differs from %s, but config.json says that they are one "
                "(\"tie_word_embeddings\"); correct it, or fetch the files that belong together",
                hf->path, head->name, embedding->name);
}

/* find_unused — counts the tensors that the architecture does not have, of any dtype; *first: the
 * first of them by name, among the tensors of known dtypes if there are any. */
static int find_unused(const struct hf_model *hf, const char **first)
{
    int unused_n = 0;
    for (int i = 0; i < hf->rows_n; i++)
        if (!hf_names_has(hf->names, hf->row[i].name) && unused_n++ == 0)
            *first = hf->row[i].entry->name;
    for (int i = 0; i < hf->files_n; i++) {
        const char *name;
        for (int k = 0; (name = safetensors_other(&hf->file[i].tensors, k)) != NULL; k++)
            if (!hf_names_has(hf->names, our_name(hf, name)) && unused_n++ == 0)
                *first = name;
    }
    return unused_n;
}

enum status hf_check_names(const struct hf_model *hf)
{
    const char *first = NULL;
    const int unused_n = find_unused(hf, &first);
    if (unused_n == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: tensor %s does not belong to %s%s and would not be used; use another model, "
                "or set IGNORE_TENSORS=1 if it is not needed",
                hf->path, first, hf->names->title, unused_n > 1 ? " (nor do others)" : "");
}

enum status hf_check_layers(const struct hf_model *hf, int64_t layers)
{
    const struct row *first = NULL;
    int64_t most = -1;
    for (int i = 0; i < hf->rows_n; i++) {
        int64_t layer = hf_names_layer(hf->names, hf->row[i].name);
        most = layer > most ? layer : most;
        if (layer >= layers && !first)
            first = &hf->row[i];
    }
    if (!first)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: tensor %s is of layer %lld, but config.json says %s %lld (layers 0 to "
                "%lld); correct %s (%lld?), or fetch the files that belong together",
                hf->path, first->entry->name, (long long)hf_names_layer(hf->names, first->name),
                hf->names->layers_key, (long long)layers, (long long)layers - 1,
                hf->names->layers_key, (long long)most + 1);
}

/* ---- life ---- */

/* open_weights — opens the weights; one file has precedence over an index, as in transformers. */
static enum status open_weights(struct hf_model *hf, const char *dir)
{
    TRY(file_join(hf->path, sizeof(hf->path), dir, WEIGHTS));
    if (file_exists(hf->path)) {
        hf->file = memory_new(1, sizeof(hf->file[0]));
        TRY(open_file(hf, dir, WEIGHTS));
        TRY(list_rows(hf));
    } else {
        TRY(file_join(hf->path, sizeof(hf->path), dir, INDEX));
        if (!file_exists(hf->path)) {
            /* Other forms of weights that the folder may hold. */
            static const char *const how =
                "convert it: AutoModel.from_pretrained(DIR).save_pretrained(OUT, "
                "safe_serialization=True)";
            static const char *const other[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                                "tf_model.h5", "flax_model.msgpack"};
            char path[FILE_PATH_MAX];
            for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
                TRY(file_join(path, sizeof(path), dir, other[i]));
                if (file_exists(path))
                    return FAIL(ST_BAD_DATA, "%s holds %s, but no " WEIGHTS "; %s", dir, other[i],
                                how);
            }
            return FAIL(ST_NO_INPUT, "there is no " WEIGHTS " in %s; check the path", dir);
        }
        struct hf_index index;
        char *bytes = NULL;
        size_t n = 0;
        TRY(file_read(hf->path, INDEX_BYTES_MAX, &bytes, &n));
        enum status st = hf_index_parse(bytes, n, hf->path, &index);
        free(bytes);
        TRY(st);
        st = open_listed(hf, dir, &index);
        hf_index_free(&index);
        TRY(st);
    }
    return check_tied(hf);
}

enum status hf_open(const char *dir, const struct hf_config *config, struct hf_model **out)
{
    struct hf_model *hf = memory_new(1, sizeof(*hf));
    hf->names = hf_names_of(config->arch);
    hf->is_tied = config->is_tied;
    enum status st = open_weights(hf, dir);
    if (st != ST_OK) {
        hf_close(hf);
        return st;
    }
    *out = hf;
    return ST_OK;
}

void hf_close(struct hf_model *hf)
{
    if (!hf)
        return;
    for (int i = 0; i < hf->files_n; i++) {
        safetensors_free(&hf->file[i].tensors);
        file_map_close(&hf->file[i].map);
    }
    free(hf->file);
    free(hf->row);
    free(hf);
}

void hf_release(const struct hf_model *hf, const struct safetensors_entry *entry)
{
    for (int i = 0; i < hf->files_n; i++) {
        const struct safetensors *tensors = &hf->file[i].tensors;
        if (entry >= tensors->entry && entry < tensors->entry + tensors->entries_n)
            file_map_release(&hf->file[i].map, entry->data, entry->bytes);
    }
}

enum status hf_weights_sum(const char *dir, uint64_t *out)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    struct hf_index index;
    size_t n = 0;
    TRY(file_join(path, sizeof(path), dir, WEIGHTS));
    if (file_exists(path))
        return file_sum(path, out);
    TRY(file_join(path, sizeof(path), dir, INDEX));
    *out = 0;
    if (!file_exists(path))
        return ST_OK; /* the open names the missing file */
    TRY(file_read(path, INDEX_BYTES_MAX, &bytes, &n));
    enum status st = hf_index_parse(bytes, n, path, &index);
    uint64_t sums[2] = {file_sum_ends((const uint8_t *)bytes, n), 0};
    free(bytes);
    TRY(st);
    for (int i = 0; st == ST_OK && i < index.files_n; i++) {
        st = file_join(path, sizeof(path), dir, index.file[i]);
        if (st == ST_OK && file_exists(path))
            st = file_sum(path, &sums[1]);
        sums[0] = XXH3_64bits(sums, sizeof(sums));
    }
    hf_index_free(&index);
    *out = sums[0];
    return st;
}

bool hf_has(const struct hf_model *hf, const char *name) { return find_weight(hf, name) != NULL; }

enum status hf_tensor(const struct hf_model *hf, const char *name, int dims_n, const int64_t *dim,
                      const struct safetensors_entry **out)
{
    const struct row *row = find_weight(hf, name);
    if (!row)
        return FAIL(
            ST_BAD_DATA,
            "%s: there is no tensor %s, with or without \"%s\" before it; is it a whole %s?",
            hf->path, name, hf->names->prefix, hf->names->title);
    TRY(safetensors_check(row->entry, hf->file[row->file_i].path, dims_n, dim));
    *out = row->entry;
    return ST_OK;
}
