/* library — NVIDIA's libraries, opened when they are first needed: found, opened and turned into a
 * table of pointers here, so that one executable runs where they are and where they are not.
 *
 * A library is described by its possible file names, its symbols (an X-macro in the file that uses
 * it makes both the table of pointers and this list) and the packages that have it. Searched, in
 * this order: the folder of the user (CONVOY_LIB_DIR) and the lib folders one level below it
 * (PyPI's packages make site-packages/nvidia such a folder), ../lib/convoy beside the executable,
 * what the loader finds, CUDA's own folders. Must not know what a symbol does. */
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

/* LIBRARY_SYMBOL — a row of `symbols` for member `name` of the table `type`. */
#define LIBRARY_SYMBOL(type, name)         \
    {                                      \
#name, offsetof(struct type, name) \
    }

/* library_dir — the user's folder, looked into first; NULL or "": none. Kept until the next call;
 * before any open. */
void library_dir(const char *dir);
/* library_open — open and fill `table`. ST_NO_DEVICE: not found (names the folders searched, the
 * loader's own words and the packages), or a symbol is missing (names it and the file). On failure
 * nothing stays open. */
enum status library_open(const struct library_spec *spec, struct library *out, void *table);
void library_close(struct library *l); /* accepts one that is not open */

#endif
