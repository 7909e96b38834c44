/* hf_index — see hf_config.h. The list is not trusted: the number of names, their characters, and
 * their targets are checked before any file is opened. */
#include "base/memory.h"
#include "format/hf_config.h"

#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "format/safetensors.h"

#define ROWS_MAX 65536 /* the largest published models have some thousands */
#define FILES_MAX 1024
#define FILE_NAME_MAX 255
#define SUFFIX ".safetensors"

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_rows(const void *a, const void *b)
{
    return strcmp(((const struct hf_index_row *)a)->name, ((const struct hf_index_row *)b)->name);
}

/* check_tensor_name — checks that a name is fit for messages, and short enough for a safetensors
 * file. */
static enum status check_tensor_name(const char *name)
{
    size_t n = strlen(name);
    if (n == 0 || n >= SAFETENSORS_NAME_MAX)
        return FAIL(ST_BAD_DATA, "a tensor's name has %zu bytes, expected 1 to %d: %.60s…", n,
                    SAFETENSORS_NAME_MAX - 1, name);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return FAIL(ST_BAD_DATA,
                        "a tensor's name holds control byte %d; the file is damaged or hostile",
                        name[i]);
    return ST_OK;
}

/* check_file_name — checks for a plain name: no folder, no hidden file, no character that is
 * special in a shell or a log. */
static enum status check_file_name(const cJSON *item)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *file = cJSON_IsString(item) ? item->valuestring : NULL;
    if (!file)
        return FAIL(ST_BAD_DATA, "the file of tensor %s is not a string; the index is damaged",
                    item->string);
    if (strlen(file) > FILE_NAME_MAX || file[0] == '.' || file[strspn(file, plain)] != 0 ||
        !text_ends(file, SUFFIX))
        return FAIL(
            ST_BAD_DATA,
            "the file of tensor %s is \"%.80s\", which is no plain file name ending in " SUFFIX
            "; the index is damaged or hostile",
            item->string, file);
    return ST_OK;
}

/* list_files — lists the sorted names of all rows' files, each once. names has room for all. */
static enum status list_files(struct hf_index *index, const char **names)
{
    int n = 0;
    for (int i = 0; i < index->rows_n; i++)
        names[i] = index->file[i];
    qsort(names, (size_t)index->rows_n, sizeof(*names), compare_names);
    for (int i = 0; i < index->rows_n; i++)
        if (i == 0 || strcmp(names[i], names[n - 1]) != 0)
            names[n++] = names[i];
    if (n > FILES_MAX)
        return FAIL(ST_BAD_DATA, "it lists %d files, at most %d are allowed", n, FILES_MAX);
    for (int i = 0; i < index->rows_n; i++) {
        const char **at = bsearch(&index->file[i], names, (size_t)n, sizeof(*names), compare_names);
        index->row[i].file_i = (int)(at - names);
    }
    memcpy(index->file, names, (size_t)n * sizeof(*names));
    index->files_n = n;
    return ST_OK;
}

/* read_total — reads "total_size" of "metadata", which may be missing. */
static enum status read_total(struct hf_index *index)
{
    const cJSON *metadata = cJSON_GetObjectItemCaseSensitive(index->document, "metadata"),
                *total = cJSON_GetObjectItemCaseSensitive(metadata, "total_size");
    index->total_bytes = -1;
    if (!total || cJSON_IsNull(total))
        return ST_OK;
    if (!cJSON_IsNumber(total) || !(total->valuedouble >= 0))
        return FAIL(ST_BAD_DATA, "\"total_size\" is not a number of bytes; the index is damaged");
    index->total_bytes = total->valuedouble;
    return ST_OK;
}

static enum status read_document(struct hf_index *index)
{
    const cJSON *map;
    if (!cJSON_IsObject(index->document))
        return FAIL(ST_BAD_DATA, "it is not a JSON object");
    TRY(read_total(index));
    TRY(json_get_object(index->document, "weight_map", &map));
    size_t n = 0;
    for (const cJSON *item = map->child; item; item = item->next)
        n++;
    if (n == 0 || n > ROWS_MAX)
        return FAIL(ST_BAD_DATA, "\"weight_map\" lists %zu tensors, expected 1 to %d", n, ROWS_MAX);
    index->row = memory_new(n, sizeof(index->row[0]));
    index->file = memory_new(n, sizeof(index->file[0]));
    const char **names = memory_new(n, sizeof(*names));
    enum status st = ST_OK;
    for (const cJSON *item = map->child; st == ST_OK && item; item = item->next) {
        st = check_tensor_name(item->string);
        if (st == ST_OK)
            st = check_file_name(item);
        index->row[index->rows_n].name = item->string;
        index->file[index->rows_n++] = item->valuestring;
    }
    if (st == ST_OK)
        st = list_files(index, names);
    free(names);
    if (st == ST_OK)
        qsort(index->row, n, sizeof(index->row[0]), compare_rows);
    return st;
}

enum status hf_index_parse(const char *bytes, size_t n, const char *what, struct hf_index *out)
{
    struct hf_index index = {.rows_n = 0};
    TRY(json_parse(bytes, n, what, &index.document));
    enum status st = read_document(&index);
    if (st != ST_OK) {
        hf_index_free(&index);
        return FAIL(st, "%s: %s", what, status_message());
    }
    *out = index;
    return ST_OK;
}

void hf_index_free(struct hf_index *index)
{
    free(index->row);
    free(index->file);
    cJSON_Delete(index->document);
    *index = (struct hf_index){.rows_n = 0};
}

const struct hf_index_row *hf_index_find(const struct hf_index *index, const char *name)
{
    struct hf_index_row key = {.name = name};
    return index->rows_n == 0
               ? NULL
               : bsearch(&key, index->row, (size_t)index->rows_n, sizeof(key), compare_rows);
}

#ifdef FUZZ
#include "base/assert.h"

/* Any bytes are refused, or list tensors that are found again, in files with plain names. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct hf_index index;
    if (hf_index_parse((const char *)bytes, n, "fuzz", &index) != ST_OK)
        return 0;
    ASSERT(index.rows_n > 0 && index.files_n > 0 && index.files_n <= index.rows_n);
    for (int i = 0; i < index.rows_n; i++) {
        const struct hf_index_row *row = &index.row[i];
        ASSERT(hf_index_find(&index, row->name) == row && row->file_i >= 0 &&
               row->file_i < index.files_n);
        ASSERT(!strchr(index.file[row->file_i], '/') && text_ends(index.file[row->file_i], SUFFIX));
    }
    hf_index_free(&index);
    return 0;
}
#endif
