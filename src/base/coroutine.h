/* coroutine — functions that take turns with their caller (Conway 1963). One runs from where it
 * stopped until it yields or ends; meanwhile its caller waits.
 *
 * Each has a thread of its own, of which at most one of caller and coroutines runs at a time. So no
 * data that they share needs a lock, and debuggers and sanitizers see ordinary stacks. A turn costs
 * two wake-ups, some ten microseconds. Must not know what runs in turns. */
#ifndef CONVOY_BASE_COROUTINE_H
#define CONVOY_BASE_COROUTINE_H

#include <stdbool.h>

#include "base/status.h"

struct coroutine;

/* coroutine_open — what: what it does, for the sentence of a failure ("computes a part of a
 * layer"). ST_RETRY: there are too many threads.
 * coroutine_close — nothing is begun, or it has ended. Accepts NULL. */
enum status coroutine_open(const char *what, struct coroutine **out);
void coroutine_close(struct coroutine *c);

/* For the owner:
 * _begin   the next _resume starts work(arg). The last one has ended.
 * _resume  runs it until it yields, true, or ends, false.
 * _end     after it ended: what it returned, and its sentence about a failure.
 * For the work itself:
 * _yield   returns in the next _resume. */
void coroutine_begin(struct coroutine *c, enum status (*work)(void *arg), void *arg);
bool coroutine_resume(struct coroutine *c);
enum status coroutine_end(struct coroutine *c);
void coroutine_yield(struct coroutine *c);

#endif
