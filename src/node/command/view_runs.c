/* view_runs — `convoy view DIR [DIR ...]`: serves the page of runs from their folders. The server,
 * the paths and the page are the same as for a run that trains; only the answers come from files.
 * Must not depend on the contents of the files. */
#include <string.h>

#include <event2/event.h>

#include "base/log.h"
#include "base/secure.h"
#include "node/command.h"
#include "node/supervisor/linger.h"
#include "serve/serve.h"
#include "serve/stored_runs.h"

/* open_server — opens the server: on 127.0.0.1 unless STATUS_ADDR is set. If STATUS_PORT is not set
 * and its default port is in use, as it is next to a run that trains, it uses any free port. */
static enum status open_server(const struct conf *conf, const char *token, struct event_base *loop,
                               struct stored_runs *runs, struct serve **out)
{
    const int port = (int)conf_i64(conf, CONF_STATUS_PORT);
    struct serve_config config = {
        .loop = loop,
        .stored = runs,
        .addr =
            conf_is_set(conf, CONF_STATUS_ADDR) ? conf_text(conf, CONF_STATUS_ADDR) : "127.0.0.1",
        .port = port,
        .hosts = conf_text(conf, CONF_HOSTS),
        .token = token,
    };
    if (port == 0)
        return FAIL(ST_BAD_SETTING,
                    "STATUS_PORT=0 (%s) means no page, but view shows one; set a port",
                    conf_source(conf, CONF_STATUS_PORT));
    enum status st = serve_open(&config, out);
    if (st == ST_OK || conf_is_set(conf, CONF_STATUS_PORT))
        return st;
    struct status_saved first;
    status_save(&first);
    config.port = -1;
    if (serve_open(&config, out) != ST_OK) {
        status_restore(&first); /* the port was not the reason */
        return st;
    }
    status_clear();
    LOG_INFO("port %d is in use, so the page gets another port; STATUS_PORT sets it", port);
    return ST_OK;
}

enum status view_runs_main(const struct conf *conf, char *const *dirs, int n)
{
    struct stored_runs *runs = NULL;
    struct serve *serve = NULL;
    TRY(stored_runs_open(dirs, n, &runs));
    struct event_base *loop = event_base_new();
    char *token = secure_alloc(CONF_TOKEN_BYTES);
    enum status st;
    if (loop == NULL)
        st = FAIL(ST_RETRY, "cannot open the event loop: no memory or no open files are left");
    else if (token == NULL)
        st = FAIL(ST_RETRY, "out of memory: the token of STATUS_TOKEN_FILE");
    else
        st = conf_token_page(conf, token);
    if (st == ST_OK)
        st = open_server(conf, token, loop, runs, &serve);
    secure_free(token);
    if (st == ST_OK) {
        char url[SERVE_URL_BYTES];
        log_console("page %s", serve_url(serve, url));
        if (!linger_until_signal(loop, false, NULL))
            st = FAIL(ST_RETRY, "cannot watch signals: no memory or no open files are left; free "
                                "some memory, or raise the limit (ulimit -n)");
    }
    serve_close(serve);
    if (loop != NULL)
        event_base_free(loop);
    stored_runs_close(runs);
    return st;
}
