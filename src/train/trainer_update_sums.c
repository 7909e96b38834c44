/* trainer_update_sums — memory that changed by itself between two updates (step.h): before it is
 * kept in a checkpoint, and before the numbers that it makes end a run (trainer_inside.h). */
#include "base/clock.h"
#include "base/log.h"
#include "train/trainer_inside.h"

/* The message of the rank whose memory changed should reach node 0 first: it tells what to do. */
#define OTHERS_WAIT_MS 300

static enum status end_with(const struct trainer *t, enum status st)
{
    if (st == ST_PEER && step_update_sums_changed(t->step).ranks_n > 0)
        clock_sleep_ms(OTHERS_WAIT_MS);
    return st;
}

enum status trainer_update_sums(struct trainer *t)
{
    enum status st = step_update_sums_verify(t->step);
    step_run_forget_sent(t->step);
    return end_with(t, st);
}

enum status trainer_update_sums_explain(struct trainer *t, enum status st)
{
    struct status_saved saved;
    if (st != ST_NOT_FINITE && st != ST_SPIKE)
        return end_with(t, st);
    status_save(&saved);
    enum status found = trainer_update_sums(t);
    if (found != ST_OK)
        return found;
    status_restore(&saved);
    return st;
}

/* A generation that ends for another reason before the next update does not look: copies that were
 * made since would bring the change back, to all ranks. The others do not know, so the node must
 * stay: its memory has the mark that rules those copies out. */
void trainer_update_sums_end(struct trainer *t, enum status st)
{
    struct status_saved saved;
    if (status_group(st) != STATUS_GROUP_RETRY || !t->peer_copy || !t->step)
        return;
    status_save(&saved);
    if (step_update_sums_verify_own(t->step) != ST_OK)
        LOG_WARN("%s", status_message());
    status_restore(&saved);
}
