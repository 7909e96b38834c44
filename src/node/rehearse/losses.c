/* rehearse_losses — see rehearse/losses.h. */
#include "node/rehearse/losses.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

/* A file that is read line by line. */
struct reader {
    const char *path;
    struct file_map map;
    size_t at;
    int64_t step; /* step of the last line that was read; INT64_MAX: there are no more */
    double loss;
};

/* read_line — reads the step and the loss of one line; step 0: it has none. */
static enum status read_line(struct reader *r, const char *line, size_t n)
{
    cJSON *root = NULL;
    TRY(json_parse(line, n, r->path, &root));
    const double step = json_number(root, "step");
    r->loss = json_number(root, "loss");
    const bool has_loss = step >= 1 && cJSON_HasObjectItem(root, "loss");
    r->step = has_loss ? (int64_t)step : 0;
    cJSON_Delete(root);
    return ST_OK;
}

/* read_next — reads the next line that has a loss. */
static enum status read_next(struct reader *r)
{
    r->step = 0;
    while (r->step == 0) {
        const char *line = (const char *)r->map.data + r->at;
        const char *end = memchr(line, '\n', r->map.bytes - r->at);
        if (end == NULL) {
            r->step = INT64_MAX;
            return ST_OK;
        }
        r->at += (size_t)(end - line) + 1;
        TRY(read_line(r, line, (size_t)(end - line)));
    }
    return ST_OK;
}

static enum status compare_all(struct reader *a, struct reader *b, struct rehearse_losses *out)
{
    TRY(read_next(a));
    TRY(read_next(b));
    while (a->step != INT64_MAX && b->step != INT64_MAX) {
        const int64_t step = a->step, other = b->step;
        if (step == other) {
            const double apart = fabs(a->loss - b->loss) / fabs(a->loss);
            out->compared_n++;
            if (out->worst_step == 0 || (!isnan(out->worst) && !(apart <= out->worst))) {
                out->worst = apart;
                out->worst_step = step;
            }
        }
        if (step <= other)
            TRY(read_next(a));
        if (other <= step)
            TRY(read_next(b));
    }
    return ST_OK;
}

enum status rehearse_losses_compare(const char *path, const char *other_path,
                                    struct rehearse_losses *out)
{
    struct reader a = {.path = path}, b = {.path = other_path};
    enum status st;
    *out = (struct rehearse_losses){.compared_n = 0};
    TRY_OR(file_map_open(path, &a.map), close);
    TRY_OR(file_map_open(other_path, &b.map), close);
    st = compare_all(&a, &b, out);
close:
    file_map_close(&a.map);
    file_map_close(&b.map);
    return st;
}
