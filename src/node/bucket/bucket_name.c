/* bucket_name — names and listings of bucket.h as pure functions: the local folder of a prefix, the
 * checkpoints in a list of keys, and which of them may be removed. */
#include "node/bucket/bucket_inside.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "format/ckpt_dir.h"
#include "format/ledger.h"

#define TOKENIZER_DIR "tokenizer/"

/* is_plain — returns true for a name that is one part of a path and no hidden file. */
static bool is_plain(const char *name)
{
    return name[0] != 0 && name[0] != '.' && strchr(name, '/') == NULL && text_is_printable(name);
}

/* check_prefix — checks the parts of the prefix, which also name local folders. */
static enum status check_prefix(const char *name, const char *prefix)
{
    for (const char *part = prefix; *prefix != 0;) {
        const size_t n = strcspn(part, "/");
        const bool is_dots = (n == 1 && part[0] == '.') || (n == 2 && !strncmp(part, "..", 2));
        if (n == 0 || is_dots)
            return FAIL(ST_BAD_SETTING,
                        "%.256s is no place for checkpoints: a part of its prefix is %s; use a "
                        "prefix such as s3://bucket/run1",
                        name, n == 0 ? "empty" : "\".\" or \"..\"");
        if (part[n] == 0)
            break;
        part += n + 1;
    }
    return ST_OK;
}

enum status bucket_address_parse(const char *name, struct bucket_address *out)
{
    TRY(s3_address_parse(name, &out->s3));
    char *key = out->s3.key;
    const size_t n = strlen(key);
    if (n > 0 && key[n - 1] == '/')
        key[n - 1] = 0;
    TRY(check_prefix(name, key));
    char *last = strrchr(key, '/');
    last = last ? last + 1 : key;
    if (ckpt_dir_step_of(last, &out->step))
        last[last > key ? -1 : 0] = 0;
    else
        out->step = -1;
    return ST_OK;
}

enum status bucket_local(const char *root, const struct bucket_address *address,
                         char out[FILE_PATH_MAX])
{
    char name[S3_NAME_MAX];
    text_format(name, sizeof name, "%s%s%s", address->s3.bucket, address->s3.key[0] ? "/" : "",
                address->s3.key);
    return file_join(out, FILE_PATH_MAX, root, name);
}

bool bucket_is_record(const char *name)
{
    return strcmp(name, LEDGER_NAME) == 0 || strcmp(name, "history.json") == 0 ||
           (text_starts(name, TOKENIZER_DIR) && is_plain(name + strlen(TOKENIZER_DIR)) &&
            strlen(name) < 96);
}

void bucket_step_name(char *out, size_t cap, int64_t step, const char *name)
{
    text_format(out, cap, "step-%08lld/%s", (long long)step, name);
}

/* step_of_key — reads the step of a key "step-00000100/FILE" below the prefix. */
static bool step_of_key(const char *key, size_t prefix_n, int64_t *step_out, const char **file_out)
{
    char folder[64];
    const char *name = key + prefix_n, *slash = strchr(name, '/');
    if (slash == NULL || (size_t)(slash - name) >= sizeof folder || !is_plain(slash + 1))
        return false;
    text_format(folder, sizeof folder, "%.*s", (int)(slash - name), name);
    *file_out = slash + 1;
    return ckpt_dir_step_of(folder, step_out);
}

static int compare_steps(const void *a, const void *b)
{
    const struct bucket_step *x = a, *y = b;
    return x->step > y->step ? -1 : x->step < y->step;
}

/* The objects are sorted by key, so the objects of a step are neighbours. */
void bucket_group(struct s3_list *objects, const char *prefix, struct bucket_listing *out)
{
    const size_t prefix_n = strlen(prefix);
    struct bucket_listing found = {.objects = *objects};
    int cap = 0;
    *objects = (struct s3_list){.n = 0};
    for (int64_t i = 0; i < found.objects.n; i++) {
        const struct s3_object *object = &found.objects.item[i];
        const char *file;
        int64_t step;
        if (!text_starts(object->key, prefix) || !step_of_key(object->key, prefix_n, &step, &file))
            continue;
        struct bucket_step *last = found.steps_n > 0 ? &found.step[found.steps_n - 1] : NULL;
        if (last == NULL || last->step != step || last->first + last->n != i) {
            if (found.steps_n == cap) {
                cap = cap > 0 ? 2 * cap : 16;
                found.step = memory_resize(found.step, (size_t)cap, sizeof *found.step);
            }
            last = &found.step[found.steps_n++];
            *last = (struct bucket_step){.step = step, .first = i};
        }
        last->n++;
        last->bytes += object->bytes;
        last->is_complete = last->is_complete || strcmp(file, CKPT_DIR_MANIFEST) == 0;
    }
    if (found.steps_n > 0)
        qsort(found.step, (size_t)found.steps_n, sizeof *found.step, compare_steps);
    *out = found;
}

const struct bucket_step *bucket_newest(const struct bucket_listing *listing, int64_t below)
{
    for (int i = 0; i < listing->steps_n; i++)
        if (listing->step[i].is_complete && listing->step[i].step < below)
            return &listing->step[i];
    return NULL;
}

bool bucket_excess(const struct bucket_listing *listing, int i, int keep, int64_t saved)
{
    const struct bucket_step *step = &listing->step[i];
    int newer_n = 0; /* complete checkpoints that are newer */
    for (int j = 0; j < i; j++)
        newer_n += listing->step[j].is_complete;
    if (step->step == saved || keep < 1)
        return false;
    return step->is_complete ? newer_n >= keep : newer_n > 0;
}

void bucket_listing_free(struct bucket_listing *listing)
{
    s3_list_free(&listing->objects);
    free(listing->step);
    *listing = (struct bucket_listing){.steps_n = 0};
}
