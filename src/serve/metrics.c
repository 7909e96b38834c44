/* metrics — see metrics.h. */
#include "serve/metrics.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static double seconds(int64_t ms) { return ms >= 0 ? (double)ms / 1000 : NAN; }

static void add_head(struct text *t, const char *name, const char *type, const char *help)
{
    text_add(t, "# HELP convoy_%s %s\n# TYPE convoy_%s %s\n", name, help, name, type);
}

/* Adds one metric. NAN means "unknown" and is omitted; a diverged loss shows in phase and error. */
static void add_one(struct text *t, const char *name, const char *type, const char *help,
                    double value)
{
    add_head(t, name, type, help);
    if (isinf(value))
        text_add(t, "convoy_%s %sInf\n", name, value > 0 ? "+" : "-");
    else if (!isnan(value))
        text_add(t, "convoy_%s %s\n", name, text_f64(value).text);
}

/* Adds a label. It escapes \ and ", as the format requires; bytes that are no printable ASCII
 * become '?'. */
static void add_label(struct text *t, const char *name, const char *value)
{
    text_add(t, "%s=\"", name);
    for (; *value != 0; value++) {
        if (*value == '\\' || *value == '"')
            text_add(t, "\\%c", *value);
        else
            text_add(t, "%c", *value >= 0x20 && *value < 0x7F ? *value : '?');
    }
    text_add(t, "\"");
}

static void add_node(struct text *t, const struct view *view)
{
    char reason[64];
    const struct board_node *node = &view->node;
    add_head(t, "info", "gauge", "What runs here; always 1.");
    text_add(t, "convoy_info{node=\"%d\",", (int)view->node.node_id);
    add_label(t, "version", view->node.version);
    text_add(t, ",");
    add_label(t, "backend", view_backend(view));
    text_add(t, ",");
    add_label(t, "device", view_device(view));
    text_add(t, ",");
    add_label(t, "model", view->first_worker != NULL ? view->first_worker->model.name : "");
    text_add(t, ",");
    add_label(t, "task", view->first_worker != NULL ? view->first_worker->model.task : "");
    text_add(t, "} 1\n");
    add_head(t, "phase", "gauge", "1 for the phase this node is in, 0 for the others.");
    for (int phase = 0; phase < BOARD_PHASE_N; phase++)
        text_add(t, "convoy_phase{phase=\"%s\"} %d\n", board_phase_text((enum board_phase)phase),
                 phase == (int)view->phase);
    add_one(t, "live", "gauge", "1 when /livez answers 200.",
            view_is_live(view, reason, sizeof(reason)));
    add_one(t, "ready", "gauge", "1 when /readyz answers 200.",
            view_is_ready(view, reason, sizeof(reason)));
    const struct board_error *error = view_error(view);
    if (view_is_over(view))
        add_one(t, "exit_code", "gauge", "Exit code of the run that has ended; 0: done.",
                error != NULL ? error->code : 0);
    add_one(t, "nodes", "gauge", "Nodes of the job.", rank_stats_count(node->n_nodes));
    add_one(t, "uptime_seconds", "gauge", "Time since this node started.",
            node->started_ms > 0 ? seconds(view->now_ms - node->started_ms) : NAN);
    add_one(t, "progress_age_seconds", "gauge",
            "Time since the last progress of the slowest worker.",
            seconds(view_progress_age_ms(view)));
    add_one(t, "restarts_total", "counter", "Automatic restarts of the job.",
            rank_stats_count(node->restarts));
}

/* ADD_kind — adds a number of the job, from the lowest rank of this node that has published one. */
#define ADD_COUNT(field, ...) \
    add_one(t, __VA_ARGS__, has ? rank_stats_count(first_worker->field) : NAN);
#define ADD_NUMBER(field, ...) add_one(t, __VA_ARGS__, has ? first_worker->field : NAN);
#define ADD_REMAINING(field, ...) \
    add_one(t, __VA_ARGS__, has ? rank_stats_remaining(first_worker->field) : NAN);
#define ADD_TIMES(field, ...) add_times(t, first_worker, __VA_ARGS__);

static void add_times(struct text *t, const struct board_worker *first_worker, const char *name,
                      const char *type, const char *help)
{
    bool has = first_worker != NULL;
    add_one(t, name, type, help, has ? view_step_ms(first_worker, 0) / 1000 : NAN);
    add_one(t, "step_p50_seconds", "gauge", "Median duration of the last 256 steps.",
            has ? view_step_ms(first_worker, 0.50) / 1000 : NAN);
    add_one(t, "step_p95_seconds", "gauge",
            "95th percentile of the duration of the last 256 steps.",
            has ? view_step_ms(first_worker, 0.95) / 1000 : NAN);
}

