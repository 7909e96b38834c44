/* plan_report — see plan_report.h: the text. JSON: plan_json.c. */
#include "plan/plan_report.h"

#include <math.h>
#include <string.h>

#define BAR_MAX 30     /* columns of a bar for a whole step */
#define STAGES_SHOWN 4 /* columns of memory */
#define BETTER 0.02    /* from this gain on, another way is shown */

static const char *const shard_words[] = {
    [LAYOUT_SHARD_NONE] = "none",           [LAYOUT_SHARD_OPTIMIZER] = "optimizer",
    [LAYOUT_SHARD_GRADIENTS] = "gradients", [LAYOUT_SHARD_FULL] = "full",
    [LAYOUT_SHARD_HYBRID] = "hybrid",       [LAYOUT_SHARD_AUTO] = "auto"};

const char *plan_report_shard(enum layout_shard shard) { return shard_words[shard]; }

static int axis_of(const struct plan_job *job, enum mesh_axis axis)
{
    int n = job->config.step.axis_ranks[axis];
    return n > 0 ? n : 1;
}

/* Adds "TP=2 PP=1 … GLOBAL_BATCH=64", in the form of a user's settings. */
static void add_settings(const struct plan_job *job, struct text *out)
{
    const struct step_config *s = &job->config.step;
    char word[32];
    text_add(out, "TP=%d PP=%d CP=%d", axis_of(job, MESH_AXIS_TENSOR),
             axis_of(job, MESH_AXIS_PIPELINE), axis_of(job, MESH_AXIS_CONTEXT));
    if (s->pipe_chunks > 1)
        text_add(out, " PP_CHUNKS=%d", s->pipe_chunks);
    text_add(out, " SHARD=%s RECOMPUTE=%s BATCH_SIZE=%lld GLOBAL_BATCH=%lld",
             shard_words[s->store.shard], model_recompute_text(s->recompute, word, sizeof word),
             (long long)s->batch_samples, (long long)s->global_samples);
    if (s->dims.adapter.r > 0)
        text_add(out, " LORA=%lld", (long long)s->dims.adapter.r);
}

/* ---- head ---- */

static const char *device_word(const struct plan_job *job)
{
    return job->cluster->is_gpu ? "GPU" : "worker";
}

/* ---- memory ---- */

static const int64_t *bytes_of(const struct plan_report *r, int stage)
{
    const struct memory_plan *plan = &r->memory->stage[stage];
    return r->job->cluster->is_gpu ? plan->device : plan->host;
}

/* Returns the stage number of a column: the first ones, the last one and the fullest one. */
static int choose_stage(const struct plan_memory *m, int column)
{
    int columns = m->stages < STAGES_SHOWN ? m->stages : STAGES_SHOWN;
    if (column == columns - 1)
        return m->stages - 1;
    if (column == columns - 2 && m->fullest > column && m->fullest < m->stages - 1)
        return m->fullest;
    return column;
}

static void add_memory_row(const struct plan_report *r, int kind, struct text *out)
{
    char bytes[32];
    int columns = r->memory->stages < STAGES_SHOWN ? r->memory->stages : STAGES_SHOWN;
    text_add(out, "  %-26s",
             kind < MEMORY_PLAN_N ? memory_plan_text((enum memory_plan_kind)kind) : "all");
    for (int i = 0; i < columns; i++) {
        const int64_t *of = bytes_of(r, choose_stage(r->memory, i));
        int64_t n = kind < MEMORY_PLAN_N ? of[kind] : memory_plan_sum(of);
        text_add(out, " %12s", text_format_bytes(bytes, sizeof bytes, (double)n));
    }
    text_add(out, "\n");
}

static bool is_used(const struct plan_report *r, int kind)
{
    for (int stage = 0; stage < r->memory->stages; stage++)
        if (bytes_of(r, stage)[kind] > 0)
            return true;
    return false;
}

#define BASE_BYTES (11.9 * 1024 * 1024)
#define NODE_BYTES (31.0 * 1024)  /* bytes of a node with one worker */
#define WORKER_BYTES (2.2 * 1024) /* bytes of each further worker */
/* processor seconds of one heartbeat; each node sends one per second */
#define HEARTBEAT_SECONDS 0.000094

