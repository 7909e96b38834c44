/* plan_setup — from settings to what plan/ plans: the cluster of CLUSTER, and the job on it. Opens
 * no device; reads a model's dimensions and a cluster file. */
#ifndef CONVOY_NODE_PLAN_SETUP_H
#define CONVOY_NODE_PLAN_SETUP_H

#include "conf/conf.h"
#include "plan/plan_job.h"

/* plan_setup_cluster — with PRICE. ST_BAD_SETTING: CLUSTER is not set or unknown, or it has fewer
 * nodes than N_NODES.
 * plan_setup_locals — ST_BAD_SETTING: N_GPU_EACH_NODE is above the workers of the cluster's nodes.
 * plan_setup_job — RECOMPUTE and SHARD may still be auto. cluster is borrowed.
 * plan_setup_decide — what RECOMPUTE=auto and SHARD=auto take on this cluster, by the rules of
 * node/choose/plan_choice.h.
 * plan_setup_run — a run under way: config with everything decided, on the ranks of at. */
enum status plan_setup_cluster(const struct conf *conf, struct plan_cluster *out);
enum status plan_setup_locals(const struct conf *conf, const struct plan_cluster *cluster);
enum status plan_setup_job(const struct conf *conf, const struct plan_cluster *cluster,
                           struct plan_job *out);
enum status plan_setup_decide(struct plan_job *job);
enum status plan_setup_run(const struct conf *conf, const struct plan_cluster *cluster,
                           const struct trainer_config *config, const struct comm_place *at,
                           struct plan_job *out);

#endif
