/* plan_control — see plan_control.h. */
#include "plan/plan_control.h"

#define BASE_BYTES (11.9 * 1024 * 1024)
#define NODE_BYTES (31.0 * 1024)   /* of a node with one worker */
#define WORKER_BYTES (2.2 * 1024)  /* of each further worker */
#define HEARTBEAT_SECONDS 0.000094 /* one a node and second */

struct plan_control plan_control(int nodes, int locals)
{
    return (struct plan_control){
        .bytes = (int64_t)(BASE_BYTES + nodes * (NODE_BYTES + (locals - 1) * WORKER_BYTES)),
        .cores = nodes * HEARTBEAT_SECONDS};
}
