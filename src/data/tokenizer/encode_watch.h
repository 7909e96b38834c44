/* encode_watch — lets a long encoding be stopped from inside. It must not know the encoded data. */
#ifndef CONVOY_DATA_ENCODE_WATCH_H
#define CONVOY_DATA_ENCODE_WATCH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

struct encode_watch {
    bool (*goes_on)(void *arg); /* called by the thread that encodes, many times a second */
    void *arg;
};

/* encode_watch_check — fails ST_RETRY if the encoding must stop. watch: NULL allowed. */
static inline enum status encode_watch_check(const struct encode_watch *watch)
{
    return watch == NULL || watch->goes_on(watch->arg) ? ST_OK
                                                       : FAIL(ST_RETRY, "stopped while tokenising");
}

#endif
