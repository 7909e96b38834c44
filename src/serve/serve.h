/* serve — the status endpoint of a node: read-only HTTP, answered from copies of the board. The
 * paths are in route.c.
 *
 * Limits: headers of 8 KiB, no body, 64 connections, 5 s to send a request, 10 s idle. It runs on
 * the supervisor's event loop and never blocks training. It must not know settings, processes or
 * training. */
#ifndef CONVOY_SERVE_SERVE_H
#define CONVOY_SERVE_SERVE_H

#include <stdint.h>

#include "base/board.h"
#include "base/status.h"

struct event_base;
struct serve;
struct stored_runs;
struct view;

struct serve_config {
    struct event_base *loop;
    const struct board *board;  /* NULL: stored runs are served */
    struct stored_runs *stored; /* borrowed; NULL: the run on the board is served */
    const char *addr;           /* STATUS_ADDR */
    int port;                   /* STATUS_PORT; -1: any free port (tests), see serve_port */
    const char *hosts;          /* HOSTS: names in addition to this machine's own; NULL: none */
    const char *own;            /* one more name; NULL: none */
    const char *token; /* required except for probes; read by serve_open only. NULL or "": none */
    int64_t hang_ms;   /* progress older than this is a hang for /livez */
    /* fill — adds the other nodes and their ranks to the view of an answer; NULL: the view has only
     * the board. */
    void (*fill)(void *arg, struct view *view);
    void *fill_arg;
    const struct log_tail *tail; /* log lines of this process; NULL: none are shown */
    const char *settings;        /* a line of JSON, for /settings; NULL: none */
    /* keeps the history over restarts, and the last answers over the end (stored_runs.h); NULL or
     * "": nothing is kept */
    const char *archive_path;
};

/* serve_open — starts to serve on config->loop, and ignores SIGPIPE from now on. Fails
 * ST_BAD_SETTING: the port is in use, or the address is not one of this machine. */
enum status serve_open(const struct serve_config *config, struct serve **out);
/* serve_await_poll — waits for one more request of a client that polls /status (the page, a
 * script), so that it reads the end of the run. Call it when the end is on the board. Returns
 * immediately if no client has polled for 3 s, else within 1.2 s. Runs the loop. Accepts NULL. */
void serve_await_poll(struct serve *serve);
void serve_close(struct serve *serve);     /* accepts NULL */
int serve_port(const struct serve *serve); /* for tests */
#define SERVE_URL_BYTES 320
/* serve_url — writes the page's URL on this machine; a wildcard address is replaced by 127.0.0.1.
 * Returns out, which has SERVE_URL_BYTES. */
const char *serve_url(const struct serve *serve, char *out);

#endif
