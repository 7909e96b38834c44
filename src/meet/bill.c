/* bill — see bill.h. Must not know what is in the files. */
#include "meet/bill.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/file.h"
#include "base/json.h"
#include "meet/meet.h"

static const char *const states[BILL_STATES_N] = {"wait", "none", "unfit", "ready"};

/* Names of files are made from it: nothing else may come through. */
static bool is_suffix(const char *s)
{
    size_t n = strlen(s);
    if (n < 2 || n >= BILL_SUFFIX_MAX || s[0] != '.')
        return false;
    for (size_t i = 1; i < n; i++)
        if (s[i] < 'a' || s[i] > 'z')
            return false;
    return true;
}

static enum status check_file(const struct bill *bill, const struct bill_file *file)
{
    int last = bill->files_n > 0 ? bill->files[bill->files_n - 1].part : -1;
    if (bill->files_n == BILL_FILES_MAX)
        return FAIL(ST_BAD_DATA, "more than %d files", BILL_FILES_MAX);
    if ((file->part != last && file->part != last + 1) || file->part >= BILL_PARTS_MAX ||
        file->part < 0)
        return FAIL(ST_BAD_DATA, "file %d is of part %d, after one of part %d", bill->files_n,
                    file->part, last);
    if (file->bytes < 1 || file->bytes > BILL_FILE_BYTES_MAX || file->skip < 0 ||
        file->skip > file->bytes)
        return FAIL(ST_BAD_DATA, "file %d has %lld bytes, of which the checksum leaves out %lld",
                    bill->files_n, (long long)file->bytes, (long long)file->skip);
    if (!is_suffix(file->suffix))
        return FAIL(ST_BAD_DATA, "file %d has a suffix that is none", bill->files_n);
    return ST_OK;
}

enum status bill_add(struct bill *bill, const struct bill_file *file)
{
    TRY(check_file(bill, file));
    if ((bill->files_n & (bill->files_n - 1)) == 0) { /* room for the next power of two */
        size_t cap = bill->files_n > 0 ? 2 * (size_t)bill->files_n : 1;
        struct bill_file *files = realloc(bill->files, cap * sizeof(*files));
        if (files == NULL)
            return FAIL(ST_RETRY, "out of memory: a list of %zu files", cap);
        bill->files = files;
    }
    char *path = file->path != NULL ? strdup(file->path) : NULL;
    if (file->path != NULL && path == NULL)
        return FAIL(ST_RETRY, "out of memory: the name of %s", file->path);
    bill->files[bill->files_n] = *file;
    bill->files[bill->files_n++].path = path;
    bill->parts_n = file->part + 1;
    return ST_OK;
}

void bill_free(struct bill *bill)
{
    for (int i = 0; i < bill->files_n; i++)
        free(bill->files[i].path);
    free(bill->files);
    *bill = (struct bill){0};
}

int64_t bill_bytes(const struct bill *bill)
{
    int64_t bytes = 0; /* BILL_FILES_MAX × BILL_FILE_BYTES_MAX is 2^54 */
    for (int i = 0; i < bill->files_n; i++)
        bytes += bill->files[i].bytes;
    return bytes;
}

void bill_name(const struct bill *bill, char out[BILL_NAME_MAX])
{
    XXH128_hash_t name = XXH3_128bits(bill->weights, (size_t)bill->parts_n * sizeof(double));
    for (int i = 0; i < bill->files_n; i++) {
        const struct bill_file *file = &bill->files[i];
        uint64_t facts[7] = {name.low64,           name.high64,
                             (uint64_t)file->part, (uint64_t)file->bytes,
                             (uint64_t)file->skip, file->sum};
        memcpy(&facts[6], file->suffix, strlen(file->suffix));
        name = XXH3_128bits(facts, sizeof(facts));
    }
    text_format(out, BILL_NAME_MAX, "%016llx%016llx", (unsigned long long)name.high64,
                (unsigned long long)name.low64);
}

