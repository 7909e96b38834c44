/* memory — how much of the machine's memory this process holds, read at most once a second. Must not know
 * what for. */
#ifndef CONVOY_TRAIN_MEMORY_H
#define CONVOY_TRAIN_MEMORY_H

#include <stdint.h>

struct memory {
    int64_t read_ms; /* when it was read */
    int64_t bytes;
};

int64_t memory_resident(struct memory *memory, int64_t now_ms); /* bytes; -1 unknown (no /proc) */

#endif
