/* log — lines for people and for log collectors, on stderr.
 *
 * Levels by consequence: error, the run ends; warn, it goes on but a person should look; info,
 * proportional to runs and checkpoints; debug, proportional to objects; trace, proportional to
 * steps. A line's prefix is its time, its coordinates (node, rank) and its module, which is the
 * stem of the calling file. LOG_FORMAT=json writes one JSON object per line, with time, level,
 * run, node, rank, module and message. Each line is one write(2), so lines of several processes
 * never mix. On a terminal a line replaces a progress bar. Must not know settings: log_init gets
 * the values that it needs. */
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
    enum log_level level; /* print this level and more severe ones */
    bool json;
    int node_id;     /* -1: leave out */
    int rank;        /* -1: leave out (the supervisor) */
    const char *run; /* RUN_NAME, in each JSON object; "" or NULL: leave out. Copied. */
    bool is_dumb;    /* the terminal does not support control characters */
};

void log_init(const struct log_config *config); /* until the call: text, info, no coordinates */
/* log_set_rank — changes the rank: in another generation of nodes a worker may have another one;
 * -1: leave out. */
void log_set_rank(int rank);
/* A function for log_tap. line: a line without its time, at most 1399 bytes, with credentials in
 * URLs masked. */
typedef void log_tap_fn(void *arg, int64_t wall_ms, const char *line);
/* log_tap — passes the lines of log_at to a function, too. Calls do not overlap: if two threads log
 * at the same moment, one of the two lines is not passed. NULL: stop. */
void log_tap(log_tap_fn *tap, void *arg);
/* log_set_quiet — for this thread: writes only warnings and errors, and nothing for the console. */
void log_set_quiet(bool is_quiet);
/* log_is_on — returns true if lines of this level are written in this thread. */
bool log_is_on(enum log_level level);
/* log_at — writes one line, at most 2047 bytes of text. file: the source file, which names the
 * module. Use LOG_ERROR to LOG_TRACE. */
void log_at(enum log_level level, const char *file, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* log_console — writes a line for the console as it is (the step line, the progress bar): on stdout
 * without a prefix; with LOG_FORMAT=json an info object on stderr. A missing line end is added. A
 * text that begins with '\r' is a line being redrawn: it is written as it is, and not at all with
 * LOG_FORMAT=json. */
void log_console(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
struct log_number {
    const char *name;
    double value;
};
/* log_numbers — writes a line like log_console, but with LOG_FORMAT=json the message is only the
 * title and the numbers are members of the object; a number that is not finite is null. */
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
