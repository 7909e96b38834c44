/* link_choice — LINK=auto: `train` logs in which form its gradients should travel, after the first
 * steps. It changes nothing. */
#ifndef CONVOY_NODE_LINK_CHOICE_H
#define CONVOY_NODE_LINK_CHOICE_H

#include "conf/conf.h"
#include "plan/plan_link.h"
#include "train/trainer.h"

/* Zero-initialised: nothing was measured yet. */
struct link_choice {
    bool is_begun;
    struct plan_link_run link;
    /* the on_step that was set before */
    void (*next)(void *arg, double step_ms, const struct step_result *result);
    void *next_arg;
};

/* link_choice_begin — on rank 0, before the steps of a generation: sets the config's on_step where
 * LINK=auto, in the first generation, and keeps calling the one that was set before. choice lives
 * as long as the config. Where steps do not show the link, the log only says why. */
void link_choice_begin(const struct conf *conf, struct link_choice *choice,
                       struct trainer_config *config);

#endif
