/* The planner against published measurements: what docs/plan-scorecard.md says is what the program
 * computes now, and the errors stay below their limits. */
#include "harness.h"

#include "plan/scorecard_page.h"

static struct scorecard card;

static int setup(void **state)
{
    score_run(&card);
    return 0;
}

static int teardown(void **state)
{
    score_free(&card);
    return 0;
}

TEST(page_is_current)
{
    struct text page = {.limit = (size_t)1 << 20};
    char *bytes;
    size_t n;
    assert_int_equal(file_read(SCORE_PAGE, (size_t)1 << 20, &bytes, &n), ST_OK);
    page_write(&card, &page);
    assert_false(page.overflow);
    if (n != page.len || memcmp(bytes, page.data, n) != 0)
        fail_msg("%s is not what the program computes now; run make plan-scorecard", SCORE_PAGE);
    free(bytes);
    text_free(&page);
}

static void check_held(const char *source, int rows_min)
{
    const struct score_errors e = score_errors(&card, false, "held", source);
    assert_true(e.n >= rows_min);
    if (e.median > 0.10)
        fail_msg("the median error of %d held rows is %.1f %%, at most 10 %%", e.n, 100 * e.median);
    if (e.worst > 0.35)
        fail_msg("the error of %s, %s is %.1f %%, at most 35 %%",
                 e.worst_row->line->at[SCORE_MODEL], e.worst_row->line->at[SCORE_SETTINGS],
                 100 * e.worst);
}

/* Most rows are of one source: the others have to be near by themselves. */
TEST(held_rows_are_near)
{
    check_held(NULL, 200);
    check_held("!mosaic", 40);
}

/* The recipe's table: one node and two are fitted, and what the third one brings is predicted. */
TEST(third_node_is_predicted)
{
    int found = 0;
    for (int i = 0; i < card.rows_n; i++) {
        const struct score_row *row = &card.row[i];
        bool is_it = !row->is_fit && strcmp(row->line->at[SCORE_MODEL], "neox-9b") == 0;
        if (!is_it)
            continue;
        found++;
        if (fabs(score_error(row)) > 0.05)
            fail_msg("predicted %.3f samples/s on three nodes, published %.3f", row->predicted,
                     row->published);
    }
    assert_int_equal(found, 1);
}

TEST(memory_is_near)
{
    const struct score_errors e = score_errors(&card, true, "held", NULL);
    if (e.median > 0.10 || e.worst > 0.35)
        fail_msg("memory: median error %.1f %%, worst %.1f %%; at most 10 %% and 35 %%",
                 100 * e.median, 100 * e.worst);
}

HARNESS_RUN_ALL_WITH(setup, teardown)
