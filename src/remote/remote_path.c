/* remote_path — see remote_path.h. */
#include "remote/remote_path.h"

#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool remote_path_is_safe(const char *path)
{
    for (const char *at = path, *stop;; at = stop + 1) {
        stop = strchrnul(at, '/');
        const size_t n = (size_t)(stop - at);
        if (n == 0 || n > 255 || (n == 1 && at[0] == '.') || (n == 2 && memcmp(at, "..", 2) == 0))
            return false;
        for (size_t i = 0; i < n; i++)
            if ((unsigned char)at[i] < ' ' || at[i] == 0x7f || at[i] == '\\')
                return false;
        if (*stop == '\0')
            return true;
    }
}

bool remote_path_is_hidden(const char *path)
{
    return path[0] == '.' || strstr(path, "/.") != NULL;
}

/* compare_paths — orders paths so that a folder's files follow its own name directly. */
static int compare_paths(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    while (*x != '\0' && *x == *y)
        x++, y++;
    return (*x == '/' ? 1 : (unsigned char)*x) - (*y == '/' ? 1 : (unsigned char)*y);
}

bool remote_path_find_clash(const char **names, int64_t n, const char **file_out,
                            const char **below_out)
{
    qsort(names, (size_t)n, sizeof *names, compare_paths);
    for (int64_t i = 1; i < n; i++) {
        const size_t length = strlen(names[i - 1]);
        *file_out = names[i - 1];
        *below_out = names[i];
        if (strncmp(*file_out, *below_out, length) == 0 && (*below_out)[length] == '/')
            return true;
    }
    return false;
}

bool remote_path_is_glob(const char *path) { return strpbrk(path, "*?[") != NULL; }

bool remote_path_matches(const char *glob, const char *path)
{
    char prefix[FILE_PATH_MAX];
    for (const char *stop = strchrnul(path, '/');; stop = strchrnul(stop + 1, '/')) {
        text_format(prefix, sizeof prefix, "%.*s", (int)(stop - path), path);
        if (fnmatch(glob, prefix, FNM_PATHNAME | FNM_PERIOD) == 0)
            return true;
        if (*stop == '\0')
            return false;
    }
}

enum status remote_path_local_glob(const char *folder, const char *glob, char out[FILE_PATH_MAX])
{
    struct text local = {.limit = FILE_PATH_MAX - 1};
    for (const char *c = folder; *c != '\0'; c++)
        text_add(&local, "%s%c", strchr("*?[\\", *c) != NULL ? "\\" : "", *c);
    text_add(&local, "/%s", glob);
    const bool fits = !local.overflow && text_copy(out, FILE_PATH_MAX, local.data);
    text_free(&local);
    return fits ? ST_OK
                : FAIL(ST_BAD_SETTING, "the path %.80s… is too long; set a shorter CACHE_DIR",
                       folder);
}
