/* checkpoint_aside — see checkpoint_aside.h. */
#include "train/checkpoint_aside.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/text.h"
#include "format/ledger.h"

/* move — moves one folder of an earlier run. It fails if it cannot: the folder would mix with the
 * new run. */
static enum status move(const char *dir, const char *aside, const char *name)
{
    char from[FILE_PATH_MAX], to[FILE_PATH_MAX];
    TRY(file_join(from, sizeof from, dir, name));
    TRY(file_join(to, sizeof to, aside, name));
    if (rename(from, to))
        return FAIL(
            ST_STORE,
            "cannot move %s to %s: %s; RESUME=never needs CHECKPOINT_DIR without older checkpoints",
            from, to, strerror(errno));
    return ST_OK;
}

/* next_name — NULL at the end. *st is set if the folder cannot be read to its end: what remains
 * would mix. */
static const char *next_name(const char *dir, DIR *folder, enum status *st)
{
    errno = 0;
    const struct dirent *entry = readdir(folder);
    if (!entry && errno)
        *st = FAIL(ST_STORE, "cannot read CHECKPOINT_DIR=%s: %s; check the disk", dir,
                   strerror(errno));
    return entry ? entry->d_name : NULL;
}

enum status checkpoint_aside(const char *dir)
{
    char aside[FILE_PATH_MAX], name[64];
    int moved = 0;
    enum status st = ST_OK;
    text_format(name, sizeof name, "before-%lld", (long long)clock_wall_ms());
    TRY(file_join(aside, sizeof aside, dir, name));
    DIR *folder = opendir(dir);
    if (!folder)
        return FAIL(ST_STORE, "cannot read CHECKPOINT_DIR=%s: %s", dir, strerror(errno));
    for (const char *from; (from = next_name(dir, folder, &st));) {
        bool is_checkpoint = text_starts(from, "step-");
        if (!is_checkpoint && strcmp(from, LEDGER_NAME) != 0)
            continue;
        TRY_OR(file_make_dirs(aside), close);
        moved += is_checkpoint;
        TRY_OR(move(dir, aside, from), close);
    }
    if (st == ST_OK && moved) {
        TRY_OR(file_sync_dir(aside), close);
        LOG_WARN("RESUME=never: %d checkpoints of an earlier run moved to %s", moved, aside);
    }
close:
    closedir(folder);
    return st;
}
