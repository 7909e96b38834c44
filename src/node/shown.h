/* shown — what a node shows over HTTP beside the board: its supervisor's lines of log, its
 * settings, and where its curves are kept (with the checkpoints, by node 0).
 *
 * Must not know HTTP. */
#ifndef CONVOY_NODE_SHOWN_H
#define CONVOY_NODE_SHOWN_H

#include "base/file.h"
#include "base/tail.h"
#include "base/text.h"
#include "conf/conf.h"

struct shown {
    struct tail tail;
    struct text settings;        /* a line of JSON */
    char archive[FILE_PATH_MAX]; /* "": nowhere */
};

/* shown_open — from here on the log's lines are taken down. */
enum status shown_open(const struct conf *conf, struct shown **out);
void shown_close(struct shown *shown); /* accepts NULL */

#endif
