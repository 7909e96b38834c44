/* stored_runs — see stored_runs.h.
 *
 * A run of an earlier version has curves and no record; its status is made from the last point of
 * the curves. The same happens if the record is damaged, with a warning. */
#include "serve/stored_runs.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "serve/archive.h"
#include "serve/history.h"
#include "serve/journal.h"
#include "serve/report.h"

#define FILE_NAME "history.json"

/* The properties by which a changed file is recognised. */
struct identity {
    ino_t inode;
    off_t bytes;
    struct timespec changed;
};

struct stored_run {
    const char *dir; /* the caller's name of the folder; borrowed */
    struct identity identity;
    bool has_failed; /* the file could not be opened at the last try */
    struct history history;
    struct text status, settings, log; /* answers; status empty: no record */
    /* the same for a browser without scripts, limited to its content */
    struct board_node node;
    struct board_worker worker;
};

struct stored_runs {
    struct text list; /* the answer of /runs */
    int n;
    struct stored_run run[];
};

/* ---- writing a file ---- */

static int min_int(int a, int b) { return a < b ? a : b; }

/* Removes the last n bytes. */
static void drop_end(struct text *t, size_t n)
{
    t->len -= t->len < n ? t->len : n;
    if (t->data != NULL)
        t->data[t->len] = 0;
}

void stored_runs_write(struct view *view, struct text *t)
{
    view->peers_n = min_int(view->peers_n, STORED_RUNS_RANKS);
    view->nodes_n = min_int(view->nodes_n, STORED_RUNS_RANKS);
    history_write(view->history, t);
    drop_end(t, sizeof("}\n") - 1);
    text_add(t, ",\"record\":{\"written\":%.3f,\"status\":", (double)view->wall_ms / 1000);
    report_write(view, t);
    drop_end(t, sizeof("\n") - 1);
    text_add(t, ",\"settings\":%s",
             view->settings != NULL ? view->settings : "{\"settings\":[]}\n");
    drop_end(t, sizeof("\n") - 1);
    struct text log = {0};
    journal_write(view->journal, &log);
    text_add(t, ",\"log\":");
    json_quote_text(t, log.len > 0 ? log.data : "");
    t->overflow = t->overflow || log.overflow;
    text_free(&log);
    text_add(t, "}}\n");
}

/* ---- reading a file ---- */

static enum status refuse_folder(const char *dir, int error)
{
    if (error == ENOENT)
        return FAIL(ST_NO_INPUT,
                    "%s is not the folder of a run: it has no %s, which node 0 keeps in "
                    "CHECKPOINT_DIR unless STATUS_PORT is 0; give a run's CHECKPOINT_DIR",
                    dir, FILE_NAME);
    return FAIL(ST_NO_INPUT, "cannot read %s/%s: %s", dir, FILE_NAME,
                error == ELOOP ? "it is a symbolic link, which may lead anywhere; copy the file"
                               : strerror(error));
}

/* Opens the run's file without following a link in the folder, and without waiting for a FIFO. */
static enum status open_file(const char *dir, int *fd_out, struct stat *info)
{
    const int dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        return FAIL(ST_NO_INPUT, "cannot open the folder %s: %s; give a run's CHECKPOINT_DIR", dir,
                    strerror(errno));
    const int fd = openat(dir_fd, FILE_NAME, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    int error = fd < 0 ? errno : 0;
    close(dir_fd);
    if (error == 0 && fstat(fd, info) != 0)
        error = errno;
    enum status st = error != 0 ? refuse_folder(dir, error) : ST_OK;
    if (st == ST_OK && !S_ISREG(info->st_mode))
        st = FAIL(ST_NO_INPUT, "%s/%s is not a regular file; give a run's CHECKPOINT_DIR", dir,
                  FILE_NAME);
    if (st == ST_OK && (size_t)info->st_size > ARCHIVE_BYTES_MAX)
        st = FAIL(ST_BAD_DATA, "%s/%s has %lld bytes, and a run's has %zu at most", dir, FILE_NAME,
                  (long long)info->st_size, ARCHIVE_BYTES_MAX);
    if (st == ST_OK)
        *fd_out = fd;
    else if (fd >= 0)
        close(fd);
    return st;
}

/* Reads the file's current bytes, at most ARCHIVE_BYTES_MAX; the caller frees *out. */
static enum status read_bytes(const char *dir, int fd, struct text *out)
{
    char chunk[1 << 14];
    ssize_t got;
    *out = (struct text){.limit = ARCHIVE_BYTES_MAX};
    while ((got = read(fd, chunk, sizeof chunk)) > 0 && !out->overflow)
        text_add_bytes(out, chunk, (size_t)got);
    if (got < 0)
        return FAIL(ST_STORE, "cannot read %s/%s: %s", dir, FILE_NAME, strerror(errno));
    if (out->overflow)
        return FAIL(ST_BAD_DATA, "%s/%s grew beyond %zu bytes while it was read", dir, FILE_NAME,
                    ARCHIVE_BYTES_MAX);
    return ST_OK;
}

/* ---- interpreting it ---- */

static bool is_kind(const cJSON *object, const char *key, int kinds)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    return item != NULL && (item->type & 0xFF & kinds) != 0;
}

