/* plan_beside — `train` logs its plan, and after the first steps how they compare with it. */
#ifndef CONVOY_NODE_PLAN_BESIDE_H
#define CONVOY_NODE_PLAN_BESIDE_H

#include "conf/conf.h"
#include "plan/plan_compare.h"
#include "train/trainer.h"

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

#endif
