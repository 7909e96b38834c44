/* supervisor_upload — CHECKPOINT_DIR in a bucket, on node 0: the workers start after the download,
 * and the run ends after the last upload. See supervisor/inside.h and bucket/uploader.h. */
#include "node/supervisor/inside.h"

#include <signal.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "node/bucket/uploader.h"
#include "train/trainer/stop_request.h"

#define LOOK_MS 50
/* the status server writes the end of the curves within this time; then they are uploaded */
#define CURVES_MS 700
#define LOG_AFTER_MS 2000

enum status supervisor_upload_open(struct supervisor *s)
{
    const char *dir = conf_text(s->conf, CONF_CHECKPOINT_DIR),
               *name = conf_given(s->conf, CONF_CHECKPOINT_DIR);
    if (s->is_check || s->node.node_id != 0 || strcmp(dir, name) == 0)
        return ST_OK;
    const struct uploader_config config = {
        .name = name,
        .dir = dir,
        .keep = (int)conf_i64(s->conf, CONF_CHECKPOINT_KEEP),
        .allows_local = conf_i64(s->conf, CONF_ALLOW_LOCAL_URLS) != 0,
        .is_new_run = conf_i64(s->conf, CONF_RESUME) == CONF_RESUME_NEVER,
    };
    TRY(uploader_open(&config, &s->uploader));
    text_copy(s->node.upload.bucket, sizeof s->node.upload.bucket, name);
    s->node.upload.failures = s->node.upload.dropped = 0;
    board_node_publish(s->board, &s->node);
    return ST_OK;
}

/* publish_stats — publishes the numbers of the uploads if they changed. */
static void publish_stats(struct supervisor *s, const struct uploader_stats *stats)
{
    struct board_upload *shown = &s->node.upload;
    if (shown->step == stats->step && shown->bytes_waiting == stats->waiting_bytes &&
        shown->failures == stats->failures && shown->dropped == stats->dropped &&
        strcmp(shown->error, stats->error) == 0)
        return;
    shown->step = stats->step;
    shown->bytes_waiting = stats->waiting_bytes;
    shown->failures = stats->failures;
    shown->dropped = stats->dropped;
    text_copy(shown->error, sizeof shown->error, stats->error);
    board_node_publish(s->board, &s->node);
}

/* fail_upload — fails as the uploader did. Another owner of the prefix is a wrong setting: no
 * scheduler may start this run again. */
static enum status fail_upload(const struct uploader_stats *stats)
{
    return FAIL(stats->st == ST_DISAGREE ? ST_BAD_SETTING : stats->st, "%s", stats->error);
}

enum status supervisor_upload_tick(struct supervisor *s, bool *is_ready_out)
{
    struct uploader_stats stats;
    *is_ready_out = true;
    if (s->uploader == NULL)
        return ST_OK;
    uploader_read(s->uploader, &stats);
    publish_stats(s, &stats);
    *is_ready_out = stats.phase != UPLOADER_PHASE_DOWNLOAD;
    if (stats.phase != UPLOADER_PHASE_FAILED)
        return ST_OK;
    return fail_upload(&stats);
}

/* ---- the end ---- */

/* The wait for the last upload. */
struct wait {
    struct supervisor *s;
    int64_t begin_ms, end_ms;
    int64_t missing_step, missing_bytes; /* as uploader_missing; step -1: only records */
    bool has_finished, has_logged;
    struct uploader_stats stats;
};

static void on_look(evutil_socket_t fd, short what, void *arg)
{
    (void)fd, (void)what;
    struct wait *w = arg;
    struct supervisor *s = w->s;
    const int64_t now_ms = clock_ms();
    char left[32];
    if (!w->has_finished && (s->serve == NULL || now_ms - w->begin_ms >= CURVES_MS)) {
        w->has_finished = true;
        uploader_finish(s->uploader);
    }
    uploader_read(s->uploader, &w->stats);
    publish_stats(s, &w->stats);
    const bool is_done =
        w->stats.phase == UPLOADER_PHASE_DONE || w->stats.phase == UPLOADER_PHASE_FAILED;
    if (!is_done && !w->has_logged && now_ms - w->begin_ms >= LOG_AFTER_MS) {
        uploader_missing(s->uploader, &w->missing_step, &w->missing_bytes);
        w->has_logged = true;
        if (w->missing_step >= 0)
            LOG_INFO("%s of the checkpoint of step %lld are not in %s yet: waiting for its upload "
                     "(UPLOAD_TIMEOUT=%s); a second SIGINT or SIGTERM ends the wait%s%s",
                     text_format_bytes(left, sizeof left, (double)w->missing_bytes),
                     (long long)w->missing_step, s->node.upload.bucket,
                     conf_text(s->conf, CONF_UPLOAD_TIMEOUT),
                     w->stats.error[0] ? "; the last attempt: " : "", w->stats.error);
    }
    if (is_done || s->ends_at_once || (w->has_finished && now_ms >= w->end_ms))
        event_base_loopbreak(s->loop);
}

