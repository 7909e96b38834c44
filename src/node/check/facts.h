/* check_facts — collects the facts that this rank sends to the other ranks in stage 0 of a check:
 * version, settings, libraries, machine. Must not know how facts are compared. */
#ifndef CONVOY_NODE_CHECK_FACTS_H
#define CONVOY_NODE_CHECK_FACTS_H

#include <cjson/cJSON.h>

#include "check/check.h"
#include "conf/conf.h"

#define CHECK_FACTS_MAX 192

struct check_facts {
    struct check_fact fact[CHECK_FACTS_MAX];
    int n;
    cJSON *settings; /* owns the names and values of settings */
    char values[16][128];
    int values_n;
};

/* check_facts_make — collects the facts. config->facts may borrow them until check_facts_free. dev:
 * this rank's device. A setting that cannot be read here (for example, MODEL is a missing folder)
 * is left out and logged. */
void check_facts_make(const struct conf *conf, const struct dev *dev, struct check_facts *out);
void check_facts_free(struct check_facts *facts); /* may be called twice */

/* check_facts_joining — writes the JSON object that nodes compare before they connect for `check`:
 * the version, and the settings that ensure that all ranks make the same calls. */
enum status check_facts_joining(const struct conf *conf, struct text *out);

#endif
