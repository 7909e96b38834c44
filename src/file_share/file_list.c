/* file_list — see file_list.h. Must not interpret the files. */
#include "file_share/file_list.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

static const char *const states[FILE_LIST_STATES_N] = {"wait", "none", "unfit", "ready"};

/* Returns true if s is a suffix. File names are made from it, so it may hold only letters after its
 * point. */
static bool is_suffix(const char *s)
{
    size_t n = strlen(s);
    if (n < 2 || n >= FILE_LIST_SUFFIX_MAX || s[0] != '.')
        return false;
    for (size_t i = 1; i < n; i++)
        if (s[i] < 'a' || s[i] > 'z')
            return false;
    return true;
}

const char *file_list_setting(enum file_list_kind kind)
{
    static const char *const names[FILE_LIST_KINDS_N] = {[FILE_LIST_KIND_DATA] = "DATA",
                                                         [FILE_LIST_KIND_VAL_DATA] = "VAL_DATA",
                                                         [FILE_LIST_KIND_MODEL] = "MODEL",
                                                         [FILE_LIST_KIND_ADAPTER] = "ADAPTER",
                                                         [FILE_LIST_KIND_TOKENIZER] = "TOKENIZER"};
    return names[kind];
}

/* Checks the name of a file: it leads out of no folder, is not hidden, and no file before it has
 * it. */
static enum status check_name(const struct file_list *list, const char *name)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    if (name[0] == '.' || name[strspn(name, plain)] != 0)
        return FAIL(ST_BAD_DATA, "file %d has the name \"%.64s\", which is no plain name",
                    list->files_n, name);
    if (list->files_n >= FILE_LIST_NAMED_MAX)
        return FAIL(ST_BAD_DATA, "more than %d files with names", FILE_LIST_NAMED_MAX);
    for (int i = 0; i < list->files_n; i++)
        if (strcmp(list->files[i].name, name) == 0)
            return FAIL(ST_BAD_DATA, "the files %d and %d have the name %s", i, list->files_n,
                        name);
    return ST_OK;
}

enum status file_list_add(struct file_list *list, const struct file_list_entry *file)
{
    int last = list->files_n > 0 ? list->files[list->files_n - 1].item : -1;
    if (list->files_n == FILE_LIST_FILES_MAX)
        return FAIL(ST_BAD_DATA, "more than %d files", FILE_LIST_FILES_MAX);
    if ((file->item != last && file->item != last + 1) || file->item >= FILE_LIST_ITEMS_MAX ||
        file->item < 0)
        return FAIL(ST_BAD_DATA, "file %d belongs to part %d, but follows one of part %d",
                    list->files_n, file->item, last);
    if (file->bytes < 1 || file->bytes > FILE_LIST_FILE_BYTES_MAX || file->skip < 0 ||
        file->skip > file->bytes)
        return FAIL(ST_BAD_DATA, "file %d has %lld bytes, but its checksum leaves out %lld",
                    list->files_n, (long long)file->bytes, (long long)file->skip);
    if (file->name[0] != 0)
        TRY(check_name(list, file->name));
    else if (!is_suffix(file->suffix))
        return FAIL(ST_BAD_DATA, "file %d has an invalid suffix", list->files_n);
    if (file->is_pair && (file->item != last || list->files[list->files_n - 1].is_pair ||
                          strcmp(file->suffix, list->files[list->files_n - 1].suffix) == 0))
        return FAIL(ST_BAD_DATA, "file %d shares the name of no file before it", list->files_n);
    if ((list->files_n & (list->files_n - 1)) == 0) /* grows to the next power of two */
        list->files = memory_resize(list->files, list->files_n > 0 ? 2 * (size_t)list->files_n : 1,
                                    sizeof *list->files);
    list->files[list->files_n] = *file;
    list->files[list->files_n++].path = file->path ? memory_text(file->path) : NULL;
    list->items_n = file->item + 1;
    return ST_OK;
}

void file_list_free(struct file_list *list)
{
    for (int i = 0; i < list->files_n; i++)
        free(list->files[i].path);
    free(list->files);
    *list = (struct file_list){0};
}

int64_t file_list_bytes(const struct file_list *list)
{
    int64_t bytes = 0; /* FILE_LIST_FILES_MAX × FILE_LIST_FILE_BYTES_MAX is 2^62 */
    for (int i = 0; i < list->files_n; i++)
        bytes += list->files[i].bytes;
    return bytes;
}

