/* linger — after the end the node goes on answering for a while: what asks every few seconds
 * (Prometheus), and the person it calls, still find what became of the run.
 *
 * Must not know what is served. */
#ifndef CONVOY_NODE_LINGER_H
#define CONVOY_NODE_LINGER_H

#include <stdint.h>

#include "base/status.h"
#include "conf/conf.h"

struct event_base;

/* linger_text — why this run lingers, for people: "LINGER=60s (Kubernetes)". Returns out. */
const char *linger_text(const struct conf *conf, char *out, size_t cap);
/* linger_run — says how the run ended (st, with its sentence in status_message, which is cleared:
 * nothing is left to say), then turns the loop for LINGER, or until SIGTERM, SIGINT, SIGHUP or
 * SIGUSR1. Where these cannot be watched it returns at once: an end that nothing can hasten is
 * worse than none to look at. */
void linger_run(struct event_base *loop, const struct conf *conf, enum status st);

#endif
