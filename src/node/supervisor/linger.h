/* linger — makes the end of a run visible from outside: writes its last message to the file whose
 * content `kubectl describe pod` shows, and keeps answering HTTP for a while (LINGER), so that
 * Prometheus and the person it alerts still see it. Must not know the contents that are served. */
#ifndef CONVOY_NODE_LINGER_H
#define CONVOY_NODE_LINGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/time.h>

#include "base/status.h"
#include "conf/conf.h"

struct event_base;

/* created by the kubelet, which reads at most 4096 bytes */
#define LINGER_TERMINATION_LOG "/dev/termination-log"

/* linger_write_termination — writes "exit code N: MESSAGE" to the file at path, but only if it
 * already is a regular file. Creates no file and reports no error. */
void linger_write_termination(const char *path, int code, const char *sentence);
/* linger_text — writes the setting and its source for messages: "LINGER=60s, Kubernetes". Returns
 * out. Public for tests. */
const char *linger_text(const struct conf *conf, char *out, size_t cap);
/* linger_until_signal — runs the event loop until SIGTERM, SIGINT, SIGHUP or, if handles_usr1,
 * SIGUSR1 arrives, except for ignored signals, or for at most `limit`; NULL: no limit. Returns
 * false if signals cannot be watched; then the loop did not run. */
bool linger_until_signal(struct event_base *loop, bool handles_usr1, const struct timeval *limit);
/* linger_run — logs how the run ended (st, with its message in status_message, which it clears),
 * then runs the event loop for LINGER, or until SIGTERM, SIGINT, SIGHUP or SIGUSR1. Returns
 * immediately if these signals cannot be watched, because nothing could end the wait earlier. */
void linger_run(struct event_base *loop, const struct conf *conf, enum status st);

#endif
