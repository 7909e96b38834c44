/* linger — lets others see how a run ended: writes its last sentence to the file whose content
 * `kubectl describe pod` shows, and keeps answering HTTP for a while (LINGER), so that Prometheus
 * and the person it alerts still see it. Must not know what is served. */
#ifndef CONVOY_NODE_LINGER_H
#define CONVOY_NODE_LINGER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/time.h>

#include "base/status.h"
#include "conf/conf.h"

struct event_base;

/* made by the kubelet, which reads at most 4096 bytes */
#define LINGER_TERMINATION_LOG "/dev/termination-log"

/* Writes "exit code N: SENTENCE" to the file at path, only if it already is a regular file. Makes
 * no file and reports nothing. */
void linger_write_termination(const char *path, int code, const char *sentence);
/* linger_text — the setting and where it comes from, for people: "LINGER=60s, Kubernetes". Returns
 * out. Called here, and for tests. */
const char *linger_text(const struct conf *conf, char *out, size_t cap);
/* Runs the event loop until SIGTERM, SIGINT, SIGHUP or, if takes_usr1, SIGUSR1, except those that
 * are ignored, or for at most `limit`; NULL: without a limit. false: signals cannot be watched, and
 * the loop did not run. */
bool linger_until_signal(struct event_base *loop, bool takes_usr1, const struct timeval *limit);
/* linger_run — log how the run ended (st, with its sentence in status_message, which it clears),
 * then run the event loop for LINGER, or until SIGTERM, SIGINT, SIGHUP or SIGUSR1. Returns at once
 * where these signals cannot be watched: nothing could end the wait earlier. */
void linger_run(struct event_base *loop, const struct conf *conf, enum status st);

#endif
