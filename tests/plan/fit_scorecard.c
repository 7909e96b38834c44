/* fit_scorecard — finds the figures of clusters and machines that fit the scorecard's rows of part
 * "fit", and prints them for src/plan/clusters and scorecard.tsv. The measure is the sum of squares
 * of the logarithms of predicted / published. Each number in turn is changed by a step that
 * shrinks, as long as that helps: the result depends on nothing but the files.
 *
 * The clusters of a generation share their figures: those named a100-… one set, all others that of
 * h100-sxm. Machines that a name ends with share theirs. No row has small products: the share at
 * 1e10 FLOPs is set to a part of that at 1e11. */
#include "plan/scorecard.h"

#define NUMBERS_MAX 32
#define ROUNDS 400
#define STEP 0.1
#define STEP_MIN 1e-4
#define SMALL 0.7 /* of the next share */

struct number {
    const char *name, *machines; /* machines: the end of their names; NULL: of clusters */
    double value, min, max;
};
struct fit {
    struct scorecard *card;
    bool is_a100;
    struct number number[NUMBERS_MAX];
    int n;
    struct score_row *row[SCORE_LINES_MAX];
    struct plan_cluster base[SCORE_LINES_MAX];
    int rows_n;
};

/* Where the numbers of clusters begin. */
enum { PRODUCT, ATTENTION = 2, MEMORY = 4, OVERLAP, INSIDE, ACROSS, PRODUCT_FP8, CLUSTERS = 10 };
static const double product_sizes[] = {1e10, 1e11, 1e12};
static const double attention_sizes[] = {1e11, 1e13};
static const double link_sizes[] = {1e5, 1e6, 1e7, 1e8};
static const double link_shape[] = {0.06, 0.37, 0.75, 1};

static const struct number of_clusters[CLUSTERS] = {
    {"product", NULL, 0.6, 0.05, 0.95},   {"product", NULL, 0.7, 0.05, 0.95},
    {"attention", NULL, 0.4, 0.05, 0.95}, {"attention", NULL, 0.5, 0.05, 0.95},
    {"memory_share", NULL, 0.6, 0, 0},    {"overlap_cost", NULL, 0.1, 0, 0}, /* score_limits */
    {"inside", NULL, 0.8, 0, 0},          {"across", NULL, 0.8, 0, 0},
    {"fp8", NULL, 0.4, 0.05, 0.95},       {"fp8", NULL, 0.5, 0.05, 0.95},
};
/* is_a100: of which generation. A bandwidth is searched in units of 1 GB/s. */
static const struct {
    bool is_a100;
    struct number number;
} of_machines[] = {
    {true, {"attention_scale", "-2023", 1, 0.2, 1.5}},
    {true, {"memory_share", "-2023", 0.3, 0.02, 1}},
    {true, {"compute_scale", "lambda", 1, 0.3, 1.5}},
    {true, {"across", "lambda", 0.5, 0.01, 20}},
    {false, {"attention_scale", "-2023", 1, 0.2, 1.5}},
    {false, {"memory_share", "-2023", 0.3, 0.02, 1}},
    {false, {"compute_scale", "-meta", 1, 0.3, 1.5}},
    {false, {"attention_scale", "-meta", 1, 0.3, 1.5}},
};

/* ---- numbers ---- */

/* points — from number `first` on, one for each size; a share never falls. */
static void points(const struct number *first, const double *sizes, int n, struct plan_share *out)
{
    double least = 0;
    out->n = n;
    for (int i = 0; i < n; i++) {
        least = fmax(least, first[i].value);
        out->point[i].size = sizes[i];
        out->point[i].share = least;
    }
}

static void link_points(double top, struct plan_share *out)
{
    out->n = 4;
    for (int i = 0; i < 4; i++) {
        out->point[i].size = link_sizes[i];
        out->point[i].share = top * link_shape[i];
    }
}

static void set_cluster(const struct fit *f, struct plan_cluster *c)
{
    for (int i = 0; i < PLAN_PRECISION_N; i++) {
        const struct number *first = f->number + (i == PLAN_PRECISION_FP8 ? PRODUCT_FP8 : PRODUCT);
        points(first, product_sizes + 1, 2, &c->product[i]);
        c->product[i].point[2] = c->product[i].point[1];
        c->product[i].point[1] = c->product[i].point[0];
        c->product[i].point[0].size = product_sizes[0];
        c->product[i].point[0].share *= SMALL;
        c->product[i].n = 3;
    }
    points(f->number + ATTENTION, attention_sizes, 2, &c->attention);
    c->memory_share = c->optimizer_share = f->number[MEMORY].value;
    c->overlap_cost = f->number[OVERLAP].value;
    link_points(f->number[INSIDE].value, &c->inside.share);
    link_points(f->number[ACROSS].value, &c->across.share);
}

static bool is_for(const struct number *x, const char *machine)
{
    return x->machines && text_ends(machine, x->machines);
}

static double value_of(const struct number *x)
{
    return strcmp(x->name, "across") == 0 ? x->value * 1e9 : x->value;
}

