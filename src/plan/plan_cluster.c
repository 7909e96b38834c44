/* plan_cluster — see plan_cluster.h. */
#include "plan/plan_cluster.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/json_walk.h"

#define FILE_BYTES_MAX ((size_t)1 << 20)
#define PEAK_MIN 1e6 /* FLOP/s; a smaller number in a file has another unit */
/* edits: an unknown key or name with fewer edits from a valid one gets "did you mean" */
#define NEAR 3

/* clusters.S: the built-in files, as a JSON array. */
extern const char clusters_begin[], clusters_end[];

static const char *const precisions[PLAN_PRECISION_N] = {
#define PLAN_PRECISION_TEXT(name, text) [PLAN_PRECISION_##name] = text,
    PLAN_PRECISION_LIST(PLAN_PRECISION_TEXT)
#undef PLAN_PRECISION_TEXT
};

const char *plan_cluster_precision(enum plan_precision precision) { return precisions[precision]; }

double plan_cluster_share(const struct plan_share *share, double size)
{
    int i = 0;
    if (share->n == 0)
        return 1;
    while (i < share->n && share->point[i].size < size)
        i++;
    if (i == 0 || i == share->n)
        return share->point[i == 0 ? 0 : share->n - 1].share;
    double from = share->point[i - 1].size, to = share->point[i].size,
           fraction = log(size / from) / log(to / from);
    return share->point[i - 1].share +
           fraction * (share->point[i].share - share->point[i - 1].share);
}

double plan_cluster_rows_share(const struct plan_rows *of, double rows, double width)
{
    int i = 0, last = of->n - 1;
    while (i < last && of->width[i].width < width)
        i++;
    double to = plan_cluster_share(&of->width[i].share, rows);
    if (i == 0 || width >= of->width[i].width)
        return to;
    double from = plan_cluster_share(&of->width[i - 1].share, rows), least = of->width[i - 1].width;
    return from + (to - from) * log(width / least) / log(of->width[i].width / least);
}

/* ---- keys ---- */

/* A number of the file: its key, its offset in the struct, and its range. */
struct number {
    const char *key;
    size_t offset;
    double min, max;
    bool is_required;
};
#define AT(field) offsetof(struct plan_cluster, field)
static const struct number numbers[] = {
    {"memory_bytes", AT(memory_bytes), 1e6, 1e16, true},
    {"host_memory_bytes", AT(host_memory_bytes), 0, 1e16, false},
    {"memory_bytes_per_second", AT(memory_bytes_per_second), 1e6, 1e16, true},
    {"memory_share", AT(memory_share), 1e-3, 1, true},
    {"optimizer_share", AT(optimizer_share), 1e-3, 1, true},
    {"operation_us", AT(operation_us), 0, 1e6, true},
    {"step_us", AT(step_us), 0, 1e9, true},
    {"overlap_cost", AT(overlap_cost), 0, 10, true},
    {"disk_bytes_per_second", AT(disk_bytes_per_second), 0, 1e16, false},
    {"price_per_hour", AT(price_per_hour), 0, 1e6, false},
    {"watts", AT(watts), 0, 1e6, false},
};
#define NUMBERS_N (sizeof numbers / sizeof *numbers)

/* Whole numbers of the file. */
static const struct whole {
    const char *key;
    size_t offset;
    int min, max;
    bool is_required;
} wholes[] = {
    {"nodes", AT(nodes), 0, PLAN_CLUSTER_NODES_MAX, false},
    {"locals", AT(locals), 1, PLAN_CLUSTER_LOCALS_MAX, true},
    {"threads", AT(threads_n), 0, 4096, false},
    {"cores", AT(cores), 0, 4096, false},
};
#define WHOLES_N (sizeof wholes / sizeof *wholes)

/* Keys of the file that are no numbers, keys of a link, and keys of peak and product. */
static const char *const others[] = {"name",
                                     "source",
                                     "device",
                                     "peak",
                                     "product",
                                     "product_rows",
                                     "product_wide",
                                     "attention",
                                     "attention_width",
                                     "attention_own_forward",
                                     "attention_own_backward",
                                     "inside",
                                     "across",
                                     NULL};
static const char *const width_keys[] = {"width", "share", NULL};
static const char *const link_keys[] = {"latency_us",          "bytes_per_second", "share",
                                        "reduce_scatter_part", "all_gather_part",  NULL};

