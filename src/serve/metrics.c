/* metrics — see metrics.h. */
#include "serve/metrics.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static void add_head(struct text *t, const char *name, const char *help)
{
    text_add(t, "# HELP convoy_%s %s\n# TYPE convoy_%s %s\n", name, help, name,
             text_ends(name, "_total") ? "counter" : "gauge");
}

/* Adds one metric. NAN means "unknown" and is omitted; a diverged loss shows in phase and error. */
static void add_one(struct text *t, const char *name, const char *help, double value)
{
    add_head(t, name, help);
    if (isinf(value))
        text_add(t, "convoy_%s %sInf\n", name, value > 0 ? "+" : "-");
    else if (!isnan(value))
        text_add(t, "convoy_%s %s\n", name, text_f64(value).text);
}

/* Adds a metric's sample of a rank or a node. */
static void add_sample(struct text *t, const char *name, const char *label, int id, double value)
{
    if (isfinite(value))
        text_add(t, "convoy_%s{%s=\"%d\"} %s\n", name, label, id, text_f64(value).text);
}

/* Adds the metrics from `first` to `last`. */
static void add_stats(struct text *t, const double *stats, int first, int last)
{
    for (int i = first; i <= last; i++) {
        const struct view_stat_text *text = &view_stat_texts[i];
        const bool is_ms = strcmp(text->kind, "milliseconds") == 0;
        add_one(t, text->metric, text->help, is_ms ? stats[i] / 1000 : stats[i]);
    }
}

static void add_node(struct text *t, const struct view *view)
{
    char reason[64];
    add_head(t, "info", "Its labels describe this node; always 1.");
    text_add(t, "convoy_info{node=\"%d\"", (int)view->node.node_id);
    text_add_label(t, "version", view->node.version);
    text_add_label(t, "backend", view_backend(view));
    text_add_label(t, "device", view_device(view));
    text_add_label(t, "model", view_model(view)->name);
    text_add_label(t, "task", view_model(view)->task);
    text_add(t, "} 1\n");
    add_head(t, "phase", "1 for the phase this node is in, 0 for the others.");
    for (int phase = 0; phase < BOARD_PHASE_N; phase++)
        text_add(t, "convoy_phase{phase=\"%s\"} %d\n", board_phase_text((enum board_phase)phase),
                 phase == (int)view->phase);
    add_one(t, "live", "1 when /livez answers 200.", view_is_live(view, reason, sizeof(reason)));
    add_one(t, "ready", "1 when /readyz answers 200.", view_is_ready(view, reason, sizeof(reason)));
    const struct board_error *error = view_error(view);
    if (view_is_over(view))
        add_one(t, "exit_code",
                "Exit code of the run that has ended; 0: done. Missing before the end.",
                error != NULL ? error->code : 0);
}

/* ADD_kind — adds a number of the job, from the lowest rank of this node that has published one. */
#define ADD_COUNT(field, ...) add_one(t, __VA_ARGS__, rank_stats_count(worker->field));
#define ADD_NUMBER(field, ...) add_one(t, __VA_ARGS__, worker->field);
#define ADD_REMAINING(field, ...) add_one(t, __VA_ARGS__, rank_stats_remaining(worker->field));
#define ADD_TIMES(...) add_stats(t, stats, VIEW_STEP_LAST, VIEW_STEP_P95);

static void add_job(struct text *t, const struct view *view, const double *stats)
{
    const struct board_worker *worker = view_numbers(view);
    add_stats(t, stats, VIEW_NODES, VIEW_STEP);
#define JOB_STAT(NAME, field, kind, curve, metric, help) ADD_##kind(field, metric, help)
#include "base/rank_stats.def"
    add_stats(t, stats, VIEW_PARAMETERS, VIEW_LOSS_RECOVERY);
}

/* A metric of ranks, GPUs or machines. name NULL: the number is no metric. */
struct row {
    bool is_gpu;
    const char *name, *help, *kind; /* kind: "COUNT", "NUMBER" or "MS" */
    size_t at;                      /* position of the number in its struct */
};

static double row_value(const struct row *row, const void *numbers)
{
    const void *at = (const char *)numbers + row->at;
    return row->kind[0] == 'C' ? rank_stats_count(*(const int64_t *)at)
                               : *(const double *)at / (row->kind[0] == 'M' ? 1000 : 1);
}

