/* hf — see hf.h. The weights are one file, or several with an index. Either way every tensor is in
 * one sorted list, by its name without prefix, so two tensors for one parameter are found. It must
 * not know our model's code, only its names. */
#include "format/hf.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "format/hf_config.h"
#include "format/hf_index.h"

#define CONFIG "config.json"
#define WEIGHTS "model.safetensors"
#define INDEX WEIGHTS ".index.json"
#define PREFIX "transformer."
#define CONFIG_BYTES_MAX (1 << 20)
#define INDEX_BYTES_MAX (16 << 20)

/* One file of weights. */
struct part {
    char path[FILE_PATH_MAX];
    struct file_map map;
    struct safetensors tensors;
};

/* A tensor and where it is. */
struct row {
    const char *name; /* without prefix */
    const struct safetensors_entry *entry;
    int part_i;
};

struct hf_model {
    char path[FILE_PATH_MAX]; /* of the weights or their index, for messages */
    struct part *part;
    int parts_n;
    struct row *row; /* by name, ascending */
    int rows_n;
};

bool hf_is_folder(const char *path)
{
    char config[FILE_PATH_MAX];
    return file_join(config, sizeof(config), path, CONFIG) == ST_OK && file_bytes(config) >= 0;
}

enum status hf_read_config(const char *dir, struct hf_config *out)
{
    char path[FILE_PATH_MAX], *bytes = NULL;
    size_t n = 0;
    TRY(file_join(path, sizeof(path), dir, CONFIG));
    TRY(file_read(path, CONFIG_BYTES_MAX, &bytes, &n));
    enum status st = hf_config_parse(bytes, n, path, out);
    free(bytes);
    return st;
}

/* ---- which files ---- */

/* explain_missing — names other forms of weights that the folder holds. */
static enum status explain_missing(const char *dir)
{
    static const char *const how =
        "convert it: AutoModel.from_pretrained(DIR).save_pretrained(OUT, safe_serialization=True)";
    static const char *const other[] = {"pytorch_model.bin", "pytorch_model.bin.index.json",
                                        "tf_model.h5", "flax_model.msgpack"};
    char path[FILE_PATH_MAX];
    for (size_t i = 0; i < sizeof(other) / sizeof(other[0]); i++) {
        TRY(file_join(path, sizeof(path), dir, other[i]));
        if (file_exists(path))
            return FAIL(ST_BAD_DATA, "%s holds %s, but no " WEIGHTS "; %s", dir, other[i], how);
    }
    return FAIL(ST_NO_INPUT, "there is no " WEIGHTS " in %s; check the path", dir);
}

/* open_part — maps and parses one file; hf->part has room for it. */
static enum status open_part(struct hf_model *hf, const char *dir, const char *name)
{
    struct part *part = &hf->part[hf->parts_n++]; /* from here hf_close undoes it */
    TRY(file_join(part->path, sizeof(part->path), dir, name));
    if (!file_exists(part->path))
        return FAIL(ST_BAD_DATA, "%s lists %s, which is not there; fetch the missing file",
                    hf->path, name);
    TRY(file_map_open(part->path, &part->map));
    return safetensors_parse(part->map.data, part->map.bytes, part->path, &part->tensors);
}

static enum status take_parts(struct hf_model *hf, int parts_n)
{
    hf->part = calloc((size_t)parts_n, sizeof(hf->part[0]));
    return hf->part ? ST_OK : FAIL(ST_RETRY, "out of memory: %d files of %s", parts_n, hf->path);
}

/* ---- one list of all tensors ---- */

static int compare_rows(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->name, ((const struct row *)b)->name);
}

static const char *without_prefix(const char *name)
{
    return text_starts(name, PREFIX) ? name + strlen(PREFIX) : name;
}

static enum status list_rows(struct hf_model *hf)
{
    size_t n = 0;
    for (int i = 0; i < hf->parts_n; i++)
        n += (size_t)hf->part[i].tensors.entries_n;
    hf->row = calloc(n + 1, sizeof(hf->row[0]));
    if (!hf->row || n > INT32_MAX)
        return FAIL(ST_RETRY, "out of memory: the list of %zu tensors of %s", n, hf->path);
    for (int i = 0; i < hf->parts_n; i++)
        for (int k = 0; k < hf->part[i].tensors.entries_n; k++) {
            const struct safetensors_entry *entry = &hf->part[i].tensors.entry[k];
            hf->row[hf->rows_n++] = (struct row){without_prefix(entry->name), entry, i};
        }
    qsort(hf->row, n, sizeof(hf->row[0]), compare_rows);
    for (int i = 1; i < hf->rows_n; i++) {
        const struct row *a = &hf->row[i - 1], *b = &hf->row[i];
        if (strcmp(a->name, b->name) == 0)
            return FAIL(ST_BAD_DATA,
                        "two tensors stand for %s: %s in %s and %s in %s; the folder is ambiguous",
                        a->name, a->entry->name, hf->part[a->part_i].path, b->entry->name,
                        hf->part[b->part_i].path);
    }
    return ST_OK;
}

