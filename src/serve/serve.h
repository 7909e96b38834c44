/* serve — the node's voice: HTTP on libevent's evhttp behind limits, answers made from copies of
 * the board.
 *
 * Read-only; it can change nothing and block nothing. Paths: route.c.
 * Limits: header 8 KiB, no body, 64 connections, 5 s to send a request, 10 s idle. Must not know
 * settings, processes or training. */
#ifndef CONVOY_SERVE_SERVE_H
#define CONVOY_SERVE_SERVE_H

#include <stdint.h>

#include "base/board.h"
#include "base/status.h"

struct event_base;
struct serve;
struct view;

struct serve_config {
    struct event_base *loop;
    const struct board *board;
    const char *addr;  /* STATUS_ADDR */
    int port;          /* STATUS_PORT; -1: any free port (tests), serve_port tells */
    const char *hosts; /* HOSTS: names beside this machine's own; NULL: none */
    const char *own;   /* one more; NULL: none */
    int64_t hang_ms;   /* progress older than this is a hang for /livez */
    /* adds nodes and peers to the view of an answer; NULL: nobody knows more than the board */
    void (*fill)(void *arg, struct view *view);
    void *fill_arg;
    const struct log_tail *tail; /* this process's lines of log; NULL: none are shown */
    const char *settings;        /* a line of JSON, for /settings; NULL: none */
    const char *archive_path;    /* where the history is kept over restarts; NULL or "": nowhere */
};

/* serve_open — a taken port or a bad address: ST_BAD_SETTING with both and what to do. Ignores
 * SIGPIPE from here on. */
enum status serve_open(const struct serve_config *config, struct serve **out);
/* serve_await_poll — the end is on the board: who has asked for /status in the last seconds (a
 * page, a script that polls) hears of it before the voice is gone, within a second or so. Runs the
 * loop; `fill` is not called any more. Accepts NULL. */
void serve_await_poll(struct serve *serve);
void serve_close(struct serve *serve); /* accepts NULL */
int serve_port(const struct serve *serve);

#endif
