/* hub_name — names of the Hugging Face hub: hf://org/name[@revision][/path] for models, and
 * hf://datasets/org/name[@revision]/path for data sets.
 *
 *   - The revision is a branch, a tag or a commit. It ends at the next '/', but for
 *     refs/pr/NUMBER and refs/convert/NAME. Without one it is main.
 *   - %XX in revision and path is a byte: %2F in a branch's name, %2C for a comma.
 *   - Old models have no organisation: hf://gpt2.
 *
 * Pure functions; it must not know files or the network. */
#ifndef CONVOY_REMOTE_HUB_NAME_H
#define CONVOY_REMOTE_HUB_NAME_H

#include <stdbool.h>
#include <stddef.h>

#include "base/file.h"
#include "base/status.h"

#define HUB_REPO_MAX 200
#define HUB_REVISION_MAX 128
#define HUB_PATH_MAX 1024

struct hub_name {
    bool is_dataset;
    char repo[HUB_REPO_MAX]; /* "org/name", or "name" */
    char revision[HUB_REVISION_MAX];
    char path[HUB_PATH_MAX]; /* file, folder or glob in the repository; "": all of it */
    const char *rest;        /* the path as written, with its '/'; borrowed from the value */
};

/* hub_name_is — returns true if the value begins with hf://. */
bool hub_name_is(const char *value);
/* hub_name_parse — reads a name. setting: "MODEL" …, for the message. ST_BAD_SETTING: no such name,
 * or a part that could leave the cache's folder. */
enum status hub_name_parse(const char *setting, const char *value, struct hub_name *out);
/* hub_name_is_commit — returns true for the full hash of a commit: 40 or 64 hexadecimal digits. */
bool hub_name_is_commit(const char *revision);

#endif