static const struct row *find(const struct hf_model *hf, const char *name)
{
    struct row key = {.name = name};
    return hf->rows_n == 0 ? NULL
                           : bsearch(&key, hf->row, (size_t)hf->rows_n, sizeof(key), compare_rows);
}

/* find_weight — the same; the tied embedding may have the name of the output layer. */
static const struct row *find_weight(const struct hf_model *hf, const char *name)
{
    const struct row *row = find(hf, name);
    return row || strcmp(name, "wte.weight") != 0 ? row : find(hf, "lm_head.weight");
}

/* ---- the index against the files ---- */

/* check_listed — the file that the index names holds the tensor. */
static enum status check_listed(const struct hf_model *hf, const struct hf_index *index)
{
    for (int i = 0; i < index->rows_n; i++) {
        const struct hf_index_row *listed = &index->row[i];
        const struct row *row = find(hf, without_prefix(listed->name));
        if (row && strcmp(row->entry->name, listed->name) == 0 && row->part_i == listed->file_i)
            continue;
        if (row && strcmp(row->entry->name, listed->name) == 0)
            return FAIL(
                ST_BAD_DATA,
                "%s: tensor %s is listed in %s, but lies in %s; the files do not belong together",
                hf->path, listed->name, index->file[listed->file_i], hf->part[row->part_i].path);
        if (!safetensors_has_other(&hf->part[listed->file_i].tensors, listed->name))
            return FAIL(
                ST_BAD_DATA,
                "%s: tensor %s is listed in %s, which does not hold it; fetch the file again",
                hf->path, listed->name, index->file[listed->file_i]);
    }
    return ST_OK;
}

/* check_unlisted — no file holds a tensor that is not listed. */
static enum status check_unlisted(const struct hf_model *hf, const struct hf_index *index)
{
    for (int i = 0; i < hf->rows_n; i++) {
        const struct row *row = &hf->row[i];
        if (!hf_index_find(index, row->entry->name))
            return FAIL(ST_BAD_DATA,
                        "%s does not list tensor %s of %s; the files do not belong together",
                        hf->path, row->entry->name, hf->part[row->part_i].path);
    }
    return ST_OK;
}

static enum status open_listed(struct hf_model *hf, const char *dir, const struct hf_index *index)
{
    TRY(take_parts(hf, index->files_n));
    for (int i = 0; i < index->files_n; i++)
        TRY(open_part(hf, dir, index->file[i]));
    TRY(list_rows(hf));
    TRY(check_listed(hf, index));
    return check_unlisted(hf, index);
}

static enum status open_index(struct hf_model *hf, const char *dir)
{
    struct hf_index index;
    char *bytes = NULL;
    size_t n = 0;
    TRY(file_read(hf->path, INDEX_BYTES_MAX, &bytes, &n));
    enum status st = hf_index_parse(bytes, n, hf->path, &index);
    free(bytes);
    TRY(st);
    st = open_listed(hf, dir, &index);
    hf_index_free(&index);
    return st;
}

/* ---- what our model can compute ---- */

/* check_tied — refuses an output layer of its own, which our model does not have; a copy of the
 * embedding is harmless. */
static enum status check_tied(const struct hf_model *hf)
{
    const struct row *head_row = find(hf, "lm_head.weight"), *wte_row = find(hf, "wte.weight");
    if (!head_row || !wte_row)
        return ST_OK;
    const struct safetensors_entry *head = head_row->entry, *wte = wte_row->entry;
    if (head->dtype == wte->dtype && head->bytes == wte->bytes &&
        memcmp(head->data, wte->data, wte->bytes) == 0)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: lm_head.weight differs from wte.weight; only models with a tied output layer "
                "can be read",
                hf->path);
}

/* is_block_name — "h.<number>.<one of GPT-2's>". */
static bool is_block_name(const char *name)
{
    static const char *const known[] = {
        "ln_1.weight",        "ln_1.bias",        "attn.c_attn.weight", "attn.c_attn.bias",
        "attn.c_proj.weight", "attn.c_proj.bias", "ln_2.weight",        "ln_2.bias",
        "mlp.c_fc.weight",    "mlp.c_fc.bias",    "mlp.c_proj.weight",  "mlp.c_proj.bias",
        "attn.bias",          "attn.masked_bias", /* the causal mask, kept by older versions */
    };
    size_t digits = text_starts(name, "h.") ? strspn(name + 2, "0123456789") : 0;
    if (digits == 0 || name[2 + digits] != '.')
        return false;
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
        if (strcmp(name + 3 + digits, known[i]) == 0)
            return true;
    return false;
}

