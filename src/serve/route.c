/* route — see route.h. */
#include "serve/route.h"

#include <string.h>

#include "base/json.h"
#include "serve/history.h"
#include "serve/journal.h"
#include "serve/metrics.h"
#include "serve/noscript.h"
#include "serve/page.h"
#include "serve/report.h"

#define ROUTE_JSON "application/json"
/* a data answer is never a page, wherever it is opened */
#define ROUTE_POLICY "default-src 'none'; frame-ancestors 'none'"

/* Sets an error; all errors have one form: {"error":{"code":404,"message":"…"}} */
static void set_error(struct route_answer *out, int code, const char *reason, const char *message)
{
    char quoted[4096];
    json_quote(quoted, sizeof(quoted), message);
    out->code = code;
    out->reason = reason;
    out->content_type = ROUTE_JSON;
    text_free(&out->body);
    text_add(&out->body, "{\"error\":{\"code\":%d,\"message\":%s}}\n", code, quoted);
}

static void answer_status(const struct view *view, struct route_answer *out)
{
    if (view->status_json != NULL)
        text_add_bytes(&out->body, view->status_json, strlen(view->status_json));
    else
        report_write(view, &out->body);
}

static void answer_metrics(const struct view *view, struct route_answer *out)
{
    out->content_type = METRICS_CONTENT_TYPE;
    metrics_write(view, &out->body);
}

static void answer_live(const struct view *view, struct route_answer *out)
{
    char reason[1200];
    if (view_is_live(view, reason, sizeof(reason)))
        text_add(&out->body, "{\"live\":true,\"phase\":\"%s\"}\n", board_phase_text(view->phase));
    else
        set_error(out, 503, "Service Unavailable", reason);
}

static void answer_ready(const struct view *view, struct route_answer *out)
{
    char reason[1200];
    if (view_is_ready(view, reason, sizeof(reason)))
        text_add(&out->body, "{\"ready\":true,\"phase\":\"%s\"}\n", board_phase_text(view->phase));
    else
        set_error(out, 503, "Service Unavailable", reason);
}

static void answer_history(const struct view *view, struct route_answer *out)
{
    history_write(view->history, &out->body);
}

static void answer_csv(const struct view *view, struct route_answer *out)
{
    out->content_type = "text/csv; charset=utf-8";
    history_csv(view->history, &out->body);
}

static void answer_log(const struct view *view, struct route_answer *out)
{
    out->content_type = "text/plain; charset=utf-8";
    text_add(&out->body, "%s", ""); /* an empty answer, not none */
    if (view->log_text != NULL)
        text_add_bytes(&out->body, view->log_text, strlen(view->log_text));
    else
        journal_write(view->journal, &out->body);
}

static void answer_settings(const struct view *view, struct route_answer *out)
{
    text_add(&out->body, "%s", view->settings != NULL ? view->settings : "{\"settings\":[]}\n");
}

static void answer_runs(const struct view *view, struct route_answer *out)
{
    text_add(&out->body, "%s", view->runs_json != NULL ? view->runs_json : "{\"runs\":[]}\n");
}

static void answer_page(const struct view *view, struct route_answer *out)
{
    size_t bytes;
    const char *html = page_html(&bytes);
    const char *mark = memmem(html, bytes, NOSCRIPT_MARK, strlen(NOSCRIPT_MARK));
    const size_t first = mark != NULL ? (size_t)(mark - html) : bytes;
    out->content_type = "text/html; charset=utf-8";
    text_add_bytes(&out->body, html, first);
    noscript_write(view, &out->body); /* with scripts the page fetches everything itself */
    text_add_bytes(&out->body, html + first, bytes - first);
    out->body.overflow |= !page_policy(out->policy, sizeof(out->policy));
}

struct route {
    const char *path;
    void (*answer)(const struct view *view, struct route_answer *out);
};

static const struct route routes[] = {
    {"/", answer_page},           {"/status", answer_status}, {"/history", answer_history},
    {"/history.csv", answer_csv}, {"/log", answer_log},       {"/settings", answer_settings},
    {"/metrics", answer_metrics}, {"/livez", answer_live},    {"/healthz", answer_live},
    {"/readyz", answer_ready},    {"/runs", answer_runs},
};

static const struct route *find_route(const char *path)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(path, routes[i].path) == 0)
            return &routes[i];
    }
    return NULL;
}

bool route_is_probe(const char *path)
{
    const struct route *route = find_route(path);
    return route != NULL && (route->answer == answer_live || route->answer == answer_ready);
}

void route_answer(const char *path, bool is_get, bool has_body, const struct view *view,
                  struct route_answer *out)
{
    *out = (struct route_answer){.code = 200, .reason = "OK", .content_type = ROUTE_JSON};
    const struct route *route = find_route(path);
    text_copy(out->policy, sizeof(out->policy), ROUTE_POLICY);
    if (!is_get) {
        out->allow = "GET, HEAD";
        set_error(out, 405, "Method Not Allowed", "this endpoint is read-only: use GET or HEAD");
    } else if (has_body) {
        set_error(out, 413, "Payload Too Large", "a GET has no body here");
    } else if (route == NULL) {
        set_error(out, 404, "Not Found",
                  "no such path; there are / /status /history /history.csv /log /settings /runs "
                  "/metrics /livez /healthz /readyz");
    } else {
        route->answer(view, out);
        if (out->body.overflow)
            set_error(out, 500, "Internal Server Error", "the answer does not fit into memory");
    }
}

void route_refuse(int code, const char *reason, const char *message, struct route_answer *out)
{
    *out = (struct route_answer){0};
    text_copy(out->policy, sizeof(out->policy), ROUTE_POLICY);
    set_error(out, code, reason, message);
}

void route_free(struct route_answer *answer) { text_free(&answer->body); }
