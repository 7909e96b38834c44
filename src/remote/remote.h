/* remote — brings the files that a name denotes into CACHE_DIR, and returns the local path.
 *
 *   hf://org/name[@revision]                a repository of the Hugging Face hub (hub.h)
 *   hf://org/name[@revision]/file.gguf      one file of it
 *   hf://datasets/org/name[@revision]/path  a file, folder or glob of a data set
 *   s3://bucket/key                         an object, the objects below a prefix, or objects that
 *                                           match a glob (bucket.h)
 *   http://…, https://…                     one file (fetch.h)
 *
 * Readers see only local files. Every file appears complete, by rename; of several processes of a
 * machine that want it, one fetches it, and the next start resumes a download that was cut. It must
 * not know the contents of the files. */
#ifndef CONVOY_REMOTE_REMOTE_H
#define CONVOY_REMOTE_REMOTE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#define REMOTE_REVISION_MAX 72 /* bytes of a commit, with the closing 0 */

/* The use of the files, which decides the files of a repository that are fetched. */
enum remote_kind {
    REMOTE_KIND_MODEL,     /* config, weights, tokenizer, chat template */
    REMOTE_KIND_CONFIG,    /* the same without weights */
    REMOTE_KIND_TOKENIZER, /* tokenizer and chat template */
    REMOTE_KIND_ADAPTER,   /* adapter_config.json and weights */
    REMOTE_KIND_DATA
};

struct remote_config {
    const char *setting; /* "MODEL", "DATA" …, for messages */
    const char *cache_dir;
    bool allows_local; /* ALLOW_LOCAL_URLS: also addresses of this machine and private networks */
    /* NULL allowed; returns false to stop: then ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
    int64_t retry_ms; /* for tests: the first wait before another try; 0: the default */
};

/* remote_is_name — returns true if the value of a setting begins with hf://, s3://, http:// or
 * https://. */
bool remote_is_name(const char *value);

/* remote_pin — appends the value with a commit in place of the revision of each hf:// name: the
 * recorded commit, or else the commit to which the hub resolves the revision now. The value is one
 * name, or several separated by commas, perhaps with weights, as in DATA; other names stay as they
 * are. recorded: the commits that an earlier process of the run used, NULL: none. used: gets the
 * commits of this value, by "hf://org/name@revision". No files are fetched, but a later
 * remote_fetch of the pinned name needs no further request for the commit. Fails like
 * remote_fetch. */
enum status remote_pin(const struct remote_config *config, const char *value, const cJSON *recorded,
                       cJSON *used, struct text *out);

/* remote_fetch — blocks until all files are complete on this machine. path_out: a file, a folder,
 * or for a glob of DATA a glob, for readers of local files. revision_out: the commit of an hf://
 * name, else "". Fails ST_BAD_SETTING: a malformed name, an address that is not allowed, no access
 * (the message names the variable and the page); ST_NO_INPUT: no such repository, revision, file
 * or bucket; ST_BAD_DATA: a wrong checksum, or an answer that is not the hub's; ST_STORE: CACHE_DIR
 * is full; ST_RETRY: no answer, or cut off. */
enum status remote_fetch(const struct remote_config *config, enum remote_kind kind,
                         const char *name, char path_out[FILE_PATH_MAX],
                         char revision_out[REMOTE_REVISION_MAX]);

#endif
