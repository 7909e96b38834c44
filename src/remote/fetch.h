/* fetch — downloads one file from an http(s) address into CACHE_DIR and keeps it there.
 *
 *   - A broken transfer is resumed (Range, If-Range) when the server's ETag or date and the total
 *     length show that the file is the same; else it begins again. Temporary failures are retried.
 *   - A transfer slower than the least rate over a minute is broken off and retried. Attempts that
 *     together stay below that rate are counted, and FETCH_TRIES of them are the end.
 *   - A body of unknown length has a bound of its own.
 *   - "#sha256=HEX" at the end of the address is compared with the file at every start.
 *   - 429 and 503: waits as long as Retry-After or RateLimit requests, at most FETCH_WAIT_MAX_MS,
 *     plus jitter.
 *   - At most 5 redirects, to http and https only; from https to https only. A token is sent to the
 *     host, port and scheme of the address only.
 *   - Connections go to public addresses only, unless local ones are allowed. The address of the
 *     connection itself is checked, so neither a name nor a redirect gets around it. For the same
 *     reason the environment's proxies are used only if local addresses are allowed.
 *   - The file appears complete, by rename. Of several processes that want it, one fetches it.
 *
 * It must not know the contents of the files. */
#ifndef CONVOY_REMOTE_FETCH_H
#define CONVOY_REMOTE_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#define FETCH_BYTES_MAX ((int64_t)1 << 40)
/* Most bytes of a body without a length; also at most half of the free space in CACHE_DIR. */
#define FETCH_UNKNOWN_MAX ((int64_t)64 << 30)
#define FETCH_SLOW_MS 60000 /* the time over which the least rate is measured */
#define FETCH_RATE_MIN 4096 /* bytes/s */
#define FETCH_CONNECT_MS 30000
#define FETCH_TRIES 5 /* in a row below the least rate */
/* The longest Retry-After that is obeyed; after a longer one the next try would be too late. */
#define FETCH_WAIT_MAX_MS 600000

/* A file of a hub: its place, and the differences from a plain address. */
struct fetch_hub {
    const char *path;        /* the file; its folder exists */
    const char *partial_dir; /* folder of incomplete files, in the same file system; it exists */
    const char *token;       /* for the host of the address only; "": none */
    bool is_fresh;           /* requests the file also if it is there, and replaces it */
    /* Called after an HTTP error, with its code and X-Error-Code, or "". ST_OK: fetch decides. */
    enum status (*refuse)(void *arg, long code, const char *error_code);
    void *refuse_arg;
};

struct fetch_config {
    const char *setting; /* "MODEL" …, for messages; NULL: "DATA" */
    const char *cache_dir;
    bool allows_local;
    /* NULL allowed; returns false to stop: then ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
    /* 0: the defaults above */
    int64_t bytes_max, unknown_max, slow_ms, rate_min, retry_ms;
    /* NULL: a plain address, kept in CACHE_DIR/downloads. Else the file may be empty, and it is
     * compared with the SHA-256 in X-Linked-Etag, if there is one. */
    const struct fetch_hub *hub;
};

/* fetch_file — blocks until the file is complete at path_out. Fails ST_BAD_SETTING: not an http(s)
 * address, or a local one; ST_NO_INPUT: the file is missing; ST_BAD_DATA: another checksum, or too
 * large; ST_STORE: no space in CACHE_DIR; ST_RETRY: no answer, or cut off. */
enum status fetch_file(const struct fetch_config *config, const char *url,
                       char path_out[FILE_PATH_MAX]);

#endif
