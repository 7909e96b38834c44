/* plan_link — see plan_link.h. */
#include "plan/plan_link.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"

/* Forms in which gradients travel in every step, in ascending order of their change of the loss. */
#define EVERY_STEP 5
static const struct plan_link_form every_step[EVERY_STEP] = {
    {.compress = GRAD_COMPRESS_KIND_NONE},      {.compress = GRAD_COMPRESS_KIND_BF16},
    {.compress = GRAD_COMPRESS_KIND_INT8},      {.compress = GRAD_COMPRESS_KIND_INT8_ZSTD},
    {.compress = GRAD_COMPRESS_KIND_INT4_ZSTD},
};
#define LOCALS 6
static const int64_t local_steps[LOCALS] = {10, 20, 50, 100, 200, 500};
_Static_assert(EVERY_STEP + 2 * LOCALS == PLAN_LINK_FORMS, "all forms");

/* Processor time of an element in ns, measured on an AVX-512 core (docs/benchmarks.md): a rank
 * packs its own gradient, and unpacks parts and sums; zstd encodes once and decodes twice. */
#define QUANTISE_NS 3.5
#define CODE_NS 4.1

bool plan_link_add(struct plan_link_run *link, const struct plan_link_step *step)
{
    int at = link->seen_n++ - PLAN_LINK_SKIPPED;
    if (at >= 0 && at < PLAN_LINK_STEPS)
        link->step[at] = *step;
    return at == PLAN_LINK_STEPS - 1;
}

static int compare_steps(const void *a, const void *b)
{
    double left = ((const struct plan_link_step *)a)->step_ms,
           right = ((const struct plan_link_step *)b)->step_ms;
    return (left > right) - (left < right);
}

/* Returns the step in the middle by time. Its comm_ms is the least of all steps: in the others a
 * call has waited for a late rank too. */
static struct plan_link_step find_median_step(const struct plan_link_run *link)
{
    struct plan_link_run sorted = *link;
    qsort(sorted.step, PLAN_LINK_STEPS, sizeof sorted.step[0], compare_steps);
    struct plan_link_step step = sorted.step[PLAN_LINK_STEPS / 2];
    for (int i = 0; i < PLAN_LINK_STEPS; i++)
        step.comm_ms = fmin(step.comm_ms, sorted.step[i].comm_ms);
    step.wait_ms = fmax(0, fmin(step.wait_ms, step.step_ms));
    return step;
}

static double exchange_bytes(const struct plan_link_run *link, const struct plan_link_form *f)
{
    const bool is_local = f->local_steps > 0, is_bf16 = f->compress == GRAD_COMPRESS_KIND_BF16;
    const int ranks = is_local ? link->nodes : link->nodes * link->locals;
    const int64_t elems = is_local ? link->params / link->locals : link->params;
    const double share = (double)(link->nodes - 1) / link->nodes;
    /* bytes of an element on the way to its owner, and back */
    const int there = is_bf16 && link->locals == 1 ? 2 : 4, back = is_bf16 ? 2 : 4;
    if (!grad_compress_quantises(f->compress))
        return share * (there + back) * (double)link->params / link->locals;
    return 2 * share * ranks * (double)grad_compress_part_bytes(f->compress, ranks, elems);
}

static double coding_ms(const struct plan_link_run *link, const struct plan_link_form *f)
{
    const double elems = (double)link->params / (f->local_steps > 0 ? link->locals : 1);
    const double ns = grad_compress_quantises(f->compress) ? QUANTISE_NS : 0;
    return elems * (ns + (grad_compress_is_coded(f->compress) ? CODE_NS : 0)) / 1e6;
}

static double wait_share(const struct plan_link_form *f) { return f->wait_ms / f->step_ms; }

static int choose_form(const struct plan_link_form *form, int n)
{
    int fastest = 0;
    for (int i = 0; i < EVERY_STEP; i++) {
        if (wait_share(&form[i]) <= PLAN_LINK_WAIT_MOST)
            return i;
        fastest = form[i].step_ms < form[fastest].step_ms ? i : fastest;
    }
    if (wait_share(&form[fastest]) <= PLAN_LINK_CHANGED_MOST)
        return fastest;
    for (int i = EVERY_STEP; i < n; i++)
        if (wait_share(&form[i]) <= PLAN_LINK_CHANGED_MOST)
            return i;
    return n > EVERY_STEP ? n - 1 : fastest;
}

