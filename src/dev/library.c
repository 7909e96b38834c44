/* library — see library.h. */
#include "dev/library.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/text.h"

/* Folders of CUDA's packages and of NVIDIA's container images that the loader may not search. */
static const char *const cuda_dirs[] = {
    "/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib", "/opt/cuda/lib64",
    "/usr/lib/x86_64-linux-gnu", "/usr/local/nvidia/lib64"};

static char user_dir[LIBRARY_PATH_MAX];

/* What was tried, for the message of a failure. */
struct search {
    const struct library_spec *spec;
    void *handle;
    char tried[512];
    char reason[256]; /* the loader's message, for a file that exists but does not open */
};

void library_dir(const char *dir) { text_copy(user_dir, sizeof user_dir, dir ? dir : ""); }

/* beside — ../lib/convoy from the folder of this executable; false: unknown. */
static bool beside(char *out, size_t cap)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return false;
    path[n] = 0;
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return false;
        *slash = 0;
    }
    text_format(out, cap, "%s/lib/convoy", path);
    return true;
}

static void note_tried(struct search *s, const char *dir)
{
    size_t used = strlen(s->tried);
    text_format(s->tried + used, sizeof s->tried - used, "%s%s", used ? ", " : "", dir);
}

/* in_dir — tries every file name in one folder; "": in the loader's paths. */
static void in_dir(struct search *s, const char *dir)
{
    char path[LIBRARY_PATH_MAX];
    if (s->handle)
        return;
    note_tried(s, dir[0] ? dir : "the loader's paths");
    for (const char *const *name = s->spec->names; *name && !s->handle; name++) {
        text_format(path, sizeof path, "%s%s%s", dir, dir[0] ? "/" : "", *name);
        if (dir[0] && access(path, F_OK) != 0)
            continue;
        /* NODELETE: threads and handlers of NVIDIA's libraries may outlive their last user */
        s->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        const char *error = s->handle ? NULL : dlerror();
        if (error && (dir[0] || !strstr(error, "No such file")))
            text_copy(s->reason, sizeof s->reason, error);
    }
}

/* in_packages — tries every lib folder one level below, as PyPI's packages have them:
 * nvidia/nccl/lib, nvidia/cu13/lib. In no order: each library is in one of them. */
static void in_packages(struct search *s, const char *dir)
{
    char path[LIBRARY_PATH_MAX];
    DIR *packages = opendir(dir);
    for (struct dirent *entry; packages && !s->handle && (entry = readdir(packages)) != NULL;) {
        if (entry->d_name[0] == '.')
            continue;
        text_format(path, sizeof path, "%s/%s/lib", dir, entry->d_name);
        if (access(path, F_OK) == 0)
            in_dir(s, path);
    }
    if (packages)
        closedir(packages);
}

static void path_of(void *handle, char *out, size_t cap)
{
    struct link_map *map = NULL;
    if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map)
        text_copy(out, cap, map->l_name);
    else
        text_copy(out, cap, "?");
}

static enum status fill(const struct library_spec *spec, const struct library *l, void *table)
{
    for (size_t i = 0; i < spec->symbols_n; i++) {
        void *symbol = dlsym(l->handle, spec->symbols[i].name);
        if (!symbol)
            return FAIL(
                ST_NO_DEVICE,
                "%s from %s has no %s: it is too old, or another library of that name; install %s",
                spec->what, l->path, spec->symbols[i].name, spec->packages);
        memcpy((char *)table + spec->symbols[i].offset, &symbol, sizeof symbol);
    }
    return ST_OK;
}

enum status library_open(const struct library_spec *spec, struct library *out, void *table)
{
    char dir[PATH_MAX];
    struct search s = {.spec = spec};
    *out = (struct library){0};
    if (user_dir[0]) {
        in_dir(&s, user_dir);
        in_packages(&s, user_dir);
    }
    if (beside(dir, sizeof dir))
        in_dir(&s, dir);
    in_dir(&s, "");
    for (size_t i = 0; i < sizeof cuda_dirs / sizeof *cuda_dirs; i++)
        in_dir(&s, cuda_dirs[i]);
    if (!s.handle)
        return FAIL(
            ST_NO_DEVICE,
            "%s is not here: no %s in %s%s%s; install %s, or name its folder in CONVOY_LIB_DIR",
            spec->what, spec->names[0], s.tried, s.reason[0] ? "; the loader says: " : "", s.reason,
            spec->packages);
    out->handle = s.handle;
    path_of(out->handle, out->path, sizeof out->path);
    enum status st = fill(spec, out, table);
    if (st != ST_OK)
        library_close(out);
    return st;
}

void library_close(struct library *l)
{
    if (l->handle)
        (void)dlclose(l->handle);
    l->handle = NULL;
}
