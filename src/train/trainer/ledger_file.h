/* ledger_file — writes the ledger of a run (format/ledger.h) next to its checkpoints. On rank 0
 * only, which holds the lock of the folder.
 *
 * Steps are kept in memory until the next checkpoint, or until a step that is skipped or has
 * another number of samples. A checkpoint is written after them, so the ledger has every step that
 * a checkpoint has. If a process is killed, its unwritten steps are a part of its last run of equal
 * steps: the next process writes them, if it continues from those steps and not from a checkpoint.
 * A process that continues from older steps than the file has writes nothing until it has done them
 * again or saves a checkpoint: a later start from a checkpoint between them needs their lines.
 *
 * If a disk fails, the run goes on: one warning is logged, and lines that could not be written are
 * tried again with the next lines. It must not know checkpoints, or why a step is skipped. */
#ifndef CONVOY_TRAIN_LEDGER_FILE_H
#define CONVOY_TRAIN_LEDGER_FILE_H

#include "format/ledger.h"

struct ledger_file;
/* ledger_file_open — reads the lines of earlier processes. An incomplete last line is cut off. A
 * file that is not a ledger, or was damaged, is moved aside with a warning. start: generation is
 * not read. provenance: a JSON object that fits into a line. done: the last steps before the start,
 * which the process that did them had in memory (steps 0: none); steps that the file lacks are
 * written. Fails with ST_STORE or ST_RETRY if the file cannot be read or changed. */
enum status ledger_file_open(const char *dir, const struct ledger_start *start,
                             const char *provenance, const struct ledger_run *done,
                             struct ledger_file **out);
/* ledger_file_close — writes the lines that are left; accepts NULL. */
void ledger_file_close(struct ledger_file *file);
/* ledger_file_add — adds a step; its generation is not read. Accepts NULL. */
void ledger_file_add(struct ledger_file *file, const struct ledger_run *step);
/* ledger_file_checkpoint — adds a checkpoint that was just committed in folder `path`. If it cannot
 * be read, a warning is logged. */
void ledger_file_checkpoint(struct ledger_file *file, const char *path);
/* ledger_file_sync — returns when everything is on the disk, unless a warning was logged. Accepts
 * NULL. */
void ledger_file_sync(struct ledger_file *file);

#endif
