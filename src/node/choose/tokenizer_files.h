/* tokenizer_files — reads and copies the files that define a tokenizer. import and train keep them
 * with the checkpoints; export writes the files of a Hugging Face folder back. Must not know their
 * contents. */
#ifndef CONVOY_NODE_TOKENIZER_FILES_H
#define CONVOY_NODE_TOKENIZER_FILES_H

#include <stddef.h>

#include "base/status.h"

#define TOKENIZER_FILES_MAX 10
#define TOKENIZER_FILES_GGUF "tokenizer.gguf" /* the keys of a GGUF file, without its tensors */
#define TOKENIZER_FILES_DIR "tokenizer"       /* subfolder of a run's checkpoint folder */

/* One file; data NULL: none. */
struct tokenizer_file {
    const char *name;
    char *data; /* from malloc */
    size_t bytes;
};

/* tokenizer_files_read — reads the files that exist in a folder. *n_out 0: there are none, or there
 * is no such folder. ST_BAD_DATA: a file has more than 64 MiB. */
enum status tokenizer_files_read(const char *dir, struct tokenizer_file file[TOKENIZER_FILES_MAX],
                                 int *n_out);
/* tokenizer_files_open — reads the files of a tokenizer at any path: a folder, a GGUF file, whose
 * keys are the file, or another file, which gets a name under which a folder is read. *n_out 0: it
 * has none. */
enum status tokenizer_files_open(const char *from, struct tokenizer_file file[TOKENIZER_FILES_MAX],
                                 int *n_out);
/* tokenizer_files_free — frees the data of n files. */
void tokenizer_files_free(struct tokenizer_file *file, int n);
/* tokenizer_files_keep — copies a tokenizer into TO/tokenizer. from: a folder, whose tokenizer
 * files are copied; a GGUF file, whose keys are copied; or another file, which gets a name under
 * which it is found again. Files with the same name are replaced; all other files in TO/tokenizer
 * stay. */
enum status tokenizer_files_keep(const char *from, const char *to);

#endif
