/* verify — `convoy verify DIR`: what the records of a run say of it, and whether they are whole. It
 * must not know how they are written. */
#ifndef CONVOY_NODE_VERIFY_H
#define CONVOY_NODE_VERIFY_H

#include <stdbool.h>

#include "base/status.h"

/* verify_main — dir: a CHECKPOINT_DIR. Shows what its ledger of samples says (format/ledger.h), as
 * lines for people or as JSON. ST_UNHEALTHY: a sample is in no step or in two, or a checkpoint has
 * steps that the ledger lacks; the message has the first. ST_NO_INPUT: no such folder or ledger.
 * ST_BAD_DATA: it is damaged. */
enum status verify_main(const char *dir, bool as_json);

#endif