struct plan_control plan_report_control(int nodes, int locals)
{
    return (struct plan_control){
        .bytes = (int64_t)(BASE_BYTES + nodes * (NODE_BYTES + (locals - 1) * WORKER_BYTES)),
        .cores = nodes * HEARTBEAT_SECONDS};
}

/* Returns the most bytes of a worker's copies, which differ between stages. 0: there are none, or
 * they cannot be planned. */
static int64_t peer_copies_each(const struct plan_job *job)
{
    struct mesh mesh;
    struct memory_plan_place place;
    int64_t most = 0, each = 0;
    if (plan_job_mesh(job, &mesh) != ST_OK)
        return 0;
    for (int stage = 0; stage < mesh.size[MESH_AXIS_PIPELINE]; stage++) {
        plan_job_place(job, &mesh, stage, &place);
        if (memory_plan_peer_copies(&job->config, &place, &each) != ST_OK)
            return 0;
        most = each > most ? each : most;
    }
    return most;
}

void plan_report_loss(const struct plan_report *r, struct loss_cost *out)
{
    const struct plan_job *job = r->job;
    const struct plan_estimate *e = r->estimate;
    int64_t each = 0;
    if (job->config.peer_copies == PEER_COPY_MODE_AUTO)
        each = peer_copies_each(job);
    for (int stage = 0; each == 0 && stage < r->memory->stages; stage++)
        each = r->memory->stage[stage].host[MEMORY_PLAN_PEER_COPIES];
    *out = (struct loss_cost){.nodes = job->at.nodes,
                              .copy_every = each > 0 ? e->protection.copy_every : 0,
                              .copy_bytes = each * job->at.locals,
                              .checkpoint_every =
                                  job->config.checkpoint_dir[0] ? job->config.checkpoint_every : 0,
                              .step_ms = e->time.step_ms,
                              .recovery_ms = NAN};
}

/* Adds a line about copies in peers' memory, which are omitted if memory is short. */
static void add_peer_copies(const struct plan_job *job, struct text *out)
{
    const int64_t each = peer_copies_each(job);
    char bytes[32];
    if (each == 0)
        return;
    text_add(
        out,
        "  copies in peers' memory (PEER_COPIES=auto) use %s%s more of a node, if that is free\n",
        axis_of(job, MESH_AXIS_PIPELINE) > 1 ? "up to " : "",
        text_format_bytes(bytes, sizeof bytes, (double)(each * job->at.locals)));
}

static void add_memory(const struct plan_report *r, struct text *out)
{
    const struct plan_memory *m = r->memory;
    char need[32], have[32];
    text_add(out, m->stages > 1 ? "\nMemory of a %-16s" : "\nMemory of a %s", device_word(r->job));
    char name[16];
    int columns = m->stages < STAGES_SHOWN ? m->stages : STAGES_SHOWN;
    for (int i = 0; m->stages > 1 && i < columns; i++) {
        text_format(name, sizeof name, "stage %d", choose_stage(m, i));
        text_add(out, " %12s", name);
    }
    text_add(out, "\n");
    for (int kind = 0; kind < MEMORY_PLAN_N; kind++)
        if (is_used(r, kind))
            add_memory_row(r, kind, out);
    add_memory_row(r, MEMORY_PLAN_N, out);
    text_add(out, "  %s needs %s of %s (%.0f %%)\n",
             r->job->cluster->is_gpu ? "the fullest GPU" : "a node",
             text_format_bytes(need, sizeof need, (double)m->need_bytes),
             text_format_bytes(have, sizeof have, (double)m->have_bytes),
             100.0 * (double)m->need_bytes / (double)m->have_bytes);
    if (r->job->cluster->is_gpu)
        text_add(out, "  a node's host needs %s\n",
                 text_format_bytes(need, sizeof need, (double)m->host_bytes));
    add_peer_copies(r->job, out);
    const struct plan_control control = plan_report_control(r->job->at.nodes, r->job->at.locals);
    char bytes[32];
    if (r->job->at.nodes >= PLAN_REPORT_CONTROL_NODES)
        text_add(out, "  node 0 also needs %s and %.2f of a core for the heartbeats of %d nodes\n",
                 text_format_bytes(bytes, sizeof bytes, (double)control.bytes), control.cores,
                 r->job->at.nodes);
}