static const struct number link_numbers[] = {
    {"latency_us", offsetof(struct plan_link, latency_us), 0, 1e9, true},
    {"bytes_per_second", offsetof(struct plan_link, bytes_per_second), 1, 1e16, true},
    {"reduce_scatter_part", offsetof(struct plan_link, scatter_ratio), 0, 2, false},
    {"all_gather_part", offsetof(struct plan_link, gather_ratio), 0, 2, false},
};
#define LINK_NUMBERS_N (sizeof link_numbers / sizeof *link_numbers)

/* Returns key i of the file; NULL: there are no more. */
static const char *key_nth(size_t i)
{
    if (i < NUMBERS_N)
        return numbers[i].key;
    if (i < NUMBERS_N + WHOLES_N)
        return wholes[i - NUMBERS_N].key;
    return others[i - NUMBERS_N - WHOLES_N];
}

static const char *link_key_nth(size_t i) { return link_keys[i]; }

static const char *width_key_nth(size_t i) { return width_keys[i]; }

static const char *precision_nth(size_t i) { return i < PLAN_PRECISION_N ? precisions[i] : NULL; }

typedef const char *key_nth_fn(size_t i);

static enum status check_keys(const cJSON *object, const char *where, key_nth_fn *nth)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, object)
    {
        size_t i = 0;
        while (nth(i) && strcmp(nth(i), item->string) != 0)
            i++;
        if (!nth(i)) {
            const char *near = NULL;
            int least = NEAR;
            for (size_t k = 0; nth(k); k++) {
                int distance = text_distance(item->string, nth(k));
                if (distance < least) {
                    least = distance;
                    near = nth(k);
                }
            }
            return FAIL(ST_BAD_DATA, "%s has the unknown key \"%.64s\"%s%s%s", where, item->string,
                        near ? "; did you mean \"" : "; docs/cluster-files.md lists the keys",
                        near ? near : "", near ? "\"?" : "");
        }
    }
    return ST_OK;
}

/* ---- reading ---- */

static bool has_key(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key) != NULL;
}

/* Reads a number into the struct at base. */
static enum status read_number(const cJSON *object, const struct number *row, void *base)
{
    double value;
    if (!row->is_required && !has_key(object, row->key))
        return ST_OK;
    TRY(json_get_f64(object, row->key, &value));
    if (value < row->min || value > row->max)
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" is %g, expected %g to %g", row->key, value,
                    row->min, row->max);
    memcpy((char *)base + row->offset, &value, sizeof value);
    return ST_OK;
}

static enum status read_text(const cJSON *root, const char *key, char *out, size_t cap)
{
    const char *text;
    TRY(json_get_string(root, key, &text));
    if (strpbrk(text, "\r\n\t") || !text_copy(out, cap, text) || text[0] == 0)
        return FAIL(ST_BAD_DATA,
                    "JSON key \"%s\" is empty, longer than %zu bytes, or several lines", key,
                    cap - 1);
    return ST_OK;
}

/* Reads [size, share]. */
static enum status read_point(const cJSON *item, const char *key, struct plan_share *out)
{
    const cJSON *size = cJSON_GetArrayItem(item, 0), *share = cJSON_GetArrayItem(item, 1);
    if (!cJSON_IsArray(item) || cJSON_GetArraySize(item) != 2 || !cJSON_IsNumber(size) ||
        !cJSON_IsNumber(share))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\": point %d is not [size, share]", key, out->n + 1);
    double last = out->n > 0 ? out->point[out->n - 1].size : 0;
    if (!(size->valuedouble > last) || !(size->valuedouble >= 1 && size->valuedouble <= 1e30) ||
        !(share->valuedouble >= 1e-6 && share->valuedouble <= 1))
        return FAIL(ST_BAD_DATA,
                    "JSON key \"%s\": point %d is [%g, %g], expected sizes that grow, and shares "
                    "from 1e-06 to 1",
                    key, out->n + 1, size->valuedouble, share->valuedouble);
    out->point[out->n].size = size->valuedouble;
    out->point[out->n++].share = share->valuedouble;
    return ST_OK;
}

/* Reads [[size, share], …]; the key may be missing. */
static enum status read_share(const cJSON *object, const char *key, struct plan_share *out)
{
    const cJSON *list, *item;
    out->n = 0;
    if (!has_key(object, key))
        return ST_OK;
    TRY(json_get_array(object, key, &list));
    if (cJSON_GetArraySize(list) > PLAN_CLUSTER_POINTS_MAX)
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" has %d points, at most %d are read", key,
                    cJSON_GetArraySize(list), PLAN_CLUSTER_POINTS_MAX);
    cJSON_ArrayForEach(item, list) TRY(read_point(item, key, out));
    return ST_OK;
}

