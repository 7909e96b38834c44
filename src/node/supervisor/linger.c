/* linger — see linger.h. */
#include "node/supervisor/linger.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/log.h"
#include "node/process/process.h"
#include "base/text.h"

void linger_write_termination(const char *path, int code, const char *sentence)
{
    char line[2048];
    struct stat at;
    int fd = open(path, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return;
    text_format(line, sizeof line, "exit code %d: %s\n", code, sentence);
    if (fstat(fd, &at) == 0 && S_ISREG(at.st_mode) && ftruncate(fd, 0) == 0)
        (void)!write(fd, line, strlen(line));
    close(fd);
}

const char *linger_text(const struct conf *conf, char *out, size_t cap)
{
    text_format(out, cap, "LINGER=%s, %s", conf_text(conf, CONF_LINGER),
                conf_source(conf, CONF_LINGER));
    return out;
}

static void on_signal(evutil_socket_t signal_n, short what, void *arg)
{
    (void)what;
    LOG_DEBUG("signal %d: HTTP is no longer answered", (int)signal_n);
    event_base_loopbreak(arg);
}

bool linger_until_signal(struct event_base *loop, bool handles_usr1, const struct timeval *limit)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP, SIGUSR1};
    enum { SIGNALS_N = sizeof numbers / sizeof *numbers };
    struct event *signals[SIGNALS_N] = {NULL};
    bool is_watched = true;
    for (int i = 0; i < SIGNALS_N; i++) {
        if (process_ignores(numbers[i]) || (numbers[i] == SIGUSR1 && !handles_usr1))
            continue;
        signals[i] = evsignal_new(loop, numbers[i], on_signal, loop);
        is_watched = is_watched && signals[i] && event_add(signals[i], NULL) == 0;
    }
    if (is_watched && (!limit || event_base_loopexit(loop, limit) == 0))
        event_base_dispatch(loop);
    for (int i = 0; i < SIGNALS_N; i++)
        if (signals[i])
            event_free(signals[i]);
    return is_watched;
}

void linger_run(struct event_base *loop, const struct conf *conf, enum status st)
{
    const int64_t ms = conf_i64(conf, CONF_LINGER);
    const struct timeval limit = {.tv_sec = ms / 1000, .tv_usec = ms % 1000 * 1000};
    /* Log the reason of a failure now, not after the wait; it stays the log's last line. */
    char why[96];
    LOG_INFO(
        "%s with exit code %d: /status, /metrics and the page stay available (%s); a signal ends "
        "that",
        st == ST_OK ? "done" : "failed", status_exit_code(st), linger_text(conf, why, sizeof why));
    if (st != ST_OK) {
        LOG_ERROR("%s", status_message());
        linger_write_termination(LINGER_TERMINATION_LOG, status_exit_code(st), status_message());
    }
    status_clear();
    (void)linger_until_signal(loop, true, &limit);
}
