/* hub — repositories of the Hugging Face hub, and of its mirrors: finds the commit of a revision
 * and its files, and downloads the files that a setting needs.
 *
 *   - CACHE_DIR/hub/models--ORG--NAME/COMMIT/ has the files by their names in the repository
 *     (datasets--…: data sets). refs/REVISION.json is the hub's last answer for a revision: commit
 *     and list of files. A commit never changes: its answer is requested once.
 *   - Large files are compared with their SHA-256, which the hub sends. Every file is complete, or
 *     not there.
 *   - Variables of the environment: HF_ENDPOINT (a mirror), HF_TOKEN, HF_TOKEN_PATH, HF_HOME (the
 *     folder of the file "token"), HF_HUB_OFFLINE=1 (only the cache).
 *   - If the hub does not answer, the last answer in the cache is used, with a warning.
 *
 * No message has the token. It must not know the contents of the files, but for the index of a
 * model's weights. */
#ifndef CONVOY_REMOTE_HUB_H
#define CONVOY_REMOTE_HUB_H

#include "remote/remote.h"

/* hub_fetch — does remote_fetch for a name of the hub. */
enum status hub_fetch(const struct remote_config *config, enum remote_kind kind, const char *name,
                      char path_out[FILE_PATH_MAX], char revision_out[REMOTE_REVISION_MAX]);
/* hub_pin — does remote_pin for one name of the hub, which it appends to out. */
enum status hub_pin(const struct remote_config *config, const char *name, const cJSON *recorded,
                    cJSON *used, struct text *out);

/* Names of the files of a tokenizer and its chat template, as transformers writes them. */
#define HUB_TOKENIZER_FILES 9
extern const char *const hub_tokenizer_files[HUB_TOKENIZER_FILES];

#endif