static void add_training(struct text *t, const struct board_worker *first_worker)
{
    bool has = first_worker != NULL;
    add_one(t, "step", "gauge", "Steps done.", has ? rank_stats_count(first_worker->step) : NAN);
#define JOB_STAT(NAME, field, kind, curve, metric, type, help) ADD_##kind(field, metric, type, help)
#include "base/rank_stats.def"
    add_one(t, "model_parameters", "gauge", "Parameters of the model.",
            has && first_worker->model.name[0] != 0
                ? rank_stats_count(first_worker->model.parameters)
                : NAN);
    add_one(t, "loading_ratio", "gauge", "Part of the data or weights loaded so far.",
            has && first_worker->loading_total > 0
                ? rank_stats_count(first_worker->loading_done) / (double)first_worker->loading_total
                : NAN);
}

static void add_checkpoint(struct text *t, const struct view *view)
{
    const struct board_checkpoint *newest = view_checkpoint(view),
                                  *last = view->first_worker != NULL
                                              ? &view->first_worker->checkpoint
                                              : NULL;
    double age = newest != NULL ? (double)(view->wall_ms - newest->wall_ms) / 1000 : NAN;
    add_one(t, "checkpoint_step", "gauge", "Step of the last checkpoint.",
            newest != NULL ? rank_stats_count(newest->step) : NAN);
    add_one(t, "checkpoint_age_seconds", "gauge", "Time since the last checkpoint.",
            age < 0 ? 0 : age);
    add_one(t, "checkpoint_failures_total", "counter", "Checkpoints that could not be written.",
            last != NULL ? rank_stats_count(last->failures) : NAN);
    add_one(t, "checkpoint_skipped_total", "counter",
            "Checkpoints skipped because the previous one was still being written.",
            last != NULL ? rank_stats_count(last->skipped) : NAN);
    add_one(t, "checkpoint_stall_seconds", "gauge", "Time that training waited for the last save.",
            last != NULL ? last->stall_ms / 1000 : NAN);
    add_one(t, "checkpoint_save_seconds", "gauge",
            "Duration of the last checkpoint, from its beginning to its commit.",
            last != NULL ? last->save_ms / 1000 : NAN);
}

#define RANK_STAT(NAME, field, kind, ...)                    \
    static double rank_##field(const struct view_peer *peer) \
    {                                                        \
        return RANK_STATS_METRIC_##kind(peer->field);        \
    }
#include "base/rank_stats.def"

static void add_ranks(struct text *t, const struct view *view)
{
    static const struct {
        const char *name, *type, *help;
        double (*value)(const struct view_peer *peer);
    } rows[] = {
#define RANK_STAT(NAME, field, kind, curve, metric, type, help) {metric, type, help, rank_##field},
#include "base/rank_stats.def"
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        add_head(t, rows[row].name, rows[row].type, rows[row].help);
        for (int i = 0; i < view_ranks(view); i++) {
            struct view_peer peer;
            view_peer(view, i, &peer);
            double value = rows[row].value(&peer);
            if (isfinite(value))
                text_add(t, "convoy_%s{rank=\"%d\"} %s\n", rows[row].name, peer.rank,
                         text_f64(value).text);
        }
    }
}

#define GPU_STAT(field, kind, ...)                         \
    static double gpu_##field(const struct board_gpu *gpu) \
    {                                                      \
        return RANK_STATS_METRIC_##kind(gpu->field);       \
    }
#include "base/rank_stats.def"

/* Adds the statistics of this node's GPUs. Without any, the metric names are absent too. */
static void add_gpus(struct text *t, const struct view *view)
{
    static const struct {
        const char *name, *type, *help;
        double (*value)(const struct board_gpu *gpu);
    } rows[] = {
#define GPU_STAT(field, kind, key, metric, type, help) {metric, type, help, gpu_##field},
#include "base/rank_stats.def"
    };
    struct view_peer peer;
    bool has_any = false;
    for (int i = 0; i < view->workers_n; i++)
        has_any = has_any || view->workers[i].has_gpu;
    for (size_t row = 0; has_any && row < sizeof(rows) / sizeof(rows[0]); row++) {
        if (rows[row].name == NULL)
            continue;
        add_head(t, rows[row].name, rows[row].type, rows[row].help);
        for (int i = 0; i < view->workers_n; i++) {
            view_peer(view, i, &peer);
            if (peer.gpu == NULL)
                continue;
            double value = rows[row].value(peer.gpu);
            if (isfinite(value))
                text_add(t, "convoy_%s{rank=\"%d\"} %s\n", rows[row].name, peer.rank,
                         text_f64(value).text);
        }
    }
}

#define MACHINE_STAT(field, kind, ...)                                 \
    static double machine_##field(const struct machine_stats *machine) \
    {                                                                  \
        return RANK_STATS_METRIC_##kind(machine->field);               \
    }
#include "base/rank_stats.def"

static void add_machine_value(struct text *t, const char *name, int node_id, double value)
{
    if (isfinite(value))
        text_add(t, "convoy_%s{node=\"%d\"} %s\n", name, node_id, text_f64(value).text);
}