/* warn_unused — warns about tensors that GPT-2 does not have. */
static void warn_unused(const struct hf_model *hf)
{
    static const char *const known[] = {"wte.weight",     "wpe.weight",     "ln_f.weight",
                                        "ln_f.bias",      "lm_head.weight", "qa_outputs.weight",
                                        "qa_outputs.bias"};
    const char *first = NULL;
    int unused_n = 0;
    for (int i = 0; i < hf->rows_n; i++) {
        const char *name = hf->row[i].name;
        bool is_known = is_block_name(name);
        for (size_t k = 0; k < sizeof(known) / sizeof(known[0]); k++)
            is_known = is_known || strcmp(name, known[k]) == 0;
        if (!is_known && unused_n++ == 0)
            first = hf->row[i].entry->name;
    }
    if (unused_n > 0)
        LOG_WARN("%s: %d tensors do not belong to GPT-2 and are ignored, the first is %s", hf->path,
                 unused_n, first);
}

/* layer_of — the number in "h.<number>.<anything>"; -1: another kind of name. Numbers over 2^31 are
 * all alike. */
static int64_t layer_of(const char *name)
{
    char digits[16];
    size_t n = text_starts(name, "h.") ? strspn(name + 2, "0123456789") : 0;
    int64_t layer;
    if (n == 0 || name[2 + n] != '.')
        return -1;
    if (n >= sizeof(digits))
        return INT32_MAX;
    memcpy(digits, name + 2, n);
    digits[n] = 0;
    return text_parse_i64(digits, 0, INT32_MAX, &layer) == TEXT_OK ? layer : INT32_MAX;
}

enum status hf_check_layers(const struct hf_model *hf, int64_t layers)
{
    const struct row *first = NULL;
    int64_t most = -1;
    for (int i = 0; i < hf->rows_n; i++) {
        int64_t layer = layer_of(hf->row[i].name);
        most = layer > most ? layer : most;
        if (layer >= layers && !first)
            first = &hf->row[i];
    }
    if (!first)
        return ST_OK;
    return FAIL(ST_BAD_DATA,
                "%s: tensor %s is of layer %lld, but config.json says n_layer %lld (layers 0 to "
                "%lld); correct n_layer (%lld?), or fetch the files that belong together",
                hf->path, first->entry->name, (long long)layer_of(first->name), (long long)layers,
                (long long)layers - 1, (long long)most + 1);
}

/* ---- life ---- */

/* open_weights — one file takes precedence over an index, as in transformers. */
static enum status open_weights(struct hf_model *hf, const char *dir)
{
    TRY(file_join(hf->path, sizeof(hf->path), dir, WEIGHTS));
    if (file_exists(hf->path)) {
        TRY(take_parts(hf, 1));
        TRY(open_part(hf, dir, WEIGHTS));
        TRY(list_rows(hf));
    } else {
        TRY(file_join(hf->path, sizeof(hf->path), dir, INDEX));
        if (!file_exists(hf->path))
            return explain_missing(dir);
        TRY(open_index(hf, dir));
    }
    TRY(check_tied(hf));
    warn_unused(hf);
    return ST_OK;
}

enum status hf_open(const char *dir, struct hf_model **out)
{
    struct hf_model *hf = calloc(1, sizeof(*hf));
    if (!hf)
        return FAIL(ST_RETRY, "out of memory: model folder %s", dir);
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
    for (int i = 0; i < hf->parts_n; i++) {
        safetensors_free(&hf->part[i].tensors);
        file_map_close(&hf->part[i].map);
    }
    free(hf->part);
    free(hf->row);
    free(hf);
}

bool hf_has(const struct hf_model *hf, const char *name) { return find_weight(hf, name) != NULL; }

enum status hf_tensor(const struct hf_model *hf, const char *name, int dims_n, const int64_t *dim,
                      const struct safetensors_entry **out)
{
    const struct row *row = find_weight(hf, name);
    if (!row)
        return FAIL(ST_BAD_DATA,
                    "%s: there is no tensor %s, with or without \"" PREFIX
                    "\" before it; is it a whole GPT-2?",
                    hf->path, name);
    TRY(safetensors_check(row->entry, hf->part[row->part_i].path, dims_n, dim));
    *out = row->entry;
    return ST_OK;
}
