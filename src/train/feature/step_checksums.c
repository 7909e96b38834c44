/* step_checksums — see step_checksums.h. */
#include "train/feature/step_checksums.h"

#include "base/assert.h"
#include "base/text.h"

enum status step_checksums_begin(struct step_core *s, int n)
{
    ASSERTF(s->sums.checksums != NULL && n <= step_checksums_n(s), "%d checksums of %d", n,
            step_checksums_n(s));
    s->sums.checksums_n = n;
    return dev_fill(s->stream, s->sums.checksums, 0, (size_t)n * sizeof(struct step_checksum));
}

enum status step_checksums_add(struct step_core *s, int i, struct tensor run, int64_t n,
                               int64_t first)
{
    const struct checksum a = {s->sums.checksums + CHECKSUM_N * i, run, n, first};
    return n > 0 ? dev_op(s->config.dev)->checksum(s->stream, &a) : ST_OK;
}

enum status step_checksums_end(struct step_core *s, const struct step_checksum **out)
{
    *out = s->sums.host;
    TRY(dev_copy(s->stream, s->sums.host, s->sums.checksums,
                 (size_t)s->sums.checksums_n * sizeof **out));
    return dev_sync(s->stream);
}

const char *step_checksums_suspect(const struct step_core *s, char *out, size_t cap)
{
    char place[DEV_PLACE_TEXT];
    if (dev_text_place(s->config.dev, place, sizeof place)[0])
        text_format(out, cap, "%s of node %d", place, comm_place(step_world(s))->node);
    else
        text_copy(out, cap, "this node");
    return out;
}