/* Reads {"width": 128, "share": [[rows, share], …]}; the width must be larger than the one
 * before. */
static enum status read_width(const cJSON *item, const char *key, struct plan_rows *out)
{
    struct plan_rows_width *to = &out->width[out->n];
    double last = out->n > 0 ? out->width[out->n - 1].width : 0;
    if (!cJSON_IsObject(item))
        return FAIL(ST_BAD_DATA, "JSON key \"%s\": entry %d is no object", key, out->n + 1);
    TRY(check_keys(item, key, width_key_nth));
    TRY(json_get_f64(item, "width", &to->width));
    TRY(read_share(item, "share", &to->share));
    if (!(to->width > last) || !(to->width >= 1 && to->width <= 1e9) || to->share.n == 0)
        return FAIL(ST_BAD_DATA,
                    "JSON key \"%s\": entry %d has the width %g and %d points, expected widths "
                    "that grow, from 1 to 1e+09, and a point",
                    key, out->n + 1, to->width, to->share.n);
    out->n++;
    return ST_OK;
}

/* Reads an array of widths; the key may be missing. */
static enum status read_rows(const cJSON *root, const char *key, struct plan_rows *out)
{
    const cJSON *list, *item;
    if (!has_key(root, key))
        return ST_OK;
    TRY(json_get_array(root, key, &list));
    if (cJSON_GetArraySize(list) > PLAN_CLUSTER_WIDTHS_MAX)
        return FAIL(ST_BAD_DATA, "JSON key \"%s\" has %d widths, at most %d are read", key,
                    cJSON_GetArraySize(list), PLAN_CLUSTER_WIDTHS_MAX);
    cJSON_ArrayForEach(item, list) TRY(read_width(item, key, out));
    return ST_OK;
}

static enum status read_link(const cJSON *root, const char *key, struct plan_link *out)
{
    const cJSON *object;
    if (!has_key(root, key))
        return ST_OK;
    TRY(json_get_object(root, key, &object));
    TRY(check_keys(object, key, link_key_nth));
    for (size_t i = 0; i < LINK_NUMBERS_N; i++)
        TRY(read_number(object, &link_numbers[i], out));
    return read_share(object, "share", &out->share);
}

static enum status read_products(const cJSON *root, struct plan_cluster *out)
{
    const cJSON *object;
    struct plan_share *share = out->product;
    if (!has_key(root, "product"))
        return ST_OK;
    TRY(json_get_object(root, "product", &object));
    TRY(check_keys(object, "product", precision_nth));
    for (int i = 0; i < PLAN_PRECISION_N; i++)
        TRY(read_share(object, precisions[i], &share[i]));
    const struct plan_share other =
        share[PLAN_PRECISION_BF16].n > 0 ? share[PLAN_PRECISION_BF16] : share[PLAN_PRECISION_F32];
    for (int i = 0; i < PLAN_PRECISION_N; i++)
        share[i] = share[i].n > 0 ? share[i] : other;
    return ST_OK;
}

static enum status read_root(const cJSON *root, struct plan_cluster *out)
{
    if (!cJSON_IsObject(root))
        return FAIL(ST_BAD_DATA, "it is no JSON object");
    TRY(check_keys(root, "it", key_nth));
    TRY(read_text(root, "name", out->name, sizeof out->name));
    TRY(read_text(root, "source", out->source, sizeof out->source));
    const char *device;
    TRY(json_get_string(root, "device", &device));
    out->is_gpu = strcmp(device, "gpu") == 0;
    if (!out->is_gpu && strcmp(device, "cpu") != 0) {
        return FAIL(ST_BAD_DATA, "JSON key \"device\" is \"%.32s\", expected \"gpu\" or \"cpu\"",
                    device);
    }
    for (size_t i = 0; i < WHOLES_N; i++) {
        int64_t value;
        if (wholes[i].is_required || has_key(root, wholes[i].key)) {
            TRY(json_get_i64(root, wholes[i].key, wholes[i].min, wholes[i].max, &value));
            int whole = (int)value;
            memcpy((char *)out + wholes[i].offset, &whole, sizeof whole);
        }
    }
    for (size_t i = 0; i < NUMBERS_N; i++)
        TRY(read_number(root, &numbers[i], out));
    const cJSON *object;
    double most = 0;
    TRY(json_get_object(root, "peak", &object));
    TRY(check_keys(object, "peak", precision_nth));
    for (int i = 0; i < PLAN_PRECISION_N; i++) {
        const struct number row = {precisions[i], i * sizeof(double), 0, 1e19, false};
        TRY(read_number(object, &row, out->peak));
        if (out->peak[i] > 0 && out->peak[i] < PEAK_MIN)
            return FAIL(ST_BAD_DATA, "JSON key \"%s\" is %g, expected 0, or %g to 1e+19 FLOP/s",
                        precisions[i], out->peak[i], PEAK_MIN);
        most = fmax(most, out->peak[i]);
    }
    TRY(most > 0 ? ST_OK : FAIL(ST_BAD_DATA, "JSON key \"peak\" has no number above 0"));
    TRY(read_products(root, out));
    TRY(read_rows(root, "product_rows", &out->product_rows));
    TRY(read_rows(root, "product_wide", &out->product_wide));
    TRY(read_share(root, "attention", &out->attention));
    TRY(read_share(root, "attention_own_forward", &out->attention_own_forward));
    TRY(read_share(root, "attention_own_backward", &out->attention_own_backward));
    TRY(read_share(root, "attention_width", &out->attention_width));
    TRY(read_link(root, "inside", &out->inside));
    return read_link(root, "across", &out->across);
}

