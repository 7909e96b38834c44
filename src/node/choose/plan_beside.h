/* plan_beside — logs the plan of a `train` run. After the first steps it logs how they compare with
 * the plan, and in which form gradients should be sent (LINK=auto). It changes nothing. */
#ifndef CONVOY_NODE_PLAN_BESIDE_H
#define CONVOY_NODE_PLAN_BESIDE_H

#include "conf/conf.h"
#include "plan/plan_compare.h"
#include "plan/plan_link.h"
#include "train/trainer/trainer.h"

/* Zero-initialised: there is no plan yet. */
struct plan_beside {
    bool is_begun, has_terms;
    struct plan_time planned;
    struct plan_compare compare;
};

/* plan_beside_begin — sets the config's on_step in the first generation, if CLUSTER is set. Call it
 * on rank 0 before the steps of a generation. The struct must live as long as the config. If the
 * cluster does not match this run, it only logs the reason. */
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

/* plan_beside_begin_link — sets the config's on_step in the first generation, if LINK=auto, and
 * keeps calling the on_step that was set before. Call it on rank 0 before the steps of a
 * generation. `choice` must live as long as the config. If steps do not show the speed of the link,
 * it only logs the reason. */
void plan_beside_begin_link(const struct conf *conf, struct plan_beside_link *choice,
                            struct trainer_config *config);

#endif
