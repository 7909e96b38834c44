/* log — lines for people and for collectors, on stderr.
 *
 * Levels by consequence: error the run ends · warn it goes on but someone should look · info
 * proportional to runs and checkpoints · debug proportional to objects · trace proportional to
 * steps. Lower case, `key value`, no decoration. The prefix is time, coordinates (node, rank) and
 * module (the stem of the calling file). LOG_FORMAT=json gives one JSON object a line: time, level,
 * node, rank, module, message. One write(2) a line, so lines of several processes never mix; on a
 * terminal it takes the place of a progress bar. Must not know settings: log_init is told. */
#ifndef CONVOY_BASE_LOG_H
#define CONVOY_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level {
    LOG_LEVEL_ERROR,
    LOG_LEVEL_WARN,
    LOG_LEVEL_INFO,
    LOG_LEVEL_DEBUG,
    LOG_LEVEL_TRACE
};

struct log_config {
    enum log_level level; /* print this and graver */
    bool json;
    int node_id;     /* -1: leave out */
    int rank;        /* -1: leave out (the supervisor) */
    const char *run; /* RUN_NAME, in each JSON object; "" or NULL: leave out. Copied. */
    bool is_dumb;    /* a terminal that takes no control characters */
};

void log_init(const struct log_config *config); /* before it: text, info, no coordinates */
/* log_tap — also given each line of log_at: without its time, cut at some 500 bytes, credentials in
 * addresses masked. Calls do not overlap. NULL: no more. */
typedef void log_tap_fn(void *arg, int64_t wall_ms, const char *line);
void log_tap(log_tap_fn *tap, void *arg);
bool log_is_on(enum log_level level);
void log_at(enum log_level level, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* log_console — a line for the console as it is (the step line, the progress bar): no prefix in
 * text format on stdout; in JSON format an info object on stderr. A missing line end is added,
 * unless the text begins with '\r': that is a line being redrawn, written as it is in text format
 * and not at all in JSON format. */
void log_console(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* log_numbers — as log_console, but in JSON format the message is the title alone and the numbers
 * are members of the object. Not finite: null. */
struct log_number {
    const char *name;
    double value;
};
void log_numbers(const char *title, const struct log_number *number, int numbers_n, const char *fmt,
                 ...) __attribute__((format(printf, 4, 5)));

#define LOG_ERROR(...) log_at(LOG_LEVEL_ERROR, __FILE__, __VA_ARGS__)
#define LOG_WARN(...) log_at(LOG_LEVEL_WARN, __FILE__, __VA_ARGS__)
#define LOG_INFO(...) log_at(LOG_LEVEL_INFO, __FILE__, __VA_ARGS__)
#define LOG_DEBUG(...) \
    (log_is_on(LOG_LEVEL_DEBUG) ? log_at(LOG_LEVEL_DEBUG, __FILE__, __VA_ARGS__) : (void)0)
#define LOG_TRACE(...) \
    (log_is_on(LOG_LEVEL_TRACE) ? log_at(LOG_LEVEL_TRACE, __FILE__, __VA_ARGS__) : (void)0)

#endif