void file_list_name(const struct file_list *list, char out[FILE_LIST_NAME_MAX])
{
    XXH128_hash_t name = XXH3_128bits(list->weights, (size_t)list->items_n * sizeof(double));
    for (int i = 0; i < list->files_n; i++) {
        const struct file_list_entry *file = &list->files[i];
        uint64_t facts[8] = {name.low64,           name.high64,
                             (uint64_t)file->item, (uint64_t)file->bytes,
                             (uint64_t)file->skip, file->sum};
        memcpy(&facts[6], file->suffix, strlen(file->suffix));
        facts[2] |= (uint64_t)file->is_pair << 32 | (uint64_t)file->sums_ends << 33;
        /* A list of numbered files keeps the name that it had before files had names. */
        facts[7] = XXH3_64bits(file->name, strlen(file->name));
        name = XXH3_128bits(facts, file->name[0] != 0 ? sizeof facts : 7 * sizeof *facts);
    }
    text_format(out, FILE_LIST_NAME_MAX, "%016llx%016llx", (unsigned long long)name.high64,
                (unsigned long long)name.low64);
}

/* ---- JSON ---- */

static void add_quoted(struct text *out, const char *key, const char *value)
{
    text_add(out, ",\"%s\":", key);
    json_quote_text(out, value);
}

void file_list_write(struct text *out, const struct file_list *list, bool is_with_paths)
{
    text_add(out, "{\"state\":\"%s\"", states[list->state]);
    add_quoted(out, "why", list->why);
    text_add(out, ",\"weights\":[");
    for (int i = 0; i < list->items_n; i++)
        text_add(out, "%s%s", i == 0 ? "" : ",", text_f64(list->weights[i]).text);
    text_add(out, "],\"files\":[");
    for (int i = 0; i < list->files_n; i++) {
        const struct file_list_entry *file = &list->files[i];
        text_add(
            out,
            "%s{\"part\":%d,\"bytes\":%lld,\"skip\":%lld,\"sum\":\"%016llx\",\"suffix\":\"%s\"",
            i == 0 ? "" : ",", file->item, (long long)file->bytes, (long long)file->skip,
            (unsigned long long)file->sum, file->suffix);
        if (file->name[0] != 0)
            add_quoted(out, "name", file->name);
        if (file->is_pair)
            text_add(out, ",\"is_pair\":true");
        if (file->sums_ends)
            text_add(out, ",\"sums_ends\":true");
        if (is_with_paths && file->path)
            add_quoted(out, "path", file->path);
        text_add(out, "}");
    }
    text_add(out, "]}");
}

static enum status get_int(const cJSON *object, const char *key, int min, int max, int *out)
{
    int64_t value;
    TRY(json_get_i64(object, key, min, max, &value));
    *out = (int)value;
    return ST_OK;
}

static enum status read_state(const cJSON *root, enum file_list_state *out)
{
    const char *name;
    TRY(json_get_string(root, "state", &name));
    for (int state = 0; state < FILE_LIST_STATES_N; state++) {
        if (strcmp(name, states[state]) == 0) {
            *out = (enum file_list_state)state;
            return ST_OK;
        }
    }
    return FAIL(ST_BAD_DATA, "JSON key \"state\" has an unknown value: %.32s", name);
}

static enum status read_file(const cJSON *item, struct file_list *list)
{
    struct file_list_entry file = {0};
    const char *suffix;
    TRY(get_int(item, "part", 0, FILE_LIST_ITEMS_MAX - 1, &file.item));
    TRY(json_get_i64(item, "bytes", 1, FILE_LIST_FILE_BYTES_MAX, &file.bytes));
    TRY(json_get_i64(item, "skip", 0, FILE_LIST_FILE_BYTES_MAX, &file.skip));
    TRY(json_get_hex(item, "sum", &file.sum));
    TRY(json_get_string(item, "suffix", &suffix));
    file.is_pair = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "is_pair"));
    file.sums_ends = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "sums_ends"));
    if (!text_copy(file.suffix, sizeof file.suffix, suffix))
        return FAIL(ST_BAD_DATA, "JSON key \"suffix\" is longer than %d bytes",
                    FILE_LIST_SUFFIX_MAX - 1);
    if (!text_copy(file.name, sizeof file.name, json_text(item, "name")))
        return FAIL(ST_BAD_DATA, "JSON key \"name\" is longer than %d bytes",
                    FILE_LIST_FILE_NAME_MAX - 1);
    if (cJSON_HasObjectItem(item, "path")) {
        const char *path;
        TRY(json_get_string(item, "path", &path));
        file.path = (char *)(uintptr_t)path; /* file_list_add copies it */
    }
    return file_list_add(list, &file);
}