void supervisor_upload_signal(struct supervisor *s, int signal_n, enum board_request request)
{
    if (signal_n != SIGTERM && signal_n != SIGINT && signal_n != SIGHUP)
        return;
    s->signalled = request;
    s->signalled_ms = clock_ms();
    if (s->was_asked) {
        s->ends_at_once = true;
        s->stop = request;
        event_base_loopbreak(s->loop);
        return;
    }
    s->was_asked = true;
    LOG_INFO("%s: the last upload goes on; a second SIGINT or SIGTERM ends it immediately",
             stop_request_signal(request));
}

/* fail_missing — fails with a sentence about the upload that is missing. */
static void fail_missing(const struct supervisor *s, const struct wait *w)
{
    const struct uploader_stats *stats = &w->stats;
    char what[96] = "the ledger of the run is", missing[96] = "", why[64];
    if (w->missing_step >= 0) {
        char left[32];
        text_format(what, sizeof what, "the checkpoint of step %lld is",
                    (long long)w->missing_step);
        text_format(missing, sizeof missing, ", %lld bytes (%s) are missing",
                    (long long)w->missing_bytes,
                    text_format_bytes(left, sizeof left, (double)w->missing_bytes));
    }
    if (s->ends_at_once)
        text_copy(why, sizeof why, "because of a second signal");
    else
        text_format(why, sizeof why, "after UPLOAD_TIMEOUT=%s",
                    conf_text(s->conf, CONF_UPLOAD_TIMEOUT));
    (void)FAIL(ST_STORE,
               "%s not in %s %s%s; it is in %s, and the same command on this machine uploads it"
               "%s%s",
               what, s->node.upload.bucket, why, missing, conf_text(s->conf, CONF_CHECKPOINT_DIR),
               stats->error[0] ? "; the last attempt: " : "", stats->error);
}

/* wait_for_upload — serves HTTP until everything is uploaded, UPLOAD_TIMEOUT is over, or a second
 * signal comes. */
static void wait_for_upload(struct supervisor *s, struct wait *w)
{
    static const struct timeval every = {.tv_usec = LOOK_MS * 1000};
    struct event *look = event_new(s->loop, -1, EV_PERSIST, on_look, w);
    s->is_uploading = true;
    if (s->node.checkpoint.step >= 0)
        uploader_notice(s->uploader, s->node.checkpoint.step); /* the last tick may be before it */
    on_look(-1, 0, w);
    if (look != NULL && event_add(look, &every) == 0 && w->stats.phase != UPLOADER_PHASE_DONE)
        event_base_dispatch(s->loop);
    if (look != NULL)
        event_free(look);
    s->is_uploading = false;
}

enum status supervisor_upload_finish(struct supervisor *s, enum status st)
{
    struct wait w = {.s = s, .begin_ms = clock_ms()};
    struct status_saved why;
    if (s->uploader == NULL)
        return st;
    status_save(&why);
    w.end_ms = w.begin_ms + conf_i64(s->conf, CONF_UPLOAD_TIMEOUT);
    uploader_read(s->uploader, &w.stats);
    const bool has_begun = w.stats.phase == UPLOADER_PHASE_UPLOAD;
    if (has_begun && !s->ends_at_once) {
        cluster_bridge_end(s->bridge); /* the other nodes have been informed */
        wait_for_upload(s, &w);
    }
    const bool is_missing = has_begun && w.stats.phase != UPLOADER_PHASE_DONE;
    if (is_missing)
        uploader_missing(s->uploader, &w.missing_step, &w.missing_bytes);
    uploader_close(s->uploader);
    s->uploader = NULL;
    status_restore(&why);
    if (!is_missing)
        return st;
    if (w.stats.phase == UPLOADER_PHASE_FAILED) {
        if (st != ST_OK) {
            LOG_WARN("%s", w.stats.error);
            return st;
        }
        st = fail_upload(&w.stats);
        supervisor_set_result(s, st);
        return st;
    }
    const enum status_group group = status_group(st);
    fail_missing(s, &w);
    if (group == STATUS_GROUP_NONE || group == STATUS_GROUP_STOP) {
        /* a scheduler starts a stopped run again, but not one whose storage failed */
        st = s->ends_at_once ? stop_request_status(s->stop) : st == ST_OK ? ST_STORE : st;
        supervisor_set_result(s, st);
        return st;
    }
    LOG_WARN("%s", status_message());
    status_restore(&why);
    return st;
}
