/* notes — lines for the log that a pure machine leaves for its driver to print; and lists of nodes
 * for people. Must not know who prints. */
#ifndef CONVOY_CLUSTER_LOG_QUEUE_H
#define CONVOY_CLUSTER_LOG_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_QUEUE_MAX 64 /* more between two looks are dropped */
#define LOG_QUEUE_TEXT_MAX 1152

struct log_queue {
    struct log_queue_line {
        bool is_warning;
        char text[LOG_QUEUE_TEXT_MAX];
    } lines[LOG_QUEUE_MAX];
    int first_i, lines_n;
};

void log_queue_add(struct log_queue *queue, bool is_warning, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* log_queue_next — the oldest, once; NULL: none. */
const char *log_queue_next(struct log_queue *queue, bool *is_warning_out);
/* log_queue_list — "1, 3-7, 9": those of 0 … n−1 that is_one picks. Returns how many. */
int log_queue_list(int n, bool (*is_one)(const void *arg, int i), const void *arg, char *out,
                   size_t cap);

#endif
