/* fetch — one file from an http(s) address into CACHE_DIR/downloads, kept there.
 *
 * Resumed where a transfer broke off, when the server can tell that the file is still the same
 * (Range and If-Range by ETag or date); else from the beginning. "#sha256=HEX" at the end of the
 * address is compared with the file, at every start. Redirects lead to http and https only (from
 * https only to https), at most
 * 5. Connections go to public addresses only, unless local ones are allowed: the address that is
 *   connected to is looked at, so neither names nor redirects get around it; for the same reason
 *   the environment's proxies are used only when local addresses are allowed. Temporary failures
 *   are tried again. Files appear whole, by rename; of several processes that want one file, one
 *   fetches it. Must not know what is in the files. */
#ifndef CONVOY_DATA_FETCH_H
#define CONVOY_DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/file.h"
#include "base/status.h"

#define FETCH_BYTES_MAX ((int64_t)1 << 40)
#define FETCH_STALL_MS 60000 /* without a byte; then it is tried again */
#define FETCH_CONNECT_MS 30000
#define FETCH_TRIES 5 /* without progress in between */

struct fetch_config {
    const char *cache_dir;
    bool allows_local;
    /* NULL allowed; false: stop, ST_RETRY */
    bool (*progress)(void *arg, int64_t bytes_done, int64_t bytes_total);
    void *progress_arg;
    /* 0: as above */
    int64_t bytes_max, stall_ms, retry_ms;
};

/* fetch_file — path_out: the file, whole. Fails ST_BAD_SETTING: not such an address, or a closed
 * one; ST_NO_INPUT: not there; ST_BAD_DATA: another checksum, too large; ST_STORE: no room in
 * CACHE_DIR; ST_RETRY: no answer, cut off. */
enum status fetch_file(const struct fetch_config *config, const char *url,
                       char path_out[FILE_PATH_MAX]);

#endif