/* Refuses a status whose members have other types than the page expects. */
static enum status check_status(const cJSON *status)
{
    static const struct {
        const char *key;
        int kinds;
    } members[] = {{"phase", cJSON_String},
                   {"run", cJSON_String | cJSON_NULL},
                   {"node_id", cJSON_Number},
                   {"n_nodes", cJSON_Number},
                   {"step", cJSON_Number | cJSON_NULL},
                   {"steps", cJSON_Number | cJSON_NULL},
                   {"uptime_seconds", cJSON_Number | cJSON_NULL},
                   {"model", cJSON_Object},
                   {"mesh", cJSON_Object},
                   {"step_ms", cJSON_Object},
                   {"checkpoint", cJSON_Object},
                   {"ranks", cJSON_Array},
                   {"nodes", cJSON_Array},
                   {"error", cJSON_Object | cJSON_NULL}};
    static const char *const lists[] = {"ranks", "nodes"};
    const cJSON *item;
    for (size_t i = 0; i < sizeof members / sizeof *members; i++)
        if (!is_kind(status, members[i].key, members[i].kinds))
            return FAIL(ST_BAD_DATA, "its status has no \"%s\" of the right type", members[i].key);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        cJSON_ArrayForEach(item, cJSON_GetObjectItemCaseSensitive(status, lists[i])) if (
            !cJSON_IsObject(item)) return FAIL(ST_BAD_DATA,
                                               "its status has %s that are not objects", lists[i]);
    return ST_OK;
}

static enum status add_json(const cJSON *item, struct text *out)
{
    char *json = cJSON_PrintUnformatted(item);
    if (json == NULL)
        return FAIL(ST_RETRY, "out of memory: the record of a run");
    *out = (struct text){.limit = 2 * ARCHIVE_BYTES_MAX};
    text_add(out, "%s\n", json);
    cJSON_free(json);
    return ST_OK;
}

static enum status read_record(struct stored_run *run, const cJSON *record)
{
    cJSON *status = cJSON_GetObjectItemCaseSensitive(record, "status");
    const cJSON *settings = cJSON_GetObjectItemCaseSensitive(record, "settings");
    const double written = json_number(record, "written");
    if (!(written > 0 && written < 1e11))
        return FAIL(ST_BAD_DATA, "it does not have the time at which it was written");
    TRY(check_status(status));
    const cJSON *item, *list = cJSON_GetObjectItemCaseSensitive(settings, "settings");
    if (!cJSON_IsArray(list))
        return FAIL(ST_BAD_DATA, "its settings are not a list");
    cJSON_ArrayForEach(
        item,
        list) if (!is_kind(item, "name", cJSON_String) || !is_kind(item, "value", cJSON_String) ||
                  !is_kind(item, "source", cJSON_String)) return FAIL(ST_BAD_DATA,
                                                                      "one of its settings lacks a "
                                                                      "name, a value or a source");
    cJSON_DeleteItemFromObjectCaseSensitive(status, "recorded");
    json_add_number(status, "recorded", written);
    TRY(add_json(settings, &run->settings));
    text_add(&run->log, "%s", json_text(record, "log"));
    /* Copies the run's name, phase, end and steps from its last status. */
    const cJSON *error = cJSON_GetObjectItemCaseSensitive(status, "error");
    const double code = json_number(error, "code"), steps = json_number(status, "steps");
    const enum board_phase phase = board_phase_named(json_text(status, "phase"));
    text_copy(run->node.run, sizeof run->node.run, json_text(status, "run"));
    run->node.phase = phase < BOARD_PHASE_N ? phase : run->node.phase;
    run->worker.steps = steps >= 0 && steps < 9e15 ? (int64_t)steps : -1;
    run->node.error.code = code > 0 && code < 256 ? (int)code : 0;
    text_copy(run->node.error.message, sizeof run->node.error.message, json_text(error, "message"));
    return add_json(status, &run->status);
}

