/* rehearse_scratch — see rehearse_scratch.h. */
#include "node/rehearse_scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/text.h"
#include "node/process.h"

#define REMOVE_TRIES 100 /* a worker that is being killed may still add a file */
#define REMOVE_WAIT_MS 50

/* watch — the remover: until all holders of the pipe have ended. */
static _Noreturn void watch(const char *path, int fd)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
    char byte;
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        signal(ignored[i], SIG_IGN);
    for (int i = 0; i < PROCESS_STOP_SIGNALS_N; i++)
        signal(process_stop_signals[i], SIG_IGN);
    setsid();
    fd = dup2(fd, STDIN_FILENO);
    close_range(STDERR_FILENO + 1, ~0u, 0);
    dup2(open("/dev/null", O_RDWR), STDERR_FILENO); /* a reader of stdout must not wait for this */
    dup2(STDERR_FILENO, STDOUT_FILENO);
    do {
        errno = 0;
    } while (read(fd, &byte, 1) > 0 || errno == EINTR);
    for (int i = 0; i < REMOVE_TRIES && file_remove_tree(path) != ST_OK; i++)
        clock_sleep_ms(REMOVE_WAIT_MS);
    _exit(0);
}

static enum status start_remover(struct rehearse_scratch *s)
{
    int ends[2];
    if (pipe(ends) != 0)
        return FAIL(ST_RETRY, "cannot open a pipe: %s; raise the limit (ulimit -n)",
                    strerror(errno));
    s->remover = fork();
    if (s->remover == 0) {
        close(ends[1]);
        watch(s->path, ends[0]);
    }
    close(ends[0]);
    s->hold_fd = ends[1];
    if (s->remover > 0)
        return ST_OK;
    close(ends[1]);
    s->remover = 0;
    return FAIL(ST_RETRY, "cannot start a process: %s; raise the limit (ulimit -u)",
                strerror(errno));
}

enum status rehearse_scratch_open(const char *prefix, struct rehearse_scratch *out)
{
    *out = (struct rehearse_scratch){.hold_fd = -1};
    if (!text_format(out->path, sizeof out->path, "%s-XXXXXX", prefix) ||
        mkdtemp(out->path) == NULL)
        return FAIL(ST_STORE,
                    "cannot make the folder %s: %s; name a folder that can be written, by "
                    "CHECKPOINT_DIR or TMPDIR",
                    out->path, strerror(errno));
    enum status st = start_remover(out);
    if (st != ST_OK)
        rmdir(out->path);
    return st;
}

void rehearse_scratch_close(struct rehearse_scratch *scratch)
{
    if (scratch->remover <= 0)
        return;
    close(scratch->hold_fd);
    while (waitpid(scratch->remover, NULL, 0) < 0 && errno == EINTR)
        ;
    scratch->remover = 0;
}
