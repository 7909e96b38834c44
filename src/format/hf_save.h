/* hf_save — writes a new Hugging Face folder, whole or not at all: as TO.tmp-<pid>, every file and
 * the folder synced, then renamed. It must not know what the files hold. */
#ifndef CONVOY_FORMAT_HF_SAVE_H
#define CONVOY_FORMAT_HF_SAVE_H

#include <stddef.h>

#include "base/status.h"
#include "format/safetensors.h"

/* A file other than the weights. */
struct hf_save_file {
    const char *name;
    const char *data;
    size_t bytes;
};

/* hf_save_check — ST_BAD_SETTING if TO exists and is not an empty folder. */
enum status hf_save_check(const char *to);
#define HF_SAVE_PART_BYTES 5000000000 /* transformers' own limit */
/* hf_save — writes the folder, with model.safetensors of these tensors (named as in the file);
 * above part_bytes, as several files with an index, as transformers does: the tensors in their
 * order, each file at most that large unless one tensor is larger. Checks free space first, and
 * creates the folders above TO. ST_STORE: nothing is left behind. */
enum status hf_save(const char *to, const struct safetensors_source *source, int sources_n,
                    const struct hf_save_file *file, int files_n, int64_t part_bytes);

#endif
