/* hf_save — a new Hugging Face folder: weights and small files, whole or not at all.
 *
 * Written beside as TO.tmp-<pid>, every file and the folder synced, then renamed. Must not know
 * what the files say. */
#ifndef CONVOY_FORMAT_HF_SAVE_H
#define CONVOY_FORMAT_HF_SAVE_H

#include <stddef.h>

#include "base/status.h"
#include "format/safetensors.h"

/* A file besides the weights. */
struct hf_save_file {
    const char *name;
    const char *data;
    size_t bytes;
};

/* hf_save_check — may TO be written? ST_BAD_SETTING when it is there and no empty folder. */
enum status hf_save_check(const char *to);
/* hf_save — the folder, with model.safetensors of the tensors given (names as they shall be in the
 * file). Space is checked before. ST_STORE: nothing is left behind. Folders above TO are made. */
enum status hf_save(const char *to, const struct safetensors_source *source, int sources_n,
                    const struct hf_save_file *file, int files_n);

#endif
