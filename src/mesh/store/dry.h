/* store_dry — a store that is only counted: it makes the decisions of a store, in the code of
 * store.h, but has no memory and no comm. Its operations go to the device of its config, which must
 * be dry too (dev/dev_dry.h), and its calls go to a function. For plans.
 *
 * A dry store supports the functions of store.h that a training step calls, except the results of
 * store_gather_device and the state of training. */
#ifndef CONVOY_MESH_STORE_DRY_H
#define CONVOY_MESH_STORE_DRY_H

#include "mesh/store/inside.h"

/* is_awaited: nothing is computed between the begin of the call and the first use of its result. */
struct store_dry {
    void (*on_call)(void *arg, const struct store_call *call, int64_t bytes, bool is_awaited);
    void *arg;
};

/* store_dry_open — opens the store of rank `rank` of `ranks`. has_groups: the world has more ranks.
 * dry is borrowed until store_close. ST_RETRY: out of memory. */
enum status store_dry_open(const struct store_config *config, const struct store_dry *dry, int rank,
                           int ranks, bool is_discrete, bool has_groups, struct store **out);
/* store_dry_gathers_for_use — returns true if parameters are gathered before each use. */
bool store_dry_gathers_for_use(const struct store *s);
/* store_dry_adds — returns the number of additions of two whole gradients that a rank makes for its
 * virtual shards in a step. */
int store_dry_adds(const struct store *s);

#endif
