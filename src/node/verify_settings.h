/* verify_settings — from what a ledger says of some steps to the arguments of a `train` that
 * repeats them.
 *
 * Pure. A ledger is bytes from outside: of its settings only those that decide results are taken,
 * by a list, so none can name a file to write. It must not know how the steps are repeated. */
#ifndef CONVOY_NODE_VERIFY_SETTINGS_H
#define CONVOY_NODE_VERIFY_SETTINGS_H

#include <stdbool.h>

#include "base/status.h"
#include "format/ledger_range.h"

#define VERIFY_SETTINGS_MAX 96

/* NAME=VALUE words; each is owned. */
struct verify_settings {
    char *arg[VERIFY_SETTINGS_MAX];
    int args_n;
    int workers;
    bool is_layout; /* EXACT=layout: the layout is free */
};

/* verify_settings_add — one more word; a later word of a name counts. */
enum status verify_settings_add(struct verify_settings *s, const char *name, const char *value);
/* verify_settings_of — those of the maker, for steps up to `to`. workers: N_GPU_EACH_NODE that the
 * user asks for; 0: not said. ST_BAD_SETTING: the steps cannot be repeated so, and what can be
 * done. The caller frees what is there, after a failure too. */
enum status verify_settings_of(const struct ledger_range_maker *maker, int64_t to, int workers,
                               struct verify_settings *out);
void verify_settings_free(struct verify_settings *s); /* accepts a zeroed one, twice */
/* verify_settings_agree — the steps have one maker, as far as results are concerned. ST_BAD_SETTING
 * with the step from which they have another, and both values. */
enum status verify_settings_agree(const struct ledger_range *range, bool is_layout);
/* verify_settings_device — `here` is a device whose results are those of the run's devices.
 * ST_BAD_SETTING with both. */
enum status verify_settings_device(const char *provenance, bool is_layout, const char *here);

#endif
