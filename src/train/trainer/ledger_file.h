/* ledger_file — writes the ledger of a run (format/ledger.h) beside its checkpoints. On rank 0
 * only, which holds the lock of the folder.
 *
 * Steps are kept in memory until the next checkpoint, or until one that is skipped or has another
 * number of samples. A checkpoint is written after them, so the ledger has every step that a
 * checkpoint has. What a killed process had in memory is a part of its last run of equal steps:
 * the next process writes it, if it goes on from those steps and not from a checkpoint.
 *
 * A disk that fails loses no run: it is warned about once, and what could not be written is tried
 * again with the next lines. It must not know checkpoints, or why a step is skipped. */
#ifndef CONVOY_TRAIN_LEDGER_FILE_H
#define CONVOY_TRAIN_LEDGER_FILE_H

#include "format/ledger.h"

struct ledger_file;
/* ledger_file_open — reads what earlier processes wrote. An incomplete last line is cut off. A
 * file that is none of ours, or was damaged, is moved aside with a warning. start: generation is
 * not read. provenance: a JSON object, for which a line has room. done: the last steps before the
 * start, as the process that did them had them in memory (steps 0: not known); those that the file
 * lacks are written. Fails with ST_STORE or ST_RETRY where it cannot be read or changed. */
enum status ledger_file_open(const char *dir, const struct ledger_start *start,
                             const char *provenance, const struct ledger_run *done,
                             struct ledger_file **out);
/* ledger_file_close — writes what is left; accepts NULL. */
void ledger_file_close(struct ledger_file *file);
/* ledger_file_add — a step; its generation is not read; accepts NULL. */
void ledger_file_add(struct ledger_file *file, const struct ledger_run *step);
/* ledger_file_checkpoint — a checkpoint's folder, just committed. One that cannot be read is
 * warned about. */
void ledger_file_checkpoint(struct ledger_file *file, const char *path);
/* ledger_file_sync — everything is on the disk when this returns, unless it was warned about;
 * accepts NULL. */
void ledger_file_sync(struct ledger_file *file);

#endif
