/* library — see library.h. */
#include "dev/nvidia/library.h"

#include <dlfcn.h>
#include <glob.h>
#include <limits.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"

#define LOADER "the loader's paths"
#define PYTHONS "Python's packages in /usr and /opt"
#define CUDA "CUDA's folders"

/* A line of the search. variable: in front of the pattern; without a value the line is left out.
 * pattern: the folders, for glob(3). about: for messages; NULL: the variable's value. */
struct location {
    const char *variable, *pattern, *about;
};
static const struct location locations[] = {
    {"CONVOY_LIB_DIR", "", NULL},
    {"CONVOY_LIB_DIR", "/*/lib", NULL},
    {"ORIGIN", "", NULL},
    {NULL, NULL, LOADER},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/*/lib", NULL},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/*/lib", NULL},
    {"CONDA_PREFIX", "{/lib,/targets/*/lib}", NULL},
    {NULL, "/usr/{,local/}lib/python3*/{dist,site}-packages/nvidia/*/lib", PYTHONS},
    {NULL, "/opt/*/{,venv/,.venv/}lib/python3*/site-packages/nvidia/*/lib", PYTHONS},
    {NULL, "/usr/local/cuda*/{lib64,targets/*/lib}", CUDA},
    {NULL, "{/opt/cuda*/lib64,/usr/lib/*-linux-gnu,/usr/local/nvidia/lib64}", CUDA},
    {NULL, "/opt/rocm*/lib", "ROCm's folders"},
};

static char user_dir[LIBRARY_PATH_MAX], test_root[LIBRARY_PATH_MAX];

struct search {
    const struct library_spec *spec;
    struct library *out; /* its handle: NULL until a library is accepted */
    void *table;
    struct text tried, passed_over; /* for the message of a failure */
};

void library_dir(const char *dir) { text_copy(user_dir, sizeof user_dir, dir ? dir : ""); }

void library_root(const char *root) { text_copy(test_root, sizeof test_root, root ? root : ""); }

/* Writes ../lib/convoy, seen from the folder of this executable; "" if that is unknown. */
static void find_origin(char *out, size_t cap)
{
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    out[0] = 0;
    for (int up = 0; n > 0 && up < 2; up++) {
        path[n] = 0;
        char *slash = strrchr(path, '/');
        n = slash ? slash - path : 0;
    }
    if (n > 0)
        text_format(out, cap, "%.*s/lib/convoy", (int)n, path);
}

/* Writes the value of a location's variable; "" if it has none. */
static void find_variable(const char *name, char *out, size_t cap)
{
    extern char **environ;
    out[0] = 0;
    if (strcmp(name, "CONVOY_LIB_DIR") == 0)
        text_copy(out, cap, user_dir);
    else if (strcmp(name, "ORIGIN") == 0)
        find_origin(out, cap);
    else {
        const char *value = text_variable(environ, name);
        text_copy(out, cap, value ? value : "");
    }
}

/* Fills the table. Returns the name of a symbol that the library lacks; NULL: it has all. */
static const char *load_symbols(const struct library_spec *spec, void *handle, void *table)
{
    for (size_t i = 0; i < spec->symbols_n; i++) {
        void *symbol = dlsym(handle, spec->symbols[i].name);
        if (!symbol)
            return spec->symbols[i].name;
        memcpy((char *)table + spec->symbols[i].offset, &symbol, sizeof symbol);
    }
    return NULL;
}

/* Opens one file and accepts it if it is usable; otherwise notes why it is passed over. */
static void try_file(struct search *s, const char *file)
{
    const struct library_spec *spec = s->spec;
    char why[256] = "", path[LIBRARY_PATH_MAX];
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    const char *error = handle ? NULL : dlerror(), *lacks = NULL;
    if (error && file[0] != '/' && strstr(error, "No such file"))
        return;
    text_copy(path, sizeof path, file);
    if (handle) {
        /* Writes the path under which the loader opened a library; leaves `out` if that is
         * unknown. */
        size_t cap = sizeof path;
        struct link_map *map = NULL;
        if (dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map)
            text_copy(path, cap, map->l_name);
    }
    if (error)
        text_copy(why, sizeof why, error);
    else if ((lacks = load_symbols(spec, handle, s->table)) != NULL)
        text_format(why, sizeof why, "has no %s", lacks);
    else if (!spec->fits || spec->fits(s->table, why, sizeof why)) {
        /* NODELETE: threads and handlers of NVIDIA's libraries may outlive their last user */
        s->out->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        text_copy(s->out->path, sizeof s->out->path, path);
    }
    if (handle)
        (void)dlclose(handle);
    if (!s->out->handle)
        text_add(&s->passed_over, "%s%s: %s", s->passed_over.len ? "; " : "; passed over: ", path,
                 why);
}

