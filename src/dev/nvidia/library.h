/* library — loads the vendors' libraries when they are first needed: finds a usable file, opens it
 * and fills a table of pointers. So one executable runs with them and without them.
 *
 * A library is described by its file names, its symbols and the packages that have it; an X-macro
 * in the file that uses it makes both the table of pointers and the list of symbols. Search order:
 *   1. the user's folder (CONVOY_LIB_DIR) and the lib folders one level below it, as PyPI's
 *      packages make them in site-packages/nvidia
 *   2. ../lib/convoy, seen from the executable
 *   3. the loader's own paths
 *   4. nvidia/<any>/lib in the site-packages of $VIRTUAL_ENV and $CONDA_PREFIX; conda's own lib
 *   5. the same in Python's packages of /usr, /usr/local and /opt
 *   6. CUDA's folders, then ROCm's
 * In each of these locations the newest file name comes first, then the folder with the greatest
 * version number. A file that does not open, lacks a symbol or has a version that does not fit is
 * passed over. Must not know the purpose of a symbol. */
#ifndef CONVOY_DEV_LIBRARY_H
#define CONVOY_DEV_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

#define LIBRARY_PATH_MAX 512

struct library_symbol {
    const char *name;
    size_t offset; /* offset of its pointer in the table */
};

struct library_spec {
    const char *what;         /* "cuBLASLt" */
    const char *const *names; /* file names, the newest first; NULL ends them */
    const char *packages;     /* the packages that have it, for people */
    const struct library_symbol *symbols;
    size_t symbols_n;
    /* Returns false and the reason if the version of a library, whose table is filled, does not
     * fit. NULL: every version fits. */
    bool (*fits)(const void *table, char *why, size_t cap);
};

struct library {
    void *handle;                /* result of dlopen; NULL: not open */
    char path[LIBRARY_PATH_MAX]; /* where the loader found it */
};

/* LIBRARY_SYMBOL — a row of `symbols`, for member `name` of struct type. */
#define LIBRARY_SYMBOL(type, name)         \
    {                                      \
#name, offsetof(struct type, name) \
    }

/* Sets the user's folder; NULL or "": none. Call it before any library_open. */
void library_dir(const char *dir);
/* Sets a folder that stands for / in 5. and 6., and leaves the loader's paths out; NULL or "": as
 * usual; for tests. */
void library_root(const char *root);
/* Opens the first usable library and fills `table`. ST_NO_DEVICE: there is none; the message has
 * the locations searched, the files passed over with their reasons, and the packages. */
enum status library_open(const struct library_spec *spec, struct library *out, void *table);
/* Checks that a library has loaded the same AMD runtime as this process, because the streams and
 * memory of one runtime are invalid in another. hip_get_device: the address of that function in the
 * runtime of this process; NULL: nothing to compare. ST_NO_DEVICE: the runtime is another; the
 * message has both paths, and the library is closed. */
enum status library_check_runtime(const struct library_spec *spec, struct library *l,
                                  const void *hip_get_device);
void library_close(struct library *l); /* accepts a library that is not open */

#endif
