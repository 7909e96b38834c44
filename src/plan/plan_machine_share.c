/* plan_machine_share — rates that were measured, as shares of a peak. */
#include "plan/plan_machine_inside.h"

void plan_machine_share_add(struct plan_share *share, double size, double rate)
{
    share->point[share->n].size = size;
    share->point[share->n++].share = rate;
}

double plan_machine_share_within(double share, double least)
{
    return share < least ? least : share < 1 ? share : 1;
}

double plan_machine_share_best(const struct plan_share *share, double best)
{
    for (int i = 0; i < share->n; i++)
        best = share->point[i].share > best ? share->point[i].share : best;
    return best;
}

void plan_machine_share_divide(struct plan_share *share, double best)
{
    for (int i = 0; i < share->n; i++)
        share->point[i].share =
            plan_machine_share_within(share->point[i].share / best, PLAN_MACHINE_SHARE_LEAST);
}

double plan_machine_share_peak(double sheet, struct plan_share *share)
{
    double best = plan_machine_share_best(share, sheet);
    plan_machine_share_divide(share, best);
    return best;
}
