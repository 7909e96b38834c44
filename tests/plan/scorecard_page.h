/* scorecard_page — the scorecard as docs/plan-scorecard.md. */
#ifndef CONVOY_TESTS_PLAN_SCORECARD_PAGE_H
#define CONVOY_TESTS_PLAN_SCORECARD_PAGE_H

#include "plan/scorecard.h"

#define SCORE_PAGE "docs/plan-scorecard.md"

static const char score_head[] =
    "# The planner's scorecard\n"
    "\n"
    "`make plan-scorecard` writes this page. Each row is a published measurement, the settings "
    "with "
    "which Convoy does the same,\n"
    "and what `plan_ops`, `plan_time` and `memory_plan` say of them: the functions behind `convoy "
    "plan`. No row is left out because it\n"
    "misses. A test compares the page with what the program computes now.\n"
    "\n"
    "- **fit**: the figures of clusters and machines were fitted to these rows, all rows of a "
    "generation together, by `make plan-scorecard-fit`. **held**: nothing was fitted to them.\n"
    "- **disturbed**: the source itself says that something else slowed this run. It is shown, and "
    "not counted.\n"
    "- Which figures a machine has of its own was chosen with the held rows in view, but for those "
    "of bridge-old, titan-405b, kempner and kempner-weak: they were added on 2026-11-23 after the "
    "fit, "
    "and nothing was changed for them.\n"
    "- What is fitted belongs to a cluster (shares of its peaks, links and overlap) or to a "
    "machine "
    "below, never to a row.\n"
    "- The measured programs are not Convoy: what differs besides the settings is in the error.\n"
    "- An error is predicted / published - 1, in the unit of the row.\n"
    "\n";

static inline void page_errors(const char *what, struct score_errors e, struct text *out)
{
    if (e.n == 0)
        return;
    const char *const *at = e.worst_row->line->at;
    text_add(out, "| %s | %d | %.1f %% | %.1f %% | %s on %s, %s %s |\n", what, e.n, 100 * e.median,
             100 * e.worst, at[SCORE_MODEL], at[SCORE_MACHINE], at[SCORE_PUBLISHED],
             at[SCORE_UNIT]);
}

static inline void page_summary(const struct scorecard *card, struct text *out)
{
    text_add(out, "## Errors\n\n| rows | number | median error | worst error | the worst |\n"
                  "|---|---|---|---|---|\n");
    page_errors("**times, held out**", score_errors(card, false, "held", NULL), out);
    page_errors("times, held out, without mosaic", score_errors(card, false, "held", "!mosaic"),
                out);
    page_errors("times, held out, of runs that fit with Convoy",
                score_errors(card, false, "held", SCORE_RUN), out);
    page_errors("times, held out, of runs that Convoy refuses",
                score_errors(card, false, "held", SCORE_REFUSED), out);
    for (int i = 0; i < card->lines_n; i++) {
        const struct score_line *line = &card->line[i];
        char what[128];
        text_format(what, sizeof what, "times, held out, of %s", line->at[1]);
        if (score_is(line, "source"))
            page_errors(what, score_errors(card, false, "held", line->at[1]), out);
    }
    page_errors("times, disturbed", score_errors(card, false, "disturbed", NULL), out);
    page_errors("times, fitted", score_errors(card, false, "fit", NULL), out);
    page_errors("**memory, held out**", score_errors(card, true, "held", NULL), out);
}

/* page_third — the recipe that bought a third node. */
static inline void page_third(const struct scorecard *card, struct text *out)
{
    for (int i = 0; i < card->rows_n; i++) {
        const struct score_row *row = &card->row[i];
        if (strcmp(row->line->at[SCORE_REMARK], "the third node") == 0)
            text_add(
                out,
                "\nOn the slow link of the recipe, fitted on one and two nodes, the planner says "
                "%.2f samples/s for three nodes; measured were %s (%+.1f %%), and 9.074 on "
                "two.\n",
                row->predicted, row->line->at[SCORE_PUBLISHED], 100 * score_error(row));
    }
}

/* page_too_large — of which rows the time is that of a run that Convoy would refuse. */
static inline void page_too_large(const struct scorecard *card, struct text *out)
{
    int n = 0, all = 0;
    for (int i = 0; i < card->rows_n; i++) {
        all += !card->row[i].is_memory;
        n += !card->row[i].is_memory && card->row[i].is_too_large;
    }
    text_add(out,
             "\n%d of the %d runs would not fit into the memory of their GPUs with Convoy, which "
             "refuses them; their remark says what a GPU would need. Most of them have several "
             "micro-batches with `SHARD=full`: Convoy then holds gradients whole, in fp32.\n",
             n, all);
}

static inline void page_sources(const struct scorecard *card, struct text *out)
{
    text_add(out, "\n## Sources\n\n| key | what |\n|---|---|\n");
    for (int i = 0; i < card->lines_n; i++)
        if (score_is(&card->line[i], "source"))
            text_add(out, "| %s | %s |\n", card->line[i].at[1], card->line[i].at[2]);
}

