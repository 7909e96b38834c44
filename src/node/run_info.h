/* run_info — what a node shows over HTTP beside the board: its supervisor's lines of log, its
 * settings, and where its curves are kept (with the checkpoints, by node 0).
 *
 * Must not know HTTP. */
#ifndef CONVOY_NODE_RUN_INFO_H
#define CONVOY_NODE_RUN_INFO_H

#include "base/file.h"
#include "base/log_tail.h"
#include "base/text.h"
#include "conf/conf.h"

struct run_info {
    struct log_tail tail;
    struct text settings;        /* a line of JSON */
    char archive[FILE_PATH_MAX]; /* "": nowhere */
};

/* run_info_open — from here on the log's lines are taken down. */
enum status run_info_open(const struct conf *conf, struct run_info **out);
void run_info_close(struct run_info *info); /* accepts NULL */

#endif
