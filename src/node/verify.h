/* verify — `convoy verify DIR`: what the records of a run say of it, and whether they are whole. It
 * must not know how they are written. */
#ifndef CONVOY_NODE_VERIFY_H
#define CONVOY_NODE_VERIFY_H

#include <stdbool.h>

#include "base/status.h"

/* verify_main — dir: a CHECKPOINT_DIR. Shows what its ledger of samples says (format/ledger.h), as
 * lines for people or as JSON, and lists the checkpoints that are damaged; every byte of them is
 * compared with its checksum. ST_UNHEALTHY: a sample is in no step or in two, a checkpoint has
 * steps that the ledger lacks, is damaged or was changed; the message has the first. ST_NO_INPUT:
 * no such folder or ledger. ST_BAD_DATA: the ledger is damaged; what else was found is shown. */
enum status verify_main(const char *dir, bool as_json);

#endif
