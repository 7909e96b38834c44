/* termination — write the last sentence of a run to the file whose content `kubectl describe pod`
 * shows. Must not know what the sentence is about. */
#ifndef CONVOY_NODE_TERMINATION_H
#define CONVOY_NODE_TERMINATION_H

/* made by the kubelet, which reads at most 4096 bytes */
#define TERMINATION_LOG "/dev/termination-log"

/* termination_write — write "exit code N: SENTENCE" to the file at path, only where it already is a
 * regular file. Elsewhere it makes no file and reports nothing. */
void termination_write(const char *path, int code, const char *sentence);

#endif