const char *bill_weight(double weight, char out[32])
{
    double again = -1;
    for (int digits = 6; digits <= 17; digits++) {
        text_format(out, 32, "%.*g", digits, weight);
        if (text_f64(out, 0, 1e300, &again) == TEXT_OK && again == weight)
            break;
    }
    return out;
}

/* ---- JSON ---- */

static void add_quoted(struct text *out, const char *key, const char *value)
{
    char quoted[FILE_PATH_MAX * 6 + 3];
    json_quote(quoted, sizeof(quoted), value);
    text_add(out, ",\"%s\":%s", key, quoted);
}

void bill_write(struct text *out, const struct bill *bill, bool is_with_paths)
{
    text_add(out, "{\"state\":\"%s\"", states[bill->state]);
    add_quoted(out, "why", bill->why);
    text_add(out, ",\"weights\":[");
    char weight[32];
    for (int i = 0; i < bill->parts_n; i++)
        text_add(out, "%s%s", i == 0 ? "" : ",", bill_weight(bill->weights[i], weight));
    text_add(out, "],\"files\":[");
    for (int i = 0; i < bill->files_n; i++) {
        const struct bill_file *file = &bill->files[i];
        text_add(
            out,
            "%s{\"part\":%d,\"bytes\":%lld,\"skip\":%lld,\"sum\":\"%016llx\",\"suffix\":\"%s\"",
            i == 0 ? "" : ",", file->part, (long long)file->bytes, (long long)file->skip,
            (unsigned long long)file->sum, file->suffix);
        if (is_with_paths && file->path != NULL)
            add_quoted(out, "path", file->path);
        text_add(out, "}");
    }
    text_add(out, "]}");
}

static bool read_hex(const char *digits, int n, uint64_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        char c = digits[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0)
            return false;
        *out = *out << 4 | (uint64_t)value;
    }
    return digits[n] == 0;
}

static enum status get_int(const cJSON *object, const char *key, int min, int max, int *out)
{
    int64_t value;
    TRY(json_get_i64(object, key, min, max, &value));
    *out = (int)value;
    return ST_OK;
}

static enum status read_state(const cJSON *root, enum bill_state *out)
{
    const char *name;
    TRY(json_get_string(root, "state", &name));
    for (int state = 0; state < BILL_STATES_N; state++) {
        if (strcmp(name, states[state]) == 0) {
            *out = (enum bill_state)state;
            return ST_OK;
        }
    }
    return FAIL(ST_BAD_DATA, "JSON key \"state\" is none of data: %.32s", name);
}

static enum status read_file(const cJSON *item, struct bill *bill)
{
    struct bill_file file = {0};
    const char *sum, *suffix;
    TRY(get_int(item, "part", 0, BILL_PARTS_MAX - 1, &file.part));
    TRY(json_get_i64(item, "bytes", 1, BILL_FILE_BYTES_MAX, &file.bytes));
    TRY(json_get_i64(item, "skip", 0, BILL_FILE_BYTES_MAX, &file.skip));
    TRY(json_get_string(item, "sum", &sum));
    TRY(json_get_string(item, "suffix", &suffix));
    if (!read_hex(sum, 16, &file.sum))
        return FAIL(ST_BAD_DATA, "JSON key \"sum\" is not 16 hexadecimal digits");
    if (!text_copy(file.suffix, sizeof(file.suffix), suffix))
        return FAIL(ST_BAD_DATA, "JSON key \"suffix\" is longer than %d bytes",
                    BILL_SUFFIX_MAX - 1);
    if (cJSON_HasObjectItem(item, "path")) {
        const char *path;
        TRY(json_get_string(item, "path", &path));
        file.path = (char *)(uintptr_t)path; /* bill_add copies it */
    }
    return bill_add(bill, &file);
}

static enum status read_weights(const cJSON *root, struct bill *bill)
{
    const cJSON *list, *item;
    int n = 0;
    TRY(json_get_array(root, "weights", &list));
    cJSON_ArrayForEach(item, list)
    {
        if (n == bill->parts_n || !cJSON_IsNumber(item) ||
            !(item->valuedouble >= 0 && item->valuedouble <= 1e9))
            return FAIL(ST_BAD_DATA, "weight %d is no number from 0 to 1e9, or of no part", n);
        bill->weights[n++] = item->valuedouble;
    }
    return n == bill->parts_n ? ST_OK
                              : FAIL(ST_BAD_DATA, "%d weights of %d parts", n, bill->parts_n);
}