/* Makes the essentials from the curves: each number is a curve's last one. */
static void derive_essentials(struct stored_run *run)
{
    const struct history *h = &run->history;
    struct board_worker *worker = &run->worker;
    run->node = (struct board_node){
        .n_nodes = 1, .started_ms = 1, .resume_step = -1, .phase = BOARD_PHASE_STARTING};
    run->node.checkpoint.step = run->node.peer_copy.step = -1;
    run->node.recovery_ms = run->node.checkpoint_every = -1;
    *worker = (struct board_worker){
#define JOB_STAT(NAME, field, kind, ...) RANK_STATS_UNKNOWN_##kind(field)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
        .checkpoint = {.step = -1, .failures = -1, .skipped = -1, .stall_ms = NAN, .save_ms = NAN},
        .peer_copy = {.step = -1},
    };
    for (int i = 0; i < h->points_n; i++) {
        const struct history_point *point = &h->points[i];
        worker->step = point->step >= 0 ? point->step : worker->step;
#define SET_NUMBER(field, value) worker->field = value;
#define SET_MS SET_NUMBER
#define SET_TIMES(field, value)        \
    worker->field[0] = (float)(value); \
    worker->field##_n = 1;
#define SET_IF_NONE(NAME, field, kind)
#define SET_IF_MEAN(NAME, field, kind)                         \
    if (isfinite(point->values[HISTORY_CURVE_##NAME])) {       \
        SET_##kind(field, point->values[HISTORY_CURVE_##NAME]) \
    }
#define SET_IF_LAST SET_IF_MEAN
#define JOB_STAT(NAME, field, kind, curve, ...) SET_IF_##curve(NAME, field, kind)
#define RANK_STAT JOB_STAT
#include "base/rank_stats.def"
    }
    for (int64_t i = h->events_n > HISTORY_EVENTS ? h->events_n - HISTORY_EVENTS : 0;
         i < h->events_n; i++) {
        const struct history_event *event = &h->events[i % HISTORY_EVENTS];
        const enum board_phase phase = board_phase_named(event->text);
        if (strcmp(event->kind, "phase") == 0 && phase < BOARD_PHASE_N)
            run->node.phase = phase;
    }
}

static void free_texts(struct stored_run *run)
{
    text_free(&run->status);
    text_free(&run->settings);
    text_free(&run->log);
}

/* Fills a run that is all zero except for dir. */
static enum status parse_run(struct stored_run *run, const char *bytes, size_t n)
{
    cJSON *root = NULL;
    TRY(history_read(bytes, n, &run->history));
    derive_essentials(run);
    TRY(json_parse(bytes, n, "the history", &root));
    const cJSON *record = cJSON_GetObjectItemCaseSensitive(root, "record");
    if (record != NULL && read_record(run, record) != ST_OK) {
        LOG_WARN("%s/%s: the last status of the run is not shown: %s", run->dir, FILE_NAME,
                 status_message());
        status_clear();
        free_texts(run);
        derive_essentials(run);
    }
    cJSON_Delete(root);
    return ST_OK;
}

static enum status read_run(struct stored_run *run, int fd)
{
    struct text bytes;
    enum status st = read_bytes(run->dir, fd, &bytes);
    if (st == ST_OK && parse_run(run, bytes.len > 0 ? bytes.data : "", bytes.len) != ST_OK)
        st = FAIL(ST_BAD_DATA, "%s/%s is damaged or not a run's: %s", run->dir, FILE_NAME,
                  status_message());
    text_free(&bytes);
    return st;
}

/* Reads the run again if its file has changed. If the file cannot be read or interpreted, the run
 * stays as it was. */
static enum status refresh_run(struct stored_run *run)
{
    struct stat info;
    int fd = -1;
    TRY(open_file(run->dir, &fd, &info));
    const struct identity now = {info.st_ino, info.st_size, info.st_mtim};
    struct stored_run *fresh =
        (now.inode == run->identity.inode && now.bytes == run->identity.bytes &&
         now.changed.tv_sec == run->identity.changed.tv_sec &&
         now.changed.tv_nsec == run->identity.changed.tv_nsec)
            ? NULL
            : memory_new(1, sizeof *fresh);
    enum status st = ST_OK;
    if (fresh != NULL) {
        fresh->dir = run->dir;
        st = read_run(fresh, fd);
        free_texts(st == ST_OK ? run : fresh);
        if (st == ST_OK)
            *run = *fresh;
        run->identity = now; /* a damaged file is reported once */
    }
    free(fresh);
    close(fd);
    return st;
}

/* ---- the list ---- */

enum status stored_runs_open(char *const *dirs, int n, struct stored_runs **out)
{
    if (n > STORED_RUNS_MAX)
        return FAIL(ST_USAGE, "view shows %d runs at most, but %d folders are given",
                    STORED_RUNS_MAX, n);
    struct stored_runs *runs = memory_new(1, sizeof *runs + (size_t)n * sizeof runs->run[0]);
    enum status st = ST_OK;
    for (int i = 0; i < n && st == ST_OK; i++) {
        runs->run[runs->n++].dir = dirs[i];
        st = refresh_run(&runs->run[i]);
    }
    if (st == ST_OK) {
        char quoted[6 * FILE_PATH_MAX + 3];
        text_add(&runs->list, "{\"runs\":[");
        for (int i = 0; i < runs->n; i++) {
            json_quote(quoted, sizeof quoted, runs->run[i].dir);
            text_add(&runs->list, "%s{\"path\":\"/runs/%d\",\"folder\":%s}", i > 0 ? "," : "", i,
                     quoted);
        }
        text_add(&runs->list, "]}\n");
        *out = runs;
    } else {
        stored_runs_close(runs);
    }
    return st;
}

void stored_runs_close(struct stored_runs *runs)
{
    for (int i = 0; runs != NULL && i < runs->n; i++)
        free_texts(&runs->run[i]);
    if (runs != NULL)
        text_free(&runs->list);
    free(runs);
}

/* Returns the path after /runs/I, and I; the whole path and 0 if it does not begin with /runs/I. */
static const char *split_path(const struct stored_runs *runs, const char *path, int *run_i_out)
{
    char digits[8];
    int64_t run_i;
    const char *number = path + strlen("/runs/");
    *run_i_out = 0;
    if (!text_starts(path, "/runs/"))
        return path;
    const size_t n = strcspn(number, "/");
    if (n >= sizeof digits || number[n] != '/')
        return path;
    text_format(digits, sizeof digits, "%.*s", (int)n, number);
    if (text_parse_i64(digits, 0, runs->n - 1, &run_i) != TEXT_OK)
        return path;
    *run_i_out = (int)run_i;
    return number + n;
}

const char *stored_runs_view(struct stored_runs *runs, const char *path, struct view *out)
{
    int run_i;
    const char *rest = split_path(runs, path, &run_i);
    struct stored_run *run = &runs->run[run_i];
    const bool had_failed = run->has_failed;
    run->has_failed = refresh_run(run) != ST_OK;
    if (run->has_failed && !had_failed)
        LOG_WARN("%s; the page shows the run as it was read before", status_message());
    status_clear();
    const struct history *h = &run->history;
    memset(out, 0, sizeof *out);
    out->node = run->node;
    out->phase = run->node.phase;
    out->now_ms = h->points_n > 0 ? h->points[h->points_n - 1].at_ms - h->offset_ms + 1 : 1;
    out->machine = machine_stats_unknown();
    out->first_worker = &run->worker;
    out->history = h;
    out->settings = run->settings.data;
    out->status_json = run->status.data;
    out->log_text = run->log.data != NULL ? run->log.data : "";
    out->runs_json = runs->list.data;
    return rest;
}

#ifdef FUZZ
#include "base/assert.h"

/* Checks that a status that is served has the form that the page expects. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct stored_run run;
    memset(&run, 0, sizeof run);
    run.dir = "fuzz";
    if (parse_run(&run, (const char *)data, size) == ST_OK && run.status.data != NULL) {
        cJSON *root = NULL;
        ASSERT(json_parse(run.status.data, run.status.len, "status", &root) == ST_OK);
        ASSERT(check_status(root) == ST_OK);
        cJSON_Delete(root);
    }
    free_texts(&run);
    return 0;
}
#endif
