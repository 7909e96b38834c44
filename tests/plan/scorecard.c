/* scorecard — writes docs/plan-scorecard.md and prints the errors of its rows. With a number, it
 * lists the rows whose error is larger, with the parts of the predicted step. */
#include "plan/scorecard_page.h"

static void print_errors(const char *what, struct score_errors e)
{
    printf("%-24s %4d rows, median error %4.1f %%, worst %5.1f %%\n", what, e.n, 100 * e.median,
           100 * e.worst);
}

int main(int argc, char **argv)
{
    struct scorecard card;
    struct text page = {.limit = (size_t)1 << 20};
    score_run(&card);
    for (int i = 0; argc > 1 && i < card.rows_n; i++)
        if (100 * fabs(score_error(&card.row[i])) > score_number(argv[1])) {
            printf("%+6.1f %% %s %s %s %s, published %s:", 100 * score_error(&card.row[i]),
                   card.row[i].line->at[SCORE_PART], card.row[i].line->at[SCORE_MACHINE],
                   card.row[i].line->at[SCORE_MODEL], card.row[i].line->at[SCORE_SETTINGS],
                   card.row[i].line->at[SCORE_PUBLISHED]);
            for (int kind = 0; kind < PLAN_TIME_N; kind++)
                if (card.row[i].time.ms[kind] > 0)
                    printf(" %s %.1f ms,", plan_time_text((enum plan_time_kind)kind),
                           card.row[i].time.ms[kind]);
            printf(" hidden %.1f ms\n", card.row[i].time.comm_hidden_ms);
        }
    page_write(&card, &page);
    if (page.overflow || file_replace(SCORE_PAGE, page.data, page.len) != ST_OK)
        score_die(SCORE_PAGE, status_message());
    print_errors("times, held out", score_errors(&card, false, "held", NULL));
    print_errors("  without mosaic", score_errors(&card, false, "held", "!mosaic"));
    print_errors("times, fitted", score_errors(&card, false, "fit", NULL));
    print_errors("memory, held out", score_errors(&card, true, "held", NULL));
    text_free(&page);
    score_free(&card);
    return 0;
}