enum status plan_cluster_parse(const char *bytes, size_t n, const char *what,
                               struct plan_cluster *out)
{
    cJSON *root = NULL;
    struct plan_cluster found = {.is_gpu = false};
    TRY(json_parse(bytes, n, what, &root));
    enum status st = read_root(root, &found);
    cJSON_Delete(root);
    if (st != ST_OK)
        return FAIL(st, "%s: %s", what, status_message());
    *out = found;
    return ST_OK;
}

/* ---- writing ---- */

/* Writes the shortest text that reads back as the same number. */
static void write_number(double value, struct text *out)
{
    text_add(out, "%s", text_f64(value).text);
}

static void write_member(const char *before, const char *key, double value, struct text *out)
{
    text_add(out, "%s\"%s\": ", before, key);
    write_number(value, out);
}

static void write_share(const struct plan_share *share, struct text *out)
{
    text_add(out, "[");
    for (int i = 0; i < share->n; i++) {
        text_add(out, "%s[", i > 0 ? ", " : "");
        write_number(share->point[i].size, out);
        text_add(out, ", ");
        write_number(share->point[i].share, out);
        text_add(out, "]");
    }
    text_add(out, "]");
}

static void write_link(const char *key, const struct plan_link *link, struct text *out)
{
    if (link->bytes_per_second <= 0)
        return;
    text_add(out, "  \"%s\": {", key);
    write_member("", "latency_us", link->latency_us, out);
    write_member(", ", "bytes_per_second", link->bytes_per_second, out);
    write_member(", ", "reduce_scatter_part", link->scatter_ratio, out);
    write_member(", ", "all_gather_part", link->gather_ratio, out);
    text_add(out, ", \"share\": ");
    write_share(&link->share, out);
    text_add(out, "},\n");
}

static void write_rows(const char *key, const struct plan_rows *rows, struct text *out)
{
    if (rows->n == 0)
        return;
    text_add(out, "  \"%s\": [", key);
    for (int i = 0; i < rows->n; i++) {
        write_member(i > 0 ? ",\n    {" : "\n    {", "width", rows->width[i].width, out);
        text_add(out, ", \"share\": ");
        write_share(&rows->width[i].share, out);
        text_add(out, "}");
    }
    text_add(out, "],\n");
}

