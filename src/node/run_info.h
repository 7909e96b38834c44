/* run_info — what HTTP shows of a run beside the board: the supervisor's newest log lines, the
 * settings, and the file of the curves. Node 0 keeps that file beside the checkpoints. Must not
 * know HTTP. */
#ifndef CONVOY_NODE_RUN_INFO_H
#define CONVOY_NODE_RUN_INFO_H

#include "base/file.h"
#include "base/log_tail.h"
#include "base/text.h"
#include "conf/conf.h"

struct run_info {
    struct log_tail tail;
    struct text settings;        /* those that differ from their defaults: a line of JSON */
    char archive[FILE_PATH_MAX]; /* the file of the curves; "": none */
};

/* run_info_open — collect the log's lines from now on. */
enum status run_info_open(const struct conf *conf, struct run_info **out);
void run_info_close(struct run_info *info); /* accepts NULL */

#endif