/* set_machine — the words of a machine, with the numbers in place of the file's. */
static void set_machine(const struct fit *f, const struct score_line *line, struct plan_cluster *c)
{
    char *copy = score_copy(line->at[3]), *words[SCORE_WORDS_MAX], word[64];
    int n = score_words(copy, words);
    for (int i = 0; i < n; i++)
        score_change(words[i], c);
    for (int i = CLUSTERS; i < f->n; i++) {
        if (!is_for(&f->number[i], line->at[1]))
            continue;
        text_format(word, sizeof word, "%s=%.9g", f->number[i].name, value_of(&f->number[i]));
        score_change(word, c);
    }
    free(copy);
}

/* without_numbers — a machine's words in the file that are searched must not count. */
static void without_numbers(const struct fit *f, const struct score_line *line)
{
    for (int i = CLUSTERS; i < f->n; i++) {
        char *at = is_for(&f->number[i], line->at[1]) ? strstr(line->at[3], f->number[i].name) : 0;
        if (at)
            memset(at, ' ', strcspn(at, " "));
    }
}

/* ---- the search ---- */

static double cost(const struct fit *f)
{
    double all = 0;
    for (int i = 0; i < f->rows_n; i++) {
        struct plan_cluster machine;
        struct plan_cluster *out = &machine;
        *out = f->base[i];
        set_cluster(f, out);
        set_machine(f, score_find(f->card, "machine", f->row[i]->line->at[SCORE_MACHINE]), out);
        score_time(&machine, f->row[i]);
        all += pow(log(f->row[i]->predicted / f->row[i]->published), 2);
    }
    return all;
}

static double try_number(struct fit *f, struct number *x, double step, double best)
{
    double before = x->value;
    for (int sign = -1; sign <= 1; sign += 2) {
        x->value = fmin(x->max, fmax(x->min, before + sign * step));
        double now = cost(f);
        if (now < best)
            return now;
    }
    x->value = before;
    return best;
}

static double search(struct fit *f)
{
    double best = cost(f), step = STEP;
    for (int round = 0; round < ROUNDS && step > STEP_MIN; round++) {
        double before = best;
        for (int i = 0; i < f->n; i++)
            best = try_number(f, &f->number[i], step, best);
        if (best > before * 0.999)
            step /= 2;
    }
    return best;
}

/* ---- a generation ---- */

static void print_share(const char *name, const struct plan_share *share)
{
    printf("  \"%s\": [", name);
    for (int i = 0; i < share->n; i++)
        printf("%s[%g, %.3f]", i > 0 ? ", " : "", share->point[i].size, share->point[i].share);
    printf("]\n");
}

static void print_fit(const struct fit *f, double cost_sum)
{
    struct plan_cluster c;
    set_cluster(f, &c);
    printf("%s: %d numbers, %d rows, mean error %.1f %%\n", f->is_a100 ? "a100-80" : "h100-sxm",
           f->n, f->rows_n, 100 * sqrt(cost_sum / f->rows_n));
    print_share("bf16", &c.product[PLAN_PRECISION_BF16]);
    if (!f->is_a100)
        print_share("fp8", &c.product[PLAN_PRECISION_FP8]);
    print_share("attention", &c.attention);
    print_share("inside", &c.inside.share);
    print_share("across", &c.across.share);
    printf("  memory_share %.3f, overlap_cost %.3f\n", c.memory_share, c.overlap_cost);
    for (int i = CLUSTERS; i < f->n; i++)
        printf("  *%s %s=%.4g\n", f->number[i].machines, f->number[i].name,
               value_of(&f->number[i]));
}

static void fit_generation(struct scorecard *card, bool is_a100)
{
    struct fit *f = calloc(1, sizeof *f);
    if (!f)
        score_die("fit", "out of memory");
    f->card = card;
    f->is_a100 = is_a100;
    memcpy(f->number, of_clusters, sizeof of_clusters);
    f->n = CLUSTERS;
    for (int i = MEMORY; i <= ACROSS; i++) {
        f->number[i].min = score_limits(f->number[i].name)->min;
        f->number[i].max = score_limits(f->number[i].name)->max;
    }
    for (size_t i = 0; i < sizeof of_machines / sizeof *of_machines; i++)
        if (of_machines[i].is_a100 == f->is_a100)
            f->number[f->n++] = of_machines[i].number;
    for (int i = 0; i < f->card->rows_n; i++) {
        struct score_row *row = &f->card->row[i];
        const struct score_line *line =
            score_find(f->card, "machine", row->line->at[SCORE_MACHINE]);
        if (!row->is_fit || row->is_memory || text_starts(line->at[2], "a100") != f->is_a100)
            continue;
        f->row[f->rows_n] = row;
        if (plan_cluster_open(line->at[2], &f->base[f->rows_n++]) != ST_OK)
            score_die(line->at[2], status_message());
        without_numbers(f, line);
    }
    print_fit(f, search(f));
    free(f);
}

int main(void)
{
    struct scorecard card;
    score_run(&card);
    fit_generation(&card, true);
    fit_generation(&card, false);
    score_free(&card);
    return 0;
}
