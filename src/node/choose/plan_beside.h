/* plan_beside — `train` logs its plan, and after the first steps how they compare with it, and in
 * which form its gradients should travel (LINK=auto). It changes nothing. */
#ifndef CONVOY_NODE_PLAN_BESIDE_H
#define CONVOY_NODE_PLAN_BESIDE_H

#include "conf/conf.h"
#include "plan/plan_compare.h"
#include "plan/plan_link.h"
#include "train/trainer/trainer.h"

/* Zero-initialised: nothing was planned yet. */
struct plan_beside {
    bool is_begun, has_terms;
    struct plan_time planned;
    struct plan_compare compare;
};

/* plan_beside_begin — on rank 0, before the steps of a generation: sets the config's on_step where
 * CLUSTER is set, in the first generation. beside lives as long as the config. A cluster that is no
 * plan for this run only logs why. */
void plan_beside_begin(const struct conf *conf, bool is_gpu, const struct comm_place *at,
                       struct plan_beside *beside, struct trainer_config *config);

/* Zero-initialised: nothing was measured yet. */
struct plan_beside_link {
    bool is_begun;
    struct plan_link_run link;
    /* the on_step that was set before */
    void (*next)(void *arg, double step_ms, const struct step_result *result);
    void *next_arg;
};

/* plan_beside_begin_link — on rank 0, before the steps of a generation: sets the config's on_step
 * where LINK=auto, in the first generation, and keeps calling the one that was set before. choice
 * lives as long as the config. Where steps do not show the link, the log only says why. */
void plan_beside_begin_link(const struct conf *conf, struct plan_beside_link *choice,
                            struct trainer_config *config);

#endif
