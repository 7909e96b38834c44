/* remote_path — names of files in repositories and buckets: which are safe as paths below a local
 * folder, which a glob matches, and the local glob with the same matches. Pure functions. */
#ifndef CONVOY_REMOTE_REMOTE_PATH_H
#define CONVOY_REMOTE_REMOTE_PATH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

/* remote_path_is_safe — returns true for the name of a file below a folder: no empty, "." or ".."
 * component, no absolute path, no control or backslash, no component over 255 bytes. */
bool remote_path_is_safe(const char *path);
/* remote_path_is_hidden — returns true if a component begins with '.': readers of folders skip such
 * files. */
bool remote_path_is_hidden(const char *path);
/* remote_path_find_clash — finds a file whose name is also a folder of another one, as "a" of "a"
 * and "a/b". Returns false if there is none. Sorts the n names, with "/" before all other bytes. */
bool remote_path_find_clash(const char **names, int64_t n, const char **file_out,
                            const char **below_out);
/* remote_path_is_glob — returns true if the path has a character of globs. */
bool remote_path_is_glob(const char *path);
/* remote_path_matches — returns true if the glob matches the path, or a folder above it. '*' and
 * '?' match no '/', and no '.' at the beginning of a component. */
bool remote_path_matches(const char *glob, const char *path);
/* remote_path_local_glob — writes "folder/glob" for glob(3), with a backslash before the special
 * characters of the folder. ST_BAD_SETTING: it is too long. */
enum status remote_path_local_glob(const char *folder, const char *glob, char out[FILE_PATH_MAX]);

#endif