int plan_link_forms(const struct plan_link_run *link, struct plan_link_form form[PLAN_LINK_FORMS],
                    int *now_out, int *choice_out)
{
    const struct plan_link_step now = find_median_step(link);
    const struct plan_link_form own = {.compress = link->compress};
    const double sending_ms = fmax(now.comm_ms - coding_ms(link, &own), 0.01 * now.comm_ms);
    const double per_ms = fmax((double)now.sent_bytes, 1) / fmax(sending_ms, 1e-6);
    int n = 0;
    for (; n < EVERY_STEP; n++)
        form[n] = every_step[n];
    for (int i = 0; i < LOCALS && link->allows_local_steps; i++) {
        form[n] = every_step[0];
        form[n++].local_steps = local_steps[i];
        form[n] = every_step[EVERY_STEP - 1];
        form[n++].local_steps = local_steps[i];
    }
    *now_out = -1;
    for (int i = 0; i < n; i++) {
        /* Sets the figures that depend on the link. */
        const double bytes = exchange_bytes(link, &form[i]),
                     comm_ms = bytes / per_ms + coding_ms(link, &form[i]),
                     hidden_ms = fmax(0, now.comm_ms - now.wait_ms);
        const double each = form[i].local_steps > 0 ? 1 / (double)form[i].local_steps : 1;
        form[i].sent_bytes = bytes * each;
        form[i].wait_ms = form[i].local_steps > 0 ? comm_ms * each : fmax(0, comm_ms - hidden_ms);
        form[i].step_ms = now.step_ms - now.wait_ms + form[i].wait_ms;
    }
    for (int i = 0; i < EVERY_STEP; i++)
        if (form[i].compress == link->compress) {
            *now_out = i;
            form[i].step_ms = now.step_ms;
            form[i].wait_ms = now.wait_ms;
            form[i].sent_bytes = (double)now.sent_bytes;
        }
    *choice_out = choose_form(form, n);
    return n;
}

/* ---- in words ---- */

static void add_settings(const struct plan_link_form *f, struct text *out)
{
    static const char *const words[GRAD_COMPRESS_KIND_N] = {"none", "bf16",      "int8",
                                                            "int4", "int8-zstd", "int4-zstd"};
    if (f->local_steps > 0)
        text_add(out, "LOCAL_STEPS=%lld", (long long)f->local_steps);
    if (f->local_steps == 0 || f->compress != GRAD_COMPRESS_KIND_NONE)
        text_add(out, "%sCOMPRESS=%s", f->local_steps > 0 ? " " : "", words[f->compress]);
}

static void add_measured(const struct plan_link_run *link, struct text *out)
{
    const struct plan_link_step now = find_median_step(link);
    const double mbits = (double)now.sent_bytes * 8e-3 / fmax(now.comm_ms, 1e-6);
    char step[32], wait[32], sent[32];
    text_add(
        out, "of a step of %s, %s wait for other ranks; this worker sent %s in it, at %.*f Mb/s",
        text_format_ms(step, sizeof step, now.step_ms),
        text_format_ms(wait, sizeof wait, now.wait_ms),
        text_format_bytes(sent, sizeof sent, (double)now.sent_bytes), mbits < 10 ? 1 : 0, mbits);
}

void plan_link_text(const struct plan_link_run *link, struct text *out)
{
    struct plan_link_form form[PLAN_LINK_FORMS];
    int now, choice, n = plan_link_forms(link, form, &now, &choice);
    add_measured(link, out);
    text_add(out, "; expected:");
    for (int i = 0; i < n; i++) {
        if (i >= EVERY_STEP && i != choice)
            continue;
        text_add(out, i > 0 ? ", " : " ");
        char step[32];
        add_settings(&form[i], out);
        text_add(out, " %s, %.0f%% of it waiting",
                 text_format_ms(step, sizeof step, form[i].step_ms), 100 * wait_share(&form[i]));
    }
    text_add(out, "; proposed: ");
    if (choice == now)
        text_add(out, "leave it so");
    else
        add_settings(&form[choice], out);
    if (form[choice].local_steps > 0)
        text_add(out, ", because gradients in every step would wait too long in every form; the "
                      "losses differ from a plain run's (docs/slow-links.md)");
    else if (wait_share(&form[choice]) > PLAN_LINK_WAIT_MOST)
        text_add(out, ", the fastest with an exchange in every step");
    else if (form[choice].compress == GRAD_COMPRESS_KIND_NONE)
        text_add(out, ", because the link is fast enough without compression");
    else
        text_add(out, ", the form nearest to fp32 that waits for at most %.0f%%",
                 100 * PLAN_LINK_WAIT_MOST);
}