/* ---- time ---- */

static void add_time_row(const char *text, double ms, double all, struct text *out)
{
    char time[32], bar[BAR_MAX + 1];
    int n = (int)lround(BAR_MAX * ms / all);
    memset(bar, '#', sizeof bar);
    bar[n < 0 ? 0 : n < BAR_MAX ? n : BAR_MAX] = 0;
    text_add(out, "  %-26s %12s %6.1f %%%s%s\n", text, text_format_ms(time, sizeof time, ms),
             100 * ms / all, bar[0] ? "  " : "", bar);
}

/* Adds a line about the assumptions in the time of copies and checks. */
static void add_assumptions(const struct plan_protection *p, struct text *out)
{
    const bool has_copies = p->copy_every > 0, has_checks = p->sentinel_ms > 0;
    if (!has_copies && !has_checks)
        return;
    text_add(out, "  copies and checks are assumed, not measured: ");
    if (has_copies)
        text_add(out, "copies at %g GB/s%s", PLAN_COPY_BYTES_PER_SECOND / 1e9,
                 has_checks ? ", " : "\n");
    if (has_checks)
        text_add(out, "a wait of %g ms in each step (SENTINEL_EVERY)\n", PLAN_SENTINEL_WAIT_MS);
}

static void add_time(const struct plan_report *r, struct text *out)
{
    const struct plan_time *t = &r->estimate->time;
    char time[32];
    text_add(out, "\nTime of a step\n");
    for (int kind = 0; kind < PLAN_TIME_N; kind++)
        if (t->ms[kind] > 0)
            add_time_row(plan_time_text((enum plan_time_kind)kind), t->ms[kind], t->step_ms, out);
    text_add(out, "  %-26s %12s\n", "all", text_format_ms(time, sizeof time, t->step_ms));
    if (t->lacks_own_forward || t->lacks_own_backward)
        text_add(out,
                 "  own kernels compute attention %s: the cluster has no rate for them\n"
                 "  (%s), so the time follows from its key attention\n",
                 !t->lacks_own_backward  ? "forward"
                 : !t->lacks_own_forward ? "backward"
                                         : "forward and backward",
                 !t->lacks_own_backward  ? "attention_own_forward"
                 : !t->lacks_own_forward ? "attention_own_backward"
                                         : "attention_own_forward, attention_own_backward");
    if (plan_time_shares_cores(r->job->cluster, r->job->at.locals))
        text_add(out,
                 "  %d workers of %d thread%s share %d core%s: they take turns, so steps vary\n",
                 r->job->at.locals, r->job->cluster->threads_n,
                 r->job->cluster->threads_n == 1 ? "" : "s", r->job->cluster->cores,
                 r->job->cluster->cores == 1 ? "" : "s");
    add_assumptions(&r->estimate->protection, out);
    if (t->comm_hidden_ms > 0)
        text_add(out, "  %s of communication overlaps computation\n",
                 text_format_ms(time, sizeof time, t->comm_hidden_ms));
}

/* Adds memory and step time of the same job without an adapter. */
static void add_whole(const struct plan_report *r, struct text *out)
{
    const struct plan_whole *whole = r->whole;
    char need[32], time[32];
    text_add(out, "\nAll weights instead of an adapter (LORA=0)\n  %s needs %s",
             r->job->cluster->is_gpu ? "the fullest GPU" : "a node",
             text_format_bytes(need, sizeof need, (double)whole->memory.need_bytes));
    if (!whole->fits)
        text_add(out, ", which does not fit\n");
    else
        text_add(out, ", a step %s: %.2f times as long\n",
                 text_format_ms(time, sizeof time, whole->step_ms),
                 whole->step_ms / r->estimate->time.step_ms);
}