/* Adds this node's machine, and on node 0 the machines of all nodes. */
static void add_machines(struct text *t, const struct view *view)
{
    static const struct {
        const char *name, *type, *help;
        double (*value)(const struct machine_stats *machine);
    } rows[] = {
#define MACHINE_STAT(field, kind, key, metric, type, help) {metric, type, help, machine_##field},
#include "base/rank_stats.def"
    };
    for (size_t row = 0; row < sizeof(rows) / sizeof(rows[0]); row++) {
        add_head(t, rows[row].name, rows[row].type, rows[row].help);
        if (view->nodes_n == 0)
            add_machine_value(t, rows[row].name, view->node.node_id,
                              rows[row].value(&view->machine));
        for (int i = 0; i < view->nodes_n; i++)
            add_machine_value(t, rows[row].name, view->nodes[i].node_id,
                              rows[row].value(&view->nodes[i].machine));
    }
}

static void write_all(const struct view *view, struct text *t)
{
    add_node(t, view);
    add_training(t, view->first_worker);
    add_checkpoint(t, view);
    /* A copy of this node's first worker, or of the worker before it. */
    const struct board_peer_copy *copy = view_peer_copy(view);
    const bool has = copy->step >= 0;
    add_one(t, "peer_copy_step", "gauge",
            "Step of the newest copy of the state in the memory of peers.",
            has ? rank_stats_count(copy->step) : NAN);
    add_one(t, "peer_copy_bytes", "gauge", "Bytes that a worker copies after each step.",
            has ? rank_stats_count(copy->bytes) : NAN);
    add_one(t, "peer_copy_stall_seconds", "gauge", "Time that training waited for the last copy.",
            has ? copy->ms / 1000 : NAN);
    add_one(t, "peer_copy_bytes_per_second", "gauge", "Speed of the last copy to another node.",
            has ? copy->bytes_per_second : NAN);
    add_ranks(t, view);
    add_gpus(t, view);
    add_machines(t, view);
    /* Summed over this node's workers; only in a job of several nodes. */
    int64_t sum = 0;
    for (int i = 0; i < view->workers_n; i++)
        sum += view->workers[i].call.refused;
    add_one(
        t, "data_connections_refused_total", "counter",
        "Connections to this node's workers, and messages, that did not prove to be the job's, and "
        "were closed or dropped.",
        view->node.n_nodes > 1 ? rank_stats_count(sum) : NAN);
    /* For alerts: which nodes are missing, and since when. */
    if (view->nodes_n != 0) {
        add_head(t, "node_up", "gauge", "1 while the node takes part.");
        for (int i = 0; i < view->nodes_n; i++)
            text_add(t, "convoy_node_up{node=\"%d\"} %d\n", view->nodes[i].node_id,
                     strcmp(view->nodes[i].state, "joined") == 0);
        add_head(t, "node_heartbeat_age_seconds", "gauge", "Time since the node's last heartbeat.");
        for (int i = 0; i < view->nodes_n; i++)
            if (isfinite(view->nodes[i].heartbeat_age_seconds))
                text_add(t, "convoy_node_heartbeat_age_seconds{node=\"%d\"} %s\n",
                         view->nodes[i].node_id,
                         text_f64(view->nodes[i].heartbeat_age_seconds).text);
    }
    /* Connections without the job's key; the metrics' names are a contract. */
    if (view->door.is_there) {
        add_one(t, "door_strangers", "gauge",
                "Connections to MASTER_PORT that have not shown the job's key.",
                rank_stats_count(view->door.strangers_n));
        add_one(t, "door_full", "gauge",
                "1 while there are too many of them, and silent ones are closed.",
                view->door.is_full);
        add_one(t, "door_turned_away_total", "counter",
                "Such connections closed because there were too many.",
                rank_stats_count(view->door.turned_away));
    }
    if (view->check_metrics != NULL)
        text_add(t, "%s", view->check_metrics);
}

void metrics_write(const struct view *view, struct text *t)
{
    struct text plain = {.limit = t->limit};
    if (view->node.run[0] == 0) {
        write_all(view, t);
        return;
    }
    write_all(view, &plain);
    t->overflow = t->overflow || plain.overflow;
    for (const char *line = plain.data; line != NULL && *line != 0;) {
        size_t n = strcspn(line, "\n") + 1;
        if (line[0] == '#')
            text_add_bytes(t, line, n);
        else {
            /* One line, with the label run before its other labels. */
            const char *run = view->node.run;
            size_t name_n = strcspn(line, "{ ");
            bool has_labels = line[name_n] == '{';
            text_add_bytes(t, line, name_n);
            text_add(t, "{");
            add_label(t, "run", run);
            text_add(t, has_labels ? "," : "}");
            name_n += has_labels;
            text_add_bytes(t, line + name_n, n - name_n);
        }
        line += n;
    }
    text_free(&plain);
}
