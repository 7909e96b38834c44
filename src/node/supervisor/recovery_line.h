/* recovery_line — the beginnings of the log lines by which `rehearse` follows a job from outside:
 * with LOG_FORMAT=json they are the member message of a line. One place for the writer and the
 * reader. Must not know what follows them. */
#ifndef CONVOY_NODE_RECOVERY_LINE_H
#define CONVOY_NODE_RECOVERY_LINE_H

#define RECOVERY_LINE_LOST_MODULE "supervisor"
/* of each node: its generation is over, because a rank or a node was lost */
#define RECOVERY_LINE_LOST "resuming from "
#define RECOVERY_LINE_GENERATION_MODULE "cluster"
/* of node 0: all ranks are back */
#define RECOVERY_LINE_GENERATION "generation "
/* of node 0, within a line: ON_LOSS=shrink, a node has returned, which ends the generation
 * (cluster/coordinator.c) */
#define RECOVERY_LINE_RETURN " is back, and is taken in"

#endif
