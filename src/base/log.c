/* log — one line, one write(2). See log.h. Must not know settings. */
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <math.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "base/text.h"

#define LOG_MESSAGE_BYTES 2048 /* a longer one is shortened */
#define LOG_RUN_MAX 64
#define LOG_RUN_BYTES (6 * LOG_RUN_MAX + 3)
#define LOG_FIELDS_BYTES 1024
#define LOG_TAP_BYTES 1400
/* a byte may become \u00XX in JSON */
#define LOG_LINE_BYTES (LOG_MESSAGE_BYTES * 6 + LOG_FIELDS_BYTES + 1024)

/* Written once at start-up, before there are threads. */
static struct log_config log_now = {.level = LOG_LEVEL_INFO, .node_id = -1, .rank = -1};

static char log_run[LOG_RUN_MAX + 1];
static atomic_int log_rank = -1;
static _Thread_local bool log_is_quiet;

static pthread_mutex_t log_tap_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(log_tap_fn *) log_tap_call;
static void *log_tap_arg;

static const char *const log_level_names[] = {"error", "warn", "info", "debug", "trace"};

void log_init(const struct log_config *config)
{
    log_now = *config;
    log_set_rank(config->rank);
    text_copy(log_run, sizeof(log_run), config->run != NULL ? config->run : "");
}
void log_set_rank(int rank) { atomic_store_explicit(&log_rank, rank, memory_order_relaxed); }
void log_set_quiet(bool is_quiet) { log_is_quiet = is_quiet; }
bool log_is_on(enum log_level level)
{
    return level <= log_now.level && (level <= LOG_LEVEL_WARN || !log_is_quiet);
}

/* rank_text — writes the rank between two texts; "" if lines have none. */
static void rank_text(const char *before, const char *behind, char *out, size_t cap)
{
    const int rank = atomic_load_explicit(&log_rank, memory_order_relaxed);
    out[0] = 0;
    if (rank >= 0)
        text_format(out, cap, "%s%d%s", before, rank, behind);
}

static void write_line(int fd, const char *line, size_t n)
{
    /* a log line between a failed call and its strerror must not change errno */
    int kept = errno;
    while (write(fd, line, n) < 0 && errno == EINTR)
        continue;
    errno = kept;
}

/* Makes a message one line that cannot control a terminal, whatever bytes a file name contains. */
static void plain_line(char *s)
{
    for (; *s != 0; s++) {
        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            *s = ' ';
    }
}

/* Writes a JSON line. fields: "" or further members, each after a comma. */
static void write_json(enum log_level level, const char *module, const char *time,
                       const char *message, const char *fields)
{
    char line[LOG_LINE_BYTES], node[32] = "", rank[32] = "";
    char quoted[LOG_MESSAGE_BYTES * 6 + 3], quoted_module[256];
    char quoted_run[LOG_RUN_BYTES], run[LOG_RUN_BYTES + 8] = "";
    if (log_now.node_id >= 0)
        text_format(node, sizeof(node), "\"node\":%d,", log_now.node_id);
    rank_text("\"rank\":", ",", rank, sizeof(rank));
    if (log_run[0] != 0) {
        json_quote(quoted_run, sizeof(quoted_run), log_run);
        text_format(run, sizeof(run), "\"run\":%s,", quoted_run);
    }
    json_quote(quoted, sizeof(quoted), message);
    json_quote(quoted_module, sizeof(quoted_module), module);
    text_format(line, sizeof(line),
                "{\"time\":\"%s\",\"level\":\"%s\",%s%s%s\"module\":%s,\"message\":%s%s}\n", time,
                log_level_names[level], run, node, rank, quoted_module, quoted, fields);
    write_line(STDERR_FILENO, line, strlen(line));
}

/* call_tap — calls the tap for one of two threads that log at the same moment: no thread waits for
 * a lock here. */