static inline void page_machines(const struct scorecard *card, struct text *out)
{
    text_add(out, "\n## Machines and models\n\n| machine | cluster | differs in | why |\n"
                  "|---|---|---|---|\n");
    for (int i = 0; i < card->lines_n; i++) {
        const struct score_line *line = &card->line[i];
        if (score_is(line, "machine"))
            text_add(out, "| %s | %s | %s | %s |\n", line->at[1], line->at[2], line->at[3],
                     line->at[4]);
    }
    text_add(out, "\n| model | settings |\n|---|---|\n");
    for (int i = 0; i < card->lines_n; i++)
        if (score_is(&card->line[i], "model"))
            text_add(out, "| %s | `%s` |\n", card->line[i].at[1], card->line[i].at[2]);
}

static inline void page_share(const struct plan_share *share, struct text *out)
{
    for (int i = 0; i < share->n; i++)
        text_add(out, "%s%.2f", i > 0 ? ", " : "", share->point[i].share);
    text_add(out, " | ");
}

static inline double page_last(const struct plan_share *share)
{
    return share->n > 0 ? share->point[share->n - 1].share : 1;
}

/* page_fitted — a figure of a cluster; marked where the fit ended on a limit of its search. */
static inline void page_fitted(double value, const char *name, const char *end, struct text *out)
{
    const struct score_limits *limits = score_limits(name);
    bool is_on_limit = value <= limits->min + 5e-4 || value >= limits->max - 5e-4;
    text_add(out, "%.2f%s%s", value, is_on_limit ? "*" : "", end);
}

static inline void page_clusters(struct text *out)
{
    struct plan_cluster c;
    text_add(out, "\n## Clusters\n\n"
                  "Shares of the peaks in `src/plan/clusters`: of products by their FLOPs (1e10, "
                  "1e11, 1e12), of attention (1e11, 1e13), of the memory's bandwidth, and of links "
                  "for large messages; and what calls beside computation take from it. Those of "
                  "a100-80 and h100-sxm are fitted, a100-40 and a6000-ethernet have those of the "
                  "first, lambda has them as its machine below does, all others those of the "
                  "second. Marked with *: the fit ended on the "
                  "limit of its search, so the rows do not say how large that figure is.\n\n"
                  "| cluster | products bf16 | products fp8 | attention | memory | link inside | "
                  "link across | overlap cost |\n|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; plan_cluster_nth(i, &c); i++) {
        text_add(out, "| %s | ", c.name);
        page_share(&c.product[PLAN_PRECISION_BF16], out);
        if (c.peak[PLAN_PRECISION_FP8] > 0)
            page_share(&c.product[PLAN_PRECISION_FP8], out);
        else
            text_add(out, "- | ");
        page_share(&c.attention, out);
        page_fitted(c.memory_share, "memory_share", " | ", out);
        page_fitted(page_last(&c.inside.share), "inside", " | ", out);
        page_fitted(page_last(&c.across.share), "across", " | ", out);
        page_fitted(c.overlap_cost, "overlap_cost", " |\n", out);
    }
}

static inline void page_row(const struct score_row *row, struct text *out)
{
    const char *const *at = row->line->at;
    text_add(out, "| %s | %s | %s | `%s` | %s | %s | %.4g | %+.1f %% | %s | %s", at[SCORE_PART],
             at[SCORE_MACHINE], at[SCORE_MODEL], at[SCORE_SETTINGS], at[SCORE_UNIT],
             at[SCORE_PUBLISHED], row->predicted, 100 * score_error(row), at[SCORE_SOURCE],
             at[SCORE_REMARK]);
    if (row->is_too_large)
        text_add(out, "%sneeds %.0f GiB", at[SCORE_REMARK][0] ? "; " : "",
                 row->need_bytes / SCORE_GIB);
    text_add(out, " |\n");
}

static inline void page_rows(const struct scorecard *card, bool is_memory, struct text *out)
{
    text_add(out, "\n## %s\n\n", is_memory ? "Memory of one GPU, in GiB" : "Times");
    text_add(out, "| part | machine | model | settings | unit | published | predicted | error | "
                  "source | remark |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (int i = 0; i < card->rows_n; i++)
        if (card->row[i].is_memory == is_memory)
            page_row(&card->row[i], out);
}

static inline void page_left_out(const struct scorecard *card, struct text *out)
{
    text_add(out, "\n## Left out\n\n| source | what | why |\n|---|---|---|\n");
    for (int i = 0; i < card->lines_n; i++) {
        const struct score_line *line = &card->line[i];
        if (score_is(line, "out"))
            text_add(out, "| %s | %s | %s |\n", line->at[1], line->at[2], line->at[3]);
    }
}

static inline void page_write(const struct scorecard *card, struct text *out)
{
    text_add(out, "%s", score_head);
    page_summary(card, out);
    page_third(card, out);
    page_too_large(card, out);
    page_sources(card, out);
    page_clusters(out);
    page_machines(card, out);
    page_rows(card, false, out);
    page_rows(card, true, out);
    page_left_out(card, out);
}

#endif
