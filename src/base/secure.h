/* secure — memory for secrets. Must not know their use.
 *
 * It is never swapped (locked, if that is allowed), left out of core dumps, zeroed in forked
 * processes, and wiped when it is freed. */
#ifndef CONVOY_BASE_SECURE_H
#define CONVOY_BASE_SECURE_H

#include <stddef.h>

void *secure_alloc(size_t bytes);      /* zeroed, pages of its own; NULL: no memory */
void secure_free(void *secret);        /* accepts NULL */
char *secure_strdup(const char *text); /* a copy of text; NULL: no memory */

#endif