static enum status read_all(const cJSON *root, struct bill *bill)
{
    const cJSON *list, *item;
    const char *why;
    TRY(read_state(root, &bill->state));
    TRY(json_get_string(root, "why", &why));
    text_copy(bill->why, sizeof(bill->why), why);
    TRY(json_get_array(root, "files", &list));
    cJSON_ArrayForEach(item, list) TRY(read_file(item, bill));
    TRY(read_weights(root, bill));
    if ((bill->state == BILL_STATE_READY) != (bill->files_n > 0))
        return FAIL(ST_BAD_DATA, "\"%s\" and %d files do not go together", states[bill->state],
                    bill->files_n);
    return ST_OK;
}

enum status bill_read(const char *bytes, size_t n, struct bill *out)
{
    cJSON *root = NULL;
    struct bill bill = {0};
    *out = bill;
    TRY(json_parse(bytes, n, "node 0's list of files", &root));
    enum status st = read_all(root, &bill);
    cJSON_Delete(root);
    if (st != ST_OK)
        bill_free(&bill);
    *out = bill;
    return st;
}

void bill_write_ask(struct text *out, const struct bill_ask *ask)
{
    text_add(out, "{\"kind\":%d,\"node_id\":%d", (int)ask->kind, ask->node_id);
    if (!ask->is_for_bill)
        text_add(out, ",\"name\":\"%s\",\"file\":%d,\"first\":%lld", ask->name, ask->file_i,
                 (long long)ask->first);
    text_add(out, "}");
}

static enum status read_ask(const cJSON *root, struct bill_ask *out)
{
    const char *name;
    uint64_t half;
    int kind = 0;
    TRY(get_int(root, "kind", 0, BILL_KINDS_N - 1, &kind));
    out->kind = (enum bill_kind)kind;
    TRY(get_int(root, "node_id", 0, MEET_NODES_MAX - 1, &out->node_id));
    out->is_for_bill = !cJSON_HasObjectItem(root, "name");
    if (out->is_for_bill)
        return ST_OK;
    TRY(json_get_string(root, "name", &name));
    if (strlen(name) != BILL_NAME_MAX - 1 || !read_hex(name + 16, 16, &half))
        return FAIL(ST_BAD_DATA, "JSON key \"name\" is not 32 hexadecimal digits");
    text_copy(out->name, sizeof(out->name), name);
    TRY(get_int(root, "file", 0, BILL_FILES_MAX - 1, &out->file_i));
    return json_get_i64(root, "first", 0, BILL_FILE_BYTES_MAX - 1, &out->first);
}

enum status bill_read_ask(const char *bytes, size_t n, struct bill_ask *out)
{
    cJSON *root = NULL;
    *out = (struct bill_ask){0};
    TRY(json_parse(bytes, n, "a node's question for data", &root));
    enum status st = read_ask(root, out);
    cJSON_Delete(root);
    return st;
}

#ifdef FUZZ
#include "base/must.h"

/* What is read and written is read the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct bill bill, again;
    struct bill_ask ask;
    struct text out = {.limit = (size_t)64 << 20};
    char name[BILL_NAME_MAX], name_again[BILL_NAME_MAX];
    bill_read_ask((const char *)bytes, n, &ask);
    if (bill_read((const char *)bytes, n, &bill) != ST_OK)
        return 0;
    bill_write(&out, &bill, true);
    ASSERT(!out.overflow && bill_read(out.data, out.len, &again) == ST_OK);
    bill_name(&bill, name);
    bill_name(&again, name_again);
    ASSERT(strcmp(name, name_again) == 0 && bill_bytes(&bill) == bill_bytes(&again));
    bill_free(&bill);
    bill_free(&again);
    text_free(&out);
    return 0;
}
#endif
