/* status_client — `convoy status [URL]`: fetch a node's /status (libcurl) and show it for
 * people. */
#ifndef CONVOY_SERVE_STATUS_CLIENT_H
#define CONVOY_SERVE_STATUS_CLIENT_H

#include <stdbool.h>

#include "base/status.h"

/* status_client_main — url "" means http://127.0.0.1:port. Healthy: ST_OK; unhealthy, failed, or
 * not reachable: ST_UNHEALTHY, saying which. 5 s limit, http and https only, no redirects, at most
 * 4 MiB. as_json: the raw answer. */
enum status status_client_main(const char *url, int port, bool as_json, bool has_colour);

#endif
