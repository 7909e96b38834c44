/* outline — the dimensions of a model or of an adapter, and a checksum of its weights, as a small
 * file.
 *
 * Of several nodes only node 0 reads weights: rank 0 sends the other ranks their values. The other
 * nodes need the dimensions, so node 0 gives them this file in place of gigabytes. A folder that
 * holds it is a model without weights for weights_dims, and an adapter for adapter_dims. It must
 * not know how files travel. */
#ifndef CONVOY_TRAIN_OUTLINE_H
#define CONVOY_TRAIN_OUTLINE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "model/model.h"

#define OUTLINE_FILE "outline.json"

struct outline {
    struct model_dims dims; /* with dims.adapter if it is an adapter's */
    uint64_t sum; /* sum of the files of weights; 0: there are none, as in a resumed run */
};

/* outline_of_model — reads the outline of the model at a user's path, as weights_dims. Of large
 * files only the ends are read. */
enum status outline_of_model(const char *path, struct outline *out);
/* outline_of_adapter — reads the outline of the adapter at a user's path, as adapter_open. */
enum status outline_of_adapter(const char *path, const struct model_dims *base,
                               struct outline *out);
/* outline_write — appends the content of the file. */
enum status outline_write(const struct outline *outline, struct text *out);
/* outline_parse — for tests: accepts bytes of any content. what: their name for messages.
 * ST_BAD_DATA: they are no outline. */
enum status outline_parse(const char *bytes, size_t n, const char *what, struct outline *out);
/* outline_is_at — returns true for a folder with an outline. */
bool outline_is_at(const char *folder);
/* outline_read — reads the outline in a folder. */
enum status outline_read(const char *folder, struct outline *out);
/* outline_is_same — compares dimensions and sums. If they differ, writes how: "dimensions … on node
 * A and … on node B", for a message. The names of the models may differ. */
bool outline_is_same(const struct outline *one, int one_node, const struct outline *other,
                     int other_node, char *out, size_t cap);

#endif
