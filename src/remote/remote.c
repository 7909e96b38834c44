/* remote — see remote.h. */
#include "remote/remote.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "remote/bucket.h"
#include "remote/fetch.h"
#include "remote/hub.h"
#include "remote/hub_name.h"
#include "remote/s3.h"

static bool is_address(const char *value)
{
    return strncasecmp(value, "http://", 7) == 0 || strncasecmp(value, "https://", 8) == 0;
}

bool remote_is_name(const char *value)
{
    return hub_name_is(value) || s3_address_is(value) || is_address(value);
}

enum status remote_pin(const struct remote_config *config, const char *value, const cJSON *recorded,
                       cJSON *used, struct text *out)
{
    for (const char *at = value, *stop;; at = stop + 1) {
        stop = strchrnul(at, ',');
        char *name = memory_text(at);
        name[stop - at] = '\0';
        enum status st = ST_OK;
        if (hub_name_is(name))
            st = hub_pin(config, name, recorded, used, out);
        else
            text_add(out, "%s", name);
        free(name);
        TRY(st);
        if (*stop == '\0')
            return ST_OK;
        text_add(out, ",");
    }
}

enum status remote_fetch(const struct remote_config *config, enum remote_kind kind,
                         const char *name, char path_out[FILE_PATH_MAX],
                         char revision_out[REMOTE_REVISION_MAX])
{
    revision_out[0] = '\0';
    if (!is_address(name) && strstr(name, "#sha256=") != NULL)
        return FAIL(ST_BAD_SETTING,
                    "%s=%.400s: only http:// and https:// addresses accept #sha256=; leave it out",
                    config->setting, name);
    if (hub_name_is(name))
        return hub_fetch(config, kind, name, path_out, revision_out);
    if (s3_address_is(name))
        return bucket_fetch(config, name, path_out);
    const struct fetch_config fetch = {.setting = config->setting,
                                       .cache_dir = config->cache_dir,
                                       .allows_local = config->allows_local,
                                       .progress = config->progress,
                                       .progress_arg = config->progress_arg,
                                       .retry_ms = config->retry_ms};
    return fetch_file(&fetch, name, path_out);
}