static void call_tap(enum log_level level, const char *module, int64_t wall_ms, const char *message)
{
    char line[LOG_TAP_BYTES], masked[LOG_TAP_BYTES], node[32] = "", rank[32] = "";
    if (log_tap_call == NULL || pthread_mutex_trylock(&log_tap_lock) != 0)
        return;
    if (log_now.node_id >= 0)
        text_format(node, sizeof(node), "node %d ", log_now.node_id);
    rank_text("rank ", " ", rank, sizeof(rank));
    text_format(line, sizeof(line), "%-5s %s%s%s  %s", log_level_names[level], node, rank, module,
                message);
    plain_line(line);
    text_mask(masked, sizeof(masked), line);
    log_tap_call(log_tap_arg, wall_ms, masked);
    pthread_mutex_unlock(&log_tap_lock);
}

void log_tap(log_tap_fn *tap, void *arg)
{
    pthread_mutex_lock(&log_tap_lock);
    log_tap_call = tap;
    log_tap_arg = arg;
    pthread_mutex_unlock(&log_tap_lock);
}

void log_at(enum log_level level, const char *file, const char *fmt, ...)
{
    if (!log_is_on(level))
        return;
    char message[LOG_MESSAGE_BYTES], time[32], module[40];
    va_list args;
    va_start(args, fmt);
    text_format_v(message, sizeof(message), fmt, args);
    va_end(args);
    int64_t wall_ms = clock_wall_ms();
    clock_iso(time, sizeof(time), wall_ms);
    text_copy(module, sizeof(module), status_file_name(file));
    module[strcspn(module, ".")] = 0;
    call_tap(level, module, wall_ms, message);
    if (log_now.json)
        write_json(level, module, time, message, "");
    else {
        char line[LOG_MESSAGE_BYTES + 256], node[32] = "", rank[32] = "";
        const int error = errno; /* isatty sets errno; the caller may not have read it yet */
        plain_line(message);
        if (log_now.node_id >= 0)
            text_format(node, sizeof(node), "node %d ", log_now.node_id);
        rank_text("rank ", " ", rank, sizeof(rank));
        /* On a terminal another process may have a progress bar on this line: it is erased, and
         * drawn again below. */
        const char *erase = !log_now.is_dumb && isatty(STDERR_FILENO) ? "\r\033[K" : "";
        text_format(line, sizeof(line), "%s%s %-5s %s%s%s  %s\n", erase, time,
                    log_level_names[level], node, rank, module, message);
        errno = error;
        write_line(STDERR_FILENO, line, strlen(line));
    }
}

static void write_console(char *message, const char *fields)
{
    size_t n = strlen(message);
    bool is_redrawn = message[0] == '\r';
    if (log_is_quiet)
        return;
    if (!is_redrawn && (n == 0 || message[n - 1] != '\n'))
        text_copy(message + n++, 2, "\n");
    if (!log_now.json) {
        write_line(STDOUT_FILENO, message, n);
        return;
    }
    if (is_redrawn || !log_is_on(LOG_LEVEL_INFO))
        return;
    char time[32];
    message[n - 1] = 0;
    write_json(LOG_LEVEL_INFO, "console", clock_iso(time, sizeof(time), clock_wall_ms()), message,
               fields);
}

void log_console(const char *fmt, ...)
{
    char message[LOG_MESSAGE_BYTES];
    va_list args;
    va_start(args, fmt);
    /* one byte remains for the line's end */
    text_format_v(message, sizeof(message) - 1, fmt, args);
    va_end(args);
    write_console(message, "");
}

void log_numbers(const char *title, const struct log_number *number, int numbers_n, const char *fmt,
                 ...)
{
    char message[LOG_MESSAGE_BYTES];
    struct text fields = {.limit = LOG_FIELDS_BYTES};
    va_list args;
    va_start(args, fmt);
    text_format_v(message, sizeof(message) - 1, fmt, args);
    va_end(args);
    if (log_now.json)
        text_copy(message, sizeof(message) - 1, title);
    for (int i = 0; log_now.json && i < numbers_n; i++)
        text_add(&fields, ",\"%s\":%s", number[i].name,
                 isfinite(number[i].value) ? text_f64(number[i].value).text : "null");
    write_console(message, fields.data != NULL && !fields.overflow ? fields.data : "");
    text_free(&fields);
}