/* Adds the total of TOKENS or STEPS; of a billion tokens if neither is set. */
static void add_total(const struct plan_report *r, struct text *out)
{
    const struct plan_cluster *c = r->job->cluster;
    const bool is_set = r->tokens > 0;
    const double all = is_set ? r->tokens : 1e9;
    char tokens[32], span[32], number[32];
    double seconds = all / r->estimate->tokens_per_second,
           hours = seconds / 3600 * r->job->at.ranks;
    text_add(out, "%s%s tokens: %s, %s %s hours", is_set ? "" : "each ",
             is_set ? text_format_count(tokens, sizeof tokens, all) : "1B",
             text_format_span(span, sizeof span, (int64_t)(fmin(seconds, 1e13) * 1e3)),
             text_format_count(number, sizeof number, hours), device_word(r->job));
    if (c->price_per_hour > 0)
        text_add(out, ", %s US dollars at %g an hour",
                 text_format_count(number, sizeof number, hours * c->price_per_hour),
                 c->price_per_hour);
    if (c->watts > 0)
        text_add(out, ", %s kWh", text_format_count(number, sizeof number, hours * c->watts / 1e3));
    text_add(out, "%s\n", is_set ? "" : "; set TOKENS for the whole training, such as TOKENS=300B");
}

/* ---- better jobs ---- */

static const char *name_node(int n, char *out, size_t cap)
{
    static const char *const words[] = {"second", "third", "fourth", "fifth"};
    if (n >= 2 && n <= 5)
        text_format(out, cap, "the %s node", words[n - 2]);
    else
        text_format(out, cap, "node %d", n);
    return out;
}

/* Adds the gain of the last node over the others. */
static void add_less(const struct plan_report *r, struct text *out)
{
    const struct plan_advice_nodes *less = &r->advice->less;
    const int nodes = r->job->at.nodes;
    char node[32];
    if (!less->is_known)
        return;
    const double gain = less->speed_ratio - 1;
    text_add(out, "  %s makes it %.0f %% %s (%.0f %% more %ss)%s\n",
             name_node(nodes, node, sizeof node), 100 * fabs(gain), gain < 0 ? "slower" : "faster",
             100.0 / (nodes - 1), device_word(r->job),
             plan_search_is_worth(less->speed_ratio, nodes) ? "" : ": do not rent it");
}

/* Adds the last line: yes or no to one more node, and the gain from which on it is worth its
 * price. */
static void add_another(const struct plan_report *r, struct text *out)
{
    const struct plan_job *job = r->job;
    const struct plan_cluster *c = job->cluster;
    const struct plan_advice_nodes *more = &r->advice->more;
    const int nodes = job->at.nodes + 1;
    const long long samples = (long long)job->config.step.global_samples;
    const double adds = 100.0 / (nodes - 1), gain = more->speed_ratio - 1;
    text_add(out, "\nAnother node: ");
    if (more->is_known)
        text_add(
            out, "%s, N_NODES=%d is %.0f %% %s for %.0f %% more %ss; worth it from %.0f %% on\n",
            plan_search_is_worth(more->speed_ratio, nodes) ? "yes" : "no", nodes, 100 * fabs(gain),
            gain < 0 ? "slower" : "faster", adds, device_word(job), adds * PLAN_SEARCH_WORTH);
    else if (c->across.bytes_per_second <= 0)
        text_add(out, "no, %s has no link between nodes (\"across\")\n", c->name);
    else if ((c->nodes > 0 && nodes > c->nodes) || nodes > PLAN_CLUSTER_NODES_MAX)
        text_add(out, "no, %s has %d\n", c->nodes > 0 ? c->name : "a plan",
                 c->nodes > 0 ? c->nodes : PLAN_CLUSTER_NODES_MAX);
    else if (nodes > PLAN_SEARCH_NODES_MAX)
        text_add(out,
                 "not searched with %d nodes or more, where one node is a small part; set "
                 "N_NODES=%d to plan it\n",
                 PLAN_SEARCH_NODES_MAX + 1, nodes);
    else
        text_add(out,
                 "no, with N_NODES=%d no mesh fits GLOBAL_BATCH=%lld, the layers and the memory; "
                 "plan it with N_NODES=%d GLOBAL_BATCH=%lld\n",
                 nodes, samples, nodes, (samples + nodes - 2) / (nodes - 1) * nodes);
}

