/* library — loads NVIDIA's libraries when they are first needed: finds one, opens it and fills a
 * table of pointers. So one executable runs with them and without them.
 *
 * A library is described by its file names, its symbols and the packages that have it; an X-macro
 * in the file that uses it makes both the table of pointers and the list of symbols. Search order:
 *   1. the user's folder (CONVOY_LIB_DIR) and the lib folders one level below it, as PyPI's
 *      packages make them in site-packages/nvidia
 *   2. ../lib/convoy beside the executable
 *   3. the loader's own paths
 *   4. CUDA's own folders
 * Must not know what a symbol does. */
#ifndef CONVOY_DEV_LIBRARY_H
#define CONVOY_DEV_LIBRARY_H

#include <stddef.h>

#include "base/status.h"

#define LIBRARY_PATH_MAX 512

struct library_symbol {
    const char *name;
    size_t offset; /* of its pointer in the table */
};

struct library_spec {
    const char *what;         /* "cuBLASLt" */
    const char *const *names; /* file names, the newest first; NULL ends them */
    const char *packages;     /* what has it, for people */
    const struct library_symbol *symbols;
    size_t symbols_n;
};

struct library {
    void *handle;                /* of dlopen; NULL: not open */
    char path[LIBRARY_PATH_MAX]; /* where the loader found it */
};

/* LIBRARY_SYMBOL — a row of `symbols`, for member `name` of struct type. */
#define LIBRARY_SYMBOL(type, name)         \
    {                                      \
#name, offsetof(struct type, name) \
    }

/* library_dir — sets the user's folder; NULL or "": none. Call it before any library_open. The
 * string is borrowed until the next call. */
void library_dir(const char *dir);
/* library_open — opens the library and fills `table`. ST_NO_DEVICE: not found (with the folders
 * searched, the loader's message and the packages), or a symbol is missing (with its name and the
 * file). On failure nothing stays open. */
enum status library_open(const struct library_spec *spec, struct library *out, void *table);
void library_close(struct library *l); /* accepts one that is not open */

#endif
