/* status_client — `convoy status [URL]`: fetches a node's /status and prints it. It must not know
 * the board: it sees only the node's answer. */
#ifndef CONVOY_SERVE_STATUS_CLIENT_H
#define CONVOY_SERVE_STATUS_CLIENT_H

#include <stdbool.h>

#include "base/status.h"

/* status_client_main — fetches and prints the status. url "" means http://127.0.0.1:port. token:
 * sent with each request; "": none. Blocks for at most 7 s: 5 s for /status, 2 s for /history. http
 * and https only, no redirects, no proxy, at most 4 MiB. as_json: prints the raw answer. Fails
 * ST_UNHEALTHY: the node is not healthy, has failed, or cannot be reached. */
enum status status_client_main(const char *url, int port, const char *token, bool as_json,
                               bool has_colour);

#endif
