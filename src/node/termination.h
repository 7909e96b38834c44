/* termination — the last sentence of a run where Kubernetes looks for it: `kubectl describe pod`
 * shows it, whatever else the log says. Must not know what the sentence is about. */
#ifndef CONVOY_NODE_TERMINATION_H
#define CONVOY_NODE_TERMINATION_H

/* the kubelet makes it, and reads at most 4096 bytes */
#define TERMINATION_LOG "/dev/termination-log"

/* termination_write — "exit code N: SENTENCE" into the file at path. Only where it is a regular
 * file already: elsewhere nothing is made, nothing is said. */
void termination_write(const char *path, int code, const char *sentence);

#endif
