/* link — LINK=auto: bytes and times of each form from steps of a link that is described here,
 * the choice on fast, middle and slow ones, and its words. */
#include "harness.h"

#include "plan/plan_link.h"

#define PARAMS 8000000

/* link_of — a run of fp32 gradients whose steps compute for compute_ms; the last 20 ms of what is
 * sent hide behind computation. */
static struct plan_link_run link_of(int nodes, int locals, double mbits, double compute_ms)
{
    struct plan_link_run link = {
        .params = PARAMS, .nodes = nodes, .locals = locals, .allows_local_steps = true};
    const double bytes = 2.0 * (nodes - 1) / nodes * 4 * PARAMS / locals,
                 comm_ms = bytes / (mbits * 125);
    struct plan_link_step step = {
        .comm_ms = comm_ms, .wait_ms = fmax(0, comm_ms - 20), .sent_bytes = (int64_t)bytes};
    step.step_ms = compute_ms + step.wait_ms;
    for (int i = 0; i < PLAN_LINK_SKIPPED + PLAN_LINK_STEPS; i++)
        assert_int_equal(plan_link_add(&link, &step), i == PLAN_LINK_SKIPPED + PLAN_LINK_STEPS - 1);
    return link;
}

static struct plan_link_form chosen(const struct plan_link_run *link, int *now)
{
    struct plan_link_form form[PLAN_LINK_FORMS];
    int choice, n = plan_link_forms(link, form, now, &choice);
    assert_in_range(n, 5, PLAN_LINK_FORMS);
    assert_in_range(choice, 0, n - 1);
    for (int i = 0; i < n; i++)
        assert_true(isfinite(form[i].step_ms) && form[i].wait_ms >= 0 && form[i].sent_bytes >= 0);
    return form[choice];
}

TEST(test_choice)
{
    int now;
    struct plan_link_run link = link_of(2, 1, 20000, 500);
    struct plan_link_form f = chosen(&link, &now);
    assert_true(f.compress == GRAD_COMPRESS_KIND_NONE && f.local_steps == 0 && now == 0);
    link = link_of(2, 1, 1500, 1000); /* 171 ms, of which 20 are hidden */
    f = chosen(&link, &now);
    assert_true(f.compress == GRAD_COMPRESS_KIND_BF16 && f.local_steps == 0);
    link = link_of(2, 1, 700, 1000); /* 366 ms: bf16 waits for 163 of 1163 */
    f = chosen(&link, &now);
    assert_true(f.compress == GRAD_COMPRESS_KIND_INT8 && f.local_steps == 0);
    link = link_of(2, 1, 10, 100);
    f = chosen(&link, &now);
    assert_true(f.local_steps >= 50 && f.local_steps <= 200);
    link = link_of(2, 1, 0.01, 100); /* none is good */
    f = chosen(&link, &now);
    assert_true(f.local_steps == 500 && f.compress == GRAD_COMPRESS_KIND_INT4_ZSTD);
}

/* Where workers hold shards, LOCAL_STEPS is not offered. */
TEST(test_shards)
{
    int now;
    struct plan_link_run link = link_of(2, 1, 10, 100);
    link.allows_local_steps = false;
    assert_int_equal(chosen(&link, &now).local_steps, 0);
}

/* What is measured of the own form stands for it; that of others follows from the rate. */
TEST(test_bytes)
{
    struct plan_link_form form[PLAN_LINK_FORMS];
    int now, choice;
    struct plan_link_run link = link_of(4, 1, 100, 100);
    plan_link_forms(&link, form, &now, &choice);
    assert_int_equal((int64_t)form[0].sent_bytes, 2 * 3 * PARAMS); /* 2 · 3/4 · 4 P */
    assert_true(fabs(form[1].sent_bytes / (3 * PARAMS) - 1) < 1e-3);
    assert_true(fabs(form[2].sent_bytes / (1.5 * PARAMS * 260 / 256) - 1) < 1e-3);
    assert_true(fabs(form[1].wait_ms - (form[0].wait_ms + 20) / 2 + 20) < 1);
    struct plan_link_run two = link_of(4, 2, 100, 100); /* a node sends as much, each worker half */
    struct plan_link_form f[PLAN_LINK_FORMS];
    plan_link_forms(&two, f, &now, &choice);
    assert_int_equal((int64_t)f[0].sent_bytes, 3 * PARAMS);
    assert_int_equal((int64_t)f[1].sent_bytes, 3 * PARAMS * 3 / 4); /* its sums travel as fp32 */
    assert_true(fabs(f[2].sent_bytes / form[2].sent_bytes - 1) < 1e-2); /* but here it does not */
}

/* A form that is not among those proposed, and steps in which a rank was late. */
TEST(test_others)
{
    int now;
    struct plan_link_run link = link_of(2, 1, 1000, 1000);
    link.compress = GRAD_COMPRESS_KIND_INT4;
    (void)chosen(&link, &now);
    assert_int_equal(now, -1);
    link = link_of(2, 1, 20000, 500);
    struct plan_link_run late = link;
    for (int i = 0; i < PLAN_LINK_STEPS / 2; i++) {
        late.step[i].step_ms += 1000;
        late.step[i].wait_ms += 1000;
        late.step[i].comm_ms += 1000;
    }
    assert_int_equal(chosen(&late, &now).compress, GRAD_COMPRESS_KIND_NONE);
    link.step[2] = (struct plan_link_step){.step_ms = 500};
    (void)chosen(&link, &now); /* a step in which nothing was sent */
}

static void says(const struct plan_link_run *link, const char *const *words)
{
    struct text text = {.limit = 2048};
    plan_link_text(link, &text);
    print_message("# %s\n", text.data);
    for (; *words; words++)
        if (!strstr(text.data, *words))
            fail_msg("%s: not \"%s\"", text.data, *words);
    assert_false(text.overflow);
    text_free(&text);
}

TEST(test_words)
{
    static const char *const slow[] = {"of a step of 2.64 s, 2.54 s wait for other ranks",
                                       "at 100 Mb/s",
                                       "COMPRESS=none 2.64 s, 96% of it waiting",
                                       "COMPRESS=int8-zstd",
                                       "proposed: LOCAL_STEPS=",
                                       NULL},
                             *const fast[] = {"proposed: leave it so", NULL},
                             *const needless[] = {
                                 "proposed: COMPRESS=none, because the link is fast", NULL};
    struct plan_link_run link = link_of(2, 1, 100, 100);
    says(&link, slow);
    link = link_of(2, 1, 20000, 500);
    says(&link, fast);
    link.compress = GRAD_COMPRESS_KIND_INT4; /* not among the proposed ones */
    says(&link, needless);
}

HARNESS_RUN_ALL()