/* Adds the metrics of ranks and of this node's GPUs. Without a GPU, the latter have no head. */
static void add_ranks(struct text *t, const struct view *view)
{
    static const struct row rows[] = {
#define RANK_STAT(NAME, field, kind, curve, metric, help) \
    {false, metric, help, #kind, offsetof(struct view_peer, field)},
#include "base/rank_stats.def"
#define GPU_STAT(field, kind, key, metric, help) \
    {true, metric, help, #kind, offsetof(struct board_gpu, field)},
#include "base/rank_stats.def"
    };
    bool has_gpu = false;
    for (const struct row *row = rows; row < rows + sizeof rows / sizeof *rows; row++) {
        if (row->name == NULL || (row->is_gpu && !has_gpu))
            continue;
        add_head(t, row->name, row->help);
        for (int i = 0; i < view_ranks(view); i++) {
            struct view_peer peer;
            view_peer(view, i, &peer);
            has_gpu = has_gpu || peer.gpu != NULL;
            const void *numbers = row->is_gpu ? (const void *)peer.gpu : &peer;
            if (numbers != NULL)
                add_sample(t, row->name, "rank", peer.rank, row_value(row, numbers));
        }
    }
}

/* Adds this node's machine, and on node 0 the machines of all nodes. */
static void add_machines(struct text *t, const struct view *view)
{
    static const struct row rows[] = {
#define MACHINE_STAT(field, kind, key, metric, help) \
    {false, metric, help, #kind, offsetof(struct machine_stats, field)},
#include "base/rank_stats.def"
    };
    for (const struct row *row = rows; row < rows + sizeof rows / sizeof *rows; row++) {
        add_head(t, row->name, row->help);
        if (view->nodes_n == 0)
            add_sample(t, row->name, "node", view->node.node_id, row_value(row, &view->machine));
        for (int i = 0; i < view->nodes_n; i++)
            add_sample(t, row->name, "node", view->nodes[i].node_id,
                       row_value(row, &view->nodes[i].machine));
    }
}

static void write_all(const struct view *view, struct text *t)
{
    double stats[VIEW_STATS_N];
    view_stats(view, stats);
    add_node(t, view);
    add_job(t, view, stats);
    add_ranks(t, view);
    add_machines(t, view);
    /* Summed over this node's workers; only in a job of several nodes. */
    int64_t sum = 0;
    for (int i = 0; i < view->workers_n; i++)
        sum += view->workers[i].call.refused;
    add_one(t, "data_connections_refused_total",
            "Connections closed and messages dropped by this node's workers, because no rank of "
            "the job had proved to be their sender. None on a single node.",
            view->node.n_nodes > 1 ? rank_stats_count(sum) : NAN);
    /* For alerts: which nodes are missing, and since when. */
    if (view->nodes_n != 0) {
        add_head(t, "node_up", "1 while the node takes part.");
        for (int i = 0; i < view->nodes_n; i++)
            add_sample(t, "node_up", "node", view->nodes[i].node_id,
                       strcmp(view->nodes[i].state, "joined") == 0);
        add_head(t, "node_heartbeat_age_seconds",
                 "Time since the node's last heartbeat. None before the first one.");
        for (int i = 0; i < view->nodes_n; i++)
            add_sample(t, "node_heartbeat_age_seconds", "node", view->nodes[i].node_id,
                       view->nodes[i].heartbeat_age_seconds);
    }
    if (view->door.is_there)
        add_stats(t, stats, VIEW_DOOR_STRANGERS, VIEW_DOOR_TURNED_AWAY);
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
    for (char *rest = plain.data, *line; (line = strsep(&rest, "\n")) != NULL && *line != 0;) {
        if (line[0] != '#') {
            const size_t name_n = strcspn(line, "{ ");
            text_add(t, "%.*s{", (int)name_n, line);
            text_add_label(t, "run", view->node.run); /* before its other labels */
            text_add(t, line[name_n] == '{' ? "," : "}");
            line += name_n + (line[name_n] == '{');
        }
        text_add(t, "%s\n", line);
    }
    text_free(&plain);
}

void metrics_write_markdown(const char *check_metrics, struct text *t)
{
    struct text all = {0};
    struct view *view = view_new_complete();
    view->check_metrics = check_metrics;
    write_all(view, &all);
    text_add(t, "| metric | type | labels | meaning |\n|---|---|---|---|\n");
    for (char *rest = all.data, *line = strsep(&rest, "\n"); line != NULL && line[0] == '#';) {
        char *help = line + strlen("# HELP ");
        const char *name = strsep(&help, " "), *type = strrchr(strsep(&rest, "\n"), ' ') + 1;
        text_add(t, "| `%s` | %s | ", name, type);
        line = strsep(&rest, "\n");
        /* The labels of the first sample. */
        for (const char *at = line[0] == '#' ? NULL : strchr(line, '{'); at != NULL;
             at = strchr(at + 1, ','))
            text_add(t, "%s`%.*s`", *at == '{' ? "" : ", ", (int)strcspn(at + 1, "="), at + 1);
        text_add(t, " | %s |\n", help);
        while (line != NULL && line[0] == 'c')
            line = strsep(&rest, "\n");
    }
    text_free(&all);
    free(view);
}
