/* memory — how much of the machine's memory this process holds, read at most once a second, and how much it may still
 * take. Must not know what for. */
#ifndef CONVOY_TRAIN_MEMORY_H
#define CONVOY_TRAIN_MEMORY_H

#include <stdint.h>

struct memory {
    int64_t read_ms; /* when it was read */
    int64_t bytes;
};

int64_t memory_resident(struct memory *memory, int64_t now_ms); /* bytes; -1 unknown (no /proc) */

/* memory_free — bytes that this process may take without swapping or being killed: what the machine has left, and what
 * the control groups on the way up allow. -1 unknown. */
int64_t memory_free(void);
/* memory_available — MemAvailable of a text like /proc/meminfo, in bytes; -1 not there. Pure. */
int64_t memory_available(const char *meminfo);

#endif
