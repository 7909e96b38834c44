/* tokenizer_files — the files that say how text becomes ids: import and train keep them beside the
 * checkpoints, export gives those of a Hugging Face folder back. Must not know what they say. */
#ifndef CONVOY_NODE_TOKENIZER_FILES_H
#define CONVOY_NODE_TOKENIZER_FILES_H

#include <stddef.h>

#include "base/status.h"

#define TOKENIZER_FILES_MAX 10
#define TOKENIZER_FILES_GGUF "tokenizer.gguf" /* the keys of a GGUF file, without its tensors */
#define TOKENIZER_FILES_DIR "tokenizer"       /* inside the folder of a run's checkpoints */

/* One file, or NULL data. */
struct tokenizer_file {
    const char *name;
    char *data; /* from malloc */
    size_t bytes;
};

/* tokenizer_files_read — those of the folder that are there; *n_out 0: none is, or the folder is
 * not. ST_BAD_DATA: one has more than 64 MiB. */
enum status tokenizer_files_read(const char *dir, struct tokenizer_file file[TOKENIZER_FILES_MAX],
                                 int *n_out);
void tokenizer_files_free(struct tokenizer_file *file, int n);
/* tokenizer_files_keep — copies what `from` is into TO/tokenizer: those of a folder; a GGUF file's
 * keys; another file, by a name under which it is found again. Files that lie there already are
 * left. */
enum status tokenizer_files_keep(const char *from, const char *to);

#endif
