/* hf_index — model.safetensors.index.json: which of several files holds which tensor.
 *
 * A pure function of (bytes, size). File names that pass are plain names, so no index leads out of
 * its folder. Whether the files hold what is listed is checked when they are opened (hf.c). It must
 * not know files. */
#ifndef CONVOY_FORMAT_HF_INDEX_H
#define CONVOY_FORMAT_HF_INDEX_H

#include <stddef.h>

#include "base/json.h"
#include "base/status.h"

struct hf_index_row {
    const char *name; /* as the files spell it */
    int file_i;
};

struct hf_index {
    struct hf_index_row *row; /* by name, ascending */
    int rows_n;
    const char **file; /* ascending, each once */
    int files_n;
    double total_bytes; /* of all tensors, "total_size"; -1: absent */
    cJSON *document;    /* holds the strings */
};

/* hf_index_parse — `what` names the bytes in messages (ST_BAD_DATA). Refuses, by name, a tensor
 * listed twice and a file that is not a plain name ending in ".safetensors"; refuses an empty
 * list. */
enum status hf_index_parse(const char *bytes, size_t n, const char *what, struct hf_index *out);
void hf_index_free(struct hf_index *index); /* accepts a zeroed one, twice */
/* hf_index_find — the row of a tensor; NULL: it is not listed. */
const struct hf_index_row *hf_index_find(const struct hf_index *index, const char *name);

#endif