void plan_cluster_write(const struct plan_cluster *c, struct text *out)
{
    char name[sizeof c->name * 6 + 3], source[sizeof c->source * 6 + 3];
    json_quote(name, sizeof name, c->name);
    json_quote(source, sizeof source, c->source);
    text_add(out, "{\n  \"name\": %s,\n  \"source\": %s,\n  \"device\": \"%s\",\n", name, source,
             c->is_gpu ? "gpu" : "cpu");
    text_add(out, "  \"nodes\": %d,\n  \"locals\": %d,\n  \"threads\": %d,\n  \"cores\": %d,\n",
             c->nodes, c->locals, c->threads_n, c->cores);
    /* The rates of each precision. */
    const char *between = "";
    text_add(out, "  \"peak\": {");
    for (int i = 0; i < PLAN_PRECISION_N; i++) {
        if (c->peak[i] > 0)
            write_member(between, precisions[i], c->peak[i], out);
        between = c->peak[i] > 0 ? ", " : between;
    }
    text_add(out, "},\n  \"product\": {");
    between = "";
    for (int i = 0; i < PLAN_PRECISION_N; i++) {
        if (c->peak[i] <= 0 || c->product[i].n == 0)
            continue;
        text_add(out, "%s\"%s\": ", between, precisions[i]);
        write_share(&c->product[i], out);
        between = ",\n              ";
    }
    text_add(out, "},\n");
    write_rows("product_rows", &c->product_rows, out);
    write_rows("product_wide", &c->product_wide, out);
    text_add(out, "  \"attention\": ");
    write_share(&c->attention, out);
    if (c->is_gpu) {
        text_add(out, ",\n  \"attention_own_forward\": ");
        write_share(&c->attention_own_forward, out);
        text_add(out, ",\n  \"attention_own_backward\": ");
        write_share(&c->attention_own_backward, out);
    }
    text_add(out, ",\n  \"attention_width\": ");
    write_share(&c->attention_width, out);
    text_add(out, ",\n");
    write_link("inside", &c->inside, out);
    write_link("across", &c->across, out);
    for (size_t i = 0; i < NUMBERS_N; i++) {
        double value;
        memcpy(&value, (const char *)c + numbers[i].offset, sizeof value);
        write_member(i > 0 ? ",\n  " : "  ", numbers[i].key, value, out);
    }
    text_add(out, "\n}\n");
}

/* ---- finding ---- */

/* Finds the built-in cluster with this name, or cluster number `left` if name is NULL. */
static bool find_cluster(const char *name, int left, struct plan_cluster *out)
{
    struct json_walk walk;
    struct json_item item;
    bool is_end = false;
    size_t n = (size_t)(clusters_end - clusters_begin);
    if (json_walk_begin(&walk, clusters_begin, n, '[', "clusters") != ST_OK)
        return false;
    while (json_walk_next(&walk, &item, &is_end) == ST_OK && !is_end) {
        if (plan_cluster_parse(item.value, item.value_n, "a built-in cluster", out) != ST_OK)
            return false;
        if (name ? strcmp(out->name, name) == 0 : left-- == 0)
            return true;
    }
    return false;
}

bool plan_cluster_nth(int i, struct plan_cluster *out) { return find_cluster(NULL, i, out); }

/* Fails with the nearest name: a name that begins with this one, else a name with fewer than NEAR
 * edits. */
static enum status fail_name(const char *name)
{
    struct text names = {.limit = 1024};
    struct plan_cluster cluster;
    char nearest[sizeof cluster.name] = "";
    int best = NEAR;
    for (int i = 0; plan_cluster_nth(i, &cluster); i++) {
        const int distance =
            name[0] != 0 && text_starts(cluster.name, name) ? 0 : text_distance(name, cluster.name);
        text_add(&names, "%s%s", i > 0 ? ", " : "", cluster.name);
        if (distance < best) {
            best = distance;
            text_copy(nearest, sizeof nearest, cluster.name);
        }
    }
    enum status st =
        FAIL(ST_BAD_SETTING,
             "CLUSTER=%.64s is no built-in cluster%s%s%s (%s); the path of a file has a "
             "slash or a dot in it",
             name, nearest[0] ? "; did you mean " : "", nearest, nearest[0] ? "?" : "",
             names.data ? names.data : "");
    text_free(&names);
    return st;
}

enum status plan_cluster_open(const char *name, struct plan_cluster *out)
{
    char *bytes;
    size_t n;
    if (find_cluster(name, 0, out))
        return ST_OK;
    if (!strpbrk(name, "/."))
        return fail_name(name);
    TRY(file_read(name, FILE_BYTES_MAX, &bytes, &n));
    enum status st = plan_cluster_parse(bytes, n, name, out);
    free(bytes);
    return st;
}

#ifdef FUZZ
#include "base/assert.h"

/* A cluster that can be read can be written, and reads back the same. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    struct plan_cluster first, again;
    struct text text = {.data = NULL}, twice = {.data = NULL};
    if (plan_cluster_parse((const char *)bytes, n, "fuzz", &first) != ST_OK)
        return 0;
    plan_cluster_write(&first, &text);
    ASSERT(plan_cluster_parse(text.data, text.len, "fuzz again", &again) == ST_OK);
    plan_cluster_write(&again, &twice);
    ASSERT(strcmp(text.data, twice.data) == 0 && again.attention.n == first.attention.n);
    text_free(&text);
    text_free(&twice);
    return 0;
}
#endif
