/* plan_setup — maps settings to the structs that plan/ plans: the cluster of CLUSTER, and the job
 * on it. Opens no device; reads only a model's dimensions and a cluster file. */
#ifndef CONVOY_NODE_PLAN_SETUP_H
#define CONVOY_NODE_PLAN_SETUP_H

#include "conf/conf.h"
#include "plan/plan_job.h"

/* plan_setup_cluster — returns the cluster, with PRICE. ST_BAD_SETTING: CLUSTER is not set or
 * unknown, or the cluster has fewer nodes than N_NODES. */
enum status plan_setup_cluster(const struct conf *conf, struct plan_cluster *out);
/* plan_setup_locals — returns ST_BAD_SETTING if N_GPU_EACH_NODE is above the number of workers on a
 * node of the cluster. */
enum status plan_setup_locals(const struct conf *conf, const struct plan_cluster *cluster);
/* plan_setup_job — returns the job. RECOMPUTE and SHARD may still be auto. The cluster is
 * borrowed. */
enum status plan_setup_job(const struct conf *conf, const struct plan_cluster *cluster,
                           struct plan_job *out);
/* plan_setup_decide — chooses RECOMPUTE=auto and SHARD=auto for this cluster by the rules of
 * node/choose/plan_choice.h. */
enum status plan_setup_decide(struct plan_job *job);
/* plan_setup_run — returns the job of a running process: config has every choice made; at: the
 * ranks. */
enum status plan_setup_run(const struct conf *conf, const struct plan_cluster *cluster,
                           const struct trainer_config *config, const struct comm_place *at,
                           struct plan_job *out);

#endif
