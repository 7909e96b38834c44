/* store_resident — masters and moments that stay in a rank's memory between two stores. A rank that
 * loses its peers closes its store, because its comm is gone, but the state may be as good as
 * before. Must not know steps, copies or other ranks.
 *
 * Only where a rank holds all of the state whole (store_slice_has_all), in host memory. */
#ifndef CONVOY_MESH_STORE_RESIDENT_H
#define CONVOY_MESH_STORE_RESIDENT_H

#include "mesh/store.h"

#define STORE_RESIDENT_PARTS 3

/* part: as store.h counts them, laid out as the table of the closed store. Zero-initialised: holds
 * nothing. */
struct store_resident {
    struct tensor part[STORE_RESIDENT_PARTS];
    int64_t bytes; /* of each */
    int parts_n;   /* 0: nothing */
};

/* store_resident_holds — all parts are there: no store has adopted one.
 * store_resident_take — before store_close, after a failure, too: the state goes from the store to
 * *out, which must hold nothing. Returns false, and takes nothing, where this rank lacks a part of
 * it, or an update is due or was not finished. The store can then only be closed.
 * store_resident_adopt — for store_open: the memory of a part, of so many bytes, which is the
 * store's from here on; data NULL: there is none. Accepts r NULL.
 * store_resident_free — accepts one that holds nothing. */
bool store_resident_holds(const struct store_resident *r);
bool store_resident_take(struct store *s, struct store_resident *out);
struct tensor store_resident_adopt(struct store_resident *r, int part, int64_t bytes);
void store_resident_free(struct store_resident *r, struct dev *dev);

#endif