static void add_better(const struct plan_report *r, struct text *out)
{
    const struct plan_search *s = &r->advice->search;
    text_add(out, "\nWhat would be better\n");
    double gain = s->found_n > 0
                      ? s->estimate[0].tokens_per_second / r->estimate->tokens_per_second - 1
                      : 0,
           fastest = s->fastest_tokens_per_second / r->estimate->tokens_per_second - 1;
    if (gain >= BETTER) {
        text_add(out, "  ");
        add_settings(&s->job[0], out);
        text_add(out, ": %.0f %% faster\n", 100 * gain);
    } else if (fastest >= BETTER) {
        text_add(out, "  ways that are less simple are %.0f %% faster at most on these %ss\n",
                 100 * fastest, device_word(r->job));
    } else {
        text_add(out, "  no other mesh, RECOMPUTE or BATCH_SIZE is %.0f %% faster on these %ss\n",
                 100 * BETTER, device_word(r->job));
    }
    add_less(r, out);
}

/* Adds the results of MESH=auto. */
static void add_search(const struct plan_report *r, struct text *out)
{
    char time[32];
    text_add(out, "\nThe fastest of %d ways on %d meshes, the simplest first within %.0f %%\n",
             r->search->tried_n, r->search->meshes_n, 100 * PLAN_SEARCH_NEAR);
    for (int i = 0; i < r->search->found_n; i++) {
        const struct plan_estimate *e = &r->search->estimate[i];
        text_add(out, "  %9s  MFU %4.1f %%  ", text_format_ms(time, sizeof time, e->time.step_ms),
                 100 * e->mfu);
        add_settings(&r->search->job[i], out);
        text_add(out, "\n");
    }
}

void plan_report_text(const struct plan_report *r, struct text *out)
{
    const struct plan_job *job = r->job;
    const struct step_config *s = &job->config.step;
    text_add(out, "%s (%lld layers, %lld wide) on %s: %d node%s of %d %s%s, products in %s\n",
             s->dims.name, (long long)s->dims.layers, (long long)s->dims.embed, job->cluster->name,
             job->at.nodes, job->at.nodes == 1 ? "" : "s", job->at.locals, device_word(job),
             job->at.locals == 1 ? "" : "s", plan_cluster_precision(job->precision));
    add_settings(job, out);
    text_add(out, "\nSEQ_LEN=%lld", (long long)s->seq_tokens);
    if (r->estimate)
        text_add(out, ": %lld micro-batch%s a step", (long long)r->estimate->passes,
                 r->estimate->passes == 1 ? "" : "es");
    text_add(out, "\n");
    add_memory(r, out);
    if (!r->estimate)
        return;
    add_time(r, out);
    char all[32], each[32];
    const struct plan_estimate *e = r->estimate;
    text_add(out, "\n%s tokens/s, %s of them on each %s; MFU %.1f %%\n",
             text_format_count(all, sizeof all, e->tokens_per_second),
             text_format_count(each, sizeof each, e->tokens_per_second / r->job->at.ranks),
             device_word(r->job), 100 * e->mfu);
    struct loss_cost loss;
    char line[LOSS_COST_TEXT];
    plan_report_loss(r, &loss);
    text_add(out, "%s\n", loss_cost_text(&loss, line, sizeof line));
    add_total(r, out);
    if (r->whole)
        add_whole(r, out);
    if (r->search)
        add_search(r, out);
    if (r->advice && !r->search)
        add_better(r, out);
    if (r->advice && r->search && r->advice->less.is_known) {
        text_add(out, "\nFewer nodes\n");
        add_less(r, out);
    }
    if (r->advice)
        add_another(r, out);
}