/* Compares paths for qsort: the greater version number first. */
static int compare_paths(const void *a, const void *b)
{
    return strverscmp(*(char *const *)b, *(char *const *)a);
}

/* Tries all files that a pattern matches, the newest first. */
static void try_pattern(struct search *s, const char *pattern)
{
    glob_t found;
    if (glob(pattern, GLOB_BRACE | GLOB_NOSORT, NULL, &found) != 0)
        return;
    qsort(found.gl_pathv, found.gl_pathc, sizeof *found.gl_pathv, compare_paths);
    for (size_t i = 0; i < found.gl_pathc && !s->out->handle; i++)
        try_file(s, found.gl_pathv[i]);
    globfree(&found);
}

static void try_location(struct search *s, const struct location *location)
{
    char value[LIBRARY_PATH_MAX] = "";
    if (location->variable)
        find_variable(location->variable, value, sizeof value);
    if (location->variable ? !value[0] : !location->pattern && test_root[0])
        return;
    const char *about = location->about ? location->about : value;
    if (!s->tried.data || !text_ends(s->tried.data, about))
        text_add(&s->tried, "%s%s", s->tried.len ? ", " : "", about);
    if (location->pattern) {
        /* Tries all files in the folders of a location. value: the value of its variable, not a
         * pattern. */
        for (const char *const *name = s->spec->names; *name && !s->out->handle; name++) {
            struct text pattern = {0};
            text_add(&pattern, "%s", location->variable ? "" : test_root);
            for (const char *c = value; *c; c++)
                text_add(&pattern, "%s%c", strchr("*?[]{},\\", *c) ? "\\" : "", *c);
            text_add(&pattern, "%s/%s", location->pattern, *name);
            if (!pattern.overflow)
                try_pattern(s, pattern.data);
            text_free(&pattern);
        }
    }
    for (const char *const *name = s->spec->names; !location->pattern && *name && !s->out->handle;
         name++)
        try_file(s, *name);
}

enum status library_open(const struct library_spec *spec, struct library *out, void *table)
{
    enum status st = ST_OK;
    struct search s = {.spec = spec,
                       .out = out,
                       .table = table,
                       .tried = {.limit = 400},
                       .passed_over = {.limit = 400}};
    *out = (struct library){0};
    for (size_t i = 0; i < sizeof locations / sizeof *locations && !out->handle; i++)
        try_location(&s, &locations[i]);
    if (!out->handle)
        st = FAIL(ST_NO_DEVICE,
                  "%s is not here: install %s, or name its folder in CONVOY_LIB_DIR; no %s%s in "
                  "%s%s",
                  spec->what, spec->packages, s.passed_over.len ? "usable " : "", spec->names[0],
                  s.tried.data ? s.tried.data : "?", s.passed_over.len ? s.passed_over.data : "");
    text_free(&s.tried);
    text_free(&s.passed_over);
    return st;
}

enum status library_check_runtime(const struct library_spec *spec, struct library *l,
                                  const void *hip_get_device)
{
    Dl_info ours, theirs;
    const void *runtime = hip_get_device ? dlsym(l->handle, "hipGetDevice") : NULL;
    if (runtime == NULL || runtime == hip_get_device || dladdr(hip_get_device, &ours) == 0 ||
        dladdr(runtime, &theirs) == 0)
        return ST_OK;
    /* closing may unload their runtime, and its path with it */
    const enum status st =
        FAIL(ST_NO_DEVICE,
             "%s from %s uses AMD's runtime from %s, and this program uses the one from %s; "
             "name the lib folder of one version of ROCm in CONVOY_LIB_DIR",
             spec->what, l->path, theirs.dli_fname, ours.dli_fname);
    library_close(l);
    return st;
}

void library_close(struct library *l)
{
    if (l->handle)
        (void)dlclose(l->handle);
    l->handle = NULL;
}
