/* ledger_range — which generations made some steps of a run, and with what: for a program that
 * repeats them. It must not know what a provenance says. */
#ifndef CONVOY_FORMAT_LEDGER_RANGE_H
#define CONVOY_FORMAT_LEDGER_RANGE_H

#include "format/ledger.h"

#define LEDGER_RANGE_MAKERS_MAX 16

/* A generation whose steps no later one has done again. */
struct ledger_range_maker {
    int64_t after; /* its first step is the next one */
    int64_t generation;
    uint64_t data;                    /* fingerprint */
    char provenance[LEDGER_LINE_MAX]; /* a JSON object; "": not said */
};

/* The makers of the steps, in their order. One that has the provenance and data of the maker before
 * is a part of it. */
struct ledger_range {
    struct ledger_range_maker maker[LEDGER_RANGE_MAKERS_MAX];
    int makers_n; /* 0: the ledger begins behind the first of the steps */
};

/* ledger_range — steps from+1 to `to` of a ledger that ledger_audit has read. ST_BAD_DATA: they
 * have more makers than there is room for. */
enum status ledger_range(const char *path, int64_t from, int64_t to, struct ledger_range *out);
/* ledger_range_bytes — for tests: the same of bytes in memory. */
enum status ledger_range_bytes(const char *bytes, size_t n, int64_t from, int64_t to,
                               struct ledger_range *out);

#endif