static enum status read_weights(const cJSON *root, struct file_list *list)
{
    const cJSON *array, *item;
    int n = 0;
    TRY(json_get_array(root, "weights", &array));
    cJSON_ArrayForEach(item, array)
    {
        if (n == list->items_n || !cJSON_IsNumber(item) ||
            !(item->valuedouble >= 0 && item->valuedouble <= 1e9))
            return FAIL(ST_BAD_DATA, "weight %d is not a number from 0 to 1e9, or has no part", n);
        list->weights[n++] = item->valuedouble;
    }
    return n == list->items_n ? ST_OK
                              : FAIL(ST_BAD_DATA, "%d weights for %d parts", n, list->items_n);
}

static enum status read_all(const cJSON *root, struct file_list *list)
{
    const cJSON *array, *item;
    const char *why;
    TRY(read_state(root, &list->state));
    TRY(json_get_string(root, "why", &why));
    text_copy(list->why, sizeof list->why, why);
    TRY(json_get_array(root, "files", &array));
    cJSON_ArrayForEach(item, array) TRY(read_file(item, list));
    TRY(read_weights(root, list));
    if ((list->state == FILE_LIST_STATE_READY) != (list->files_n > 0))
        return FAIL(ST_BAD_DATA, "the state \"%s\" does not fit %d files", states[list->state],
                    list->files_n);
    return ST_OK;
}

enum status file_list_read(const char *bytes, size_t n, struct file_list *out)
{
    cJSON *root = NULL;
    struct file_list list = {0};
    *out = list;
    TRY(json_parse(bytes, n, "node 0's list of files", &root));
    enum status st = read_all(root, &list);
    cJSON_Delete(root);
    if (st != ST_OK)
        file_list_free(&list);
    *out = list;
    return st;
}

void file_list_write_request(struct text *out, const struct file_list_request *request)
{
    text_add(out, "{\"kind\":%d,\"node_id\":%d", (int)request->kind, request->node_id);
    if (!request->is_for_list)
        text_add(out, ",\"name\":\"%s\",\"file\":%d,\"first\":%lld", request->name, request->file_i,
                 (long long)request->first);
    text_add(out, "}");
}

static enum status read_request(const cJSON *root, struct file_list_request *out)
{
    const char *name;
    uint64_t half;
    int kind = 0;
    TRY(get_int(root, "kind", 0, FILE_LIST_KINDS_N - 1, &kind));
    out->kind = (enum file_list_kind)kind;
    TRY(get_int(root, "node_id", 0, FILE_LIST_NODES_MAX - 1, &out->node_id));
    out->is_for_list = !cJSON_HasObjectItem(root, "name");
    if (out->is_for_list)
        return ST_OK;
    TRY(json_get_string(root, "name", &name));
    if (strlen(name) != FILE_LIST_NAME_MAX - 1 || !text_parse_hex(name + 16, 16, &half))
        return FAIL(ST_BAD_DATA, "JSON key \"name\" is not 32 hexadecimal digits");
    text_copy(out->name, sizeof out->name, name);
    TRY(get_int(root, "file", 0, FILE_LIST_FILES_MAX - 1, &out->file_i));
    return json_get_i64(root, "first", 0, FILE_LIST_FILE_BYTES_MAX - 1, &out->first);
}

enum status file_list_read_request(const char *bytes, size_t n, struct file_list_request *out)
{
    cJSON *root = NULL;
    *out = (struct file_list_request){0};
    TRY(json_parse(bytes, n, "a node's request for files", &root));
    enum status st = read_request(root, out);
    cJSON_Delete(root);
    return st;
}

#ifdef FUZZ
#include "base/assert.h"
#include "base/memory.h"

/* Checks that a list that is read, written and read again stays the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct file_list list, again;
    struct file_list_request request;
    struct text out = {.limit = (size_t)64 << 20};
    char name[FILE_LIST_NAME_MAX], name_again[FILE_LIST_NAME_MAX];
    file_list_read_request((const char *)bytes, n, &request);
    if (file_list_read((const char *)bytes, n, &list) != ST_OK)
        return 0;
    file_list_write(&out, &list, true);
    ASSERT(!out.overflow && file_list_read(out.data, out.len, &again) == ST_OK);
    file_list_name(&list, name);
    file_list_name(&again, name_again);
    ASSERT(strcmp(name, name_again) == 0 && file_list_bytes(&list) == file_list_bytes(&again));
    file_list_free(&list);
    file_list_free(&again);
    text_free(&out);
    return 0;
}
#endif
