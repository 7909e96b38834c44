/* log_queue — a queue of log lines: a pure state machine adds them, and its caller prints them.
 * Also writes lists of node numbers as text. Must not know how lines are printed. */
#ifndef CONVOY_CLUSTER_LOG_QUEUE_H
#define CONVOY_CLUSTER_LOG_QUEUE_H

#include <stdbool.h>
#include <stddef.h>

#define LOG_QUEUE_MAX 64 /* lines; while the queue is full, further lines are dropped */
#define LOG_QUEUE_TEXT_MAX 1152

struct log_queue {
    struct log_queue_line {
        bool is_warning;
        char text[LOG_QUEUE_TEXT_MAX];
    } lines[LOG_QUEUE_MAX];
    int first_i, lines_n;
};

/* log_queue_add — appends a line formatted like printf's; a long one is shortened. Drops the line
 * if the queue is full. */
void log_queue_add(struct log_queue *queue, bool is_warning, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* log_queue_next — removes the oldest line and returns it, valid until the next add. NULL: the
 * queue is empty. */
const char *log_queue_next(struct log_queue *queue, bool *is_warning_out);
/* log_queue_list — writes the numbers of 0 … n − 1 for which is_one returns true, as "1, 3-7, 9".
 * Returns their number. */
int log_queue_list(int n, bool (*is_one)(const void *arg, int i), const void *arg, char *out,
                   size_t cap);

#endif
