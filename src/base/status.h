/* status — how a function reports a failure, and which conclusions its caller may draw from it.
 *
 * One list holds every code, its group and the exit code that schedulers act on. The function that
 * detects a failure writes the sentence with FAIL(): the failure, the values, and the next thing to
 * do. Its callers add only their file and line, with TRY(). The sentence stays in thread-local
 * storage until the next FAIL(). The command prints it once, at its end. Must not know where it is
 * printed: no logging and no exit here. */
#ifndef CONVOY_BASE_STATUS_H
#define CONVOY_BASE_STATUS_H

/* Groups, by the kind of failure and its remedy:
 *   NONE     no failure
 *   REQUEST  the run cannot go on as requested: a person must change something
 *   STORE    the disk failed or is full
 *   DEVICE   this node's device is missing or faulty, or its results are wrong
 *   RETRY    a failure that passes: a scheduler restarts, and only time is lost
 *   STOP     no failure: the end of the run was requested
 *   BUG      the program is wrong: a person must report it */
enum status_group {
    STATUS_GROUP_NONE,
    STATUS_GROUP_REQUEST,
    STATUS_GROUP_STORE,
    STATUS_GROUP_DEVICE,
    STATUS_GROUP_RETRY,
    STATUS_GROUP_STOP,
    STATUS_GROUP_BUG,
};

/* X(name, group, exit code, text of `convoy help exit-codes`): only codes that the program
 * returns. */
#define STATUS_LIST(X)                                                                           \
    X(OK, NONE, 0, "done")                                                                       \
    X(UNHEALTHY, REQUEST, 1,                                                                     \
      "`check` or `status` found a fault (take the node out of service), or `verify` or "        \
      "`rehearse` found one")                                                                    \
    X(USAGE, REQUEST, 64, "unknown command or argument; do not restart")                         \
    X(BAD_DATA, REQUEST, 65,                                                                     \
      "corrupt input, or no valid checkpoint where one was required; do not restart")            \
    X(SCHEMA, REQUEST, 65,                                                                       \
      "a checkpoint of a schema that this version does not read; do not restart")                \
    X(NO_INPUT, REQUEST, 66, "input is missing; do not restart")                                 \
    X(NO_DEVICE, DEVICE, 69, "the requested device or library is missing; try another node")     \
    X(BUG, BUG, 70, "a bug (assertion or crash), with a report")                                 \
    X(STORE, STORE, 74,                                                                          \
      "storage failed (disk full, input/output error); the last checkpoint is intact")           \
    X(RETRY, RETRY, 75,                                                                          \
      "temporary: a worker was lost, other processes hold the memory, or preemption (SIGUSR1) "  \
      "after a checkpoint; restart")                                                             \
    X(PEER, RETRY, 75,                                                                           \
      "temporary: another worker or node was lost, or a deadline passed; restart and resume")    \
    X(DISAGREE, REQUEST, 76,                                                                     \
      "nodes disagree (version, settings, data), a NODE_ID is given twice, or the check before " \
      "a run fails and no result points to one node; do not restart")                            \
    X(NOT_ADMITTED, REQUEST, 77,                                                                 \
      "not admitted: another JOB_TOKEN or version than node 0's; do not restart")                \
    X(BAD_SETTING, REQUEST, 78,                                                                  \
      "a bad setting, settings that contradict each other, or more memory than the machine "     \
      "has; do not restart")                                                                     \
    X(NOT_FINITE, DEVICE, 79, "loss not finite beyond recovery")                                 \
    X(SPIKE, DEVICE, 79,                                                                         \
      "loss or gradient norm far above its history: once (SPIKE=stop), or six times in 128 "     \
      "steps (SPIKE=skip)")                                                                      \
    X(FAULT, DEVICE, 80, "device fault, or corruption suspected on this node; drain the node")   \
    X(HANG, DEVICE, 81, "a worker hung beyond the allowed restarts")                             \
    X(INTERRUPTED, STOP, 130, "SIGINT, after a checkpoint; restart and resume")                  \
    X(TERMINATED, STOP, 143, "SIGTERM or SIGHUP, after a checkpoint; restart and resume")

enum status {
#define STATUS_ENUM(name, group, code, text) ST_##name,
    STATUS_LIST(STATUS_ENUM)
#undef STATUS_ENUM
        STATUS_N
};

const char *status_name(enum status st); /* "BAD_DATA"; never NULL */
const char *status_text(enum status st); /* text of the list; never NULL */
int status_exit_code(enum status st);    /* exit code of the process */
/* status_group — returns the group of the list. */
enum status_group status_group(enum status st);
/* status_from_exit — returns the first status in the list with this exit code (75: ST_RETRY), or
 * ST_BUG if no row has it. */
enum status status_from_exit(int code);

/* status_fail_at — writes the sentence (at most 1023 bytes, truncated with "…") and returns st. Use
 * FAIL(). */
enum status status_fail_at(const char *file, int line, enum status st, const char *fmt, ...)
    __attribute__((format(printf, 4, 5), cold));
/* status_trace_at — appends "file:line" to the trace of the current failure and returns st. Use
 * TRY(). */
enum status status_trace_at(const char *file, int line, enum status st) __attribute__((cold));
const char *status_message(void); /* the sentence of this thread's last FAIL(); "" if none */
const char *status_trace(void);   /* "data/corpus.c:88 < data/feed.c:41"; for debug logs */
/* status_clear — removes this thread's failure: message and trace become "". */
void status_clear(void);
/* status_file_name — returns folder and name from a source path, because names repeat between
 * folders: "peer_copy/choice.c" for "src/train/peer_copy/choice.c". If the file's name begins with
 * the folder's, the folder is left out: "trainer.c". */
const char *status_file_name(const char *path);
/* A copy of a thread's failure. */
struct status_saved {
    char message[1024];
    char trace[512]; /* "file:line" of each function that returned the failure */
};
/* status_save — copies this thread's failure before a cleanup that may FAIL() again. */
void status_save(struct status_saved *out);
/* status_restore — makes the copy this thread's failure again. */
void status_restore(const struct status_saved *saved);

/* FAIL — for the function that detects a failure: `return FAIL(ST_NO_INPUT, "cannot open %s: %s;
 * check DATA", path, strerror(errno));` */
#define FAIL(st, ...) status_fail_at(__FILE__, __LINE__, (st), __VA_ARGS__)

/* TRY — returns a failure to the caller, with this file and line added. */
#define TRY(x)                                                   \
    do {                                                         \
        enum status try_st_ = (x);                               \
        if (try_st_ != ST_OK)                                    \
            return status_trace_at(__FILE__, __LINE__, try_st_); \
    } while (0)

/* TRY_OR — is TRY for a function that owns resources: sets the function's local `st`, and on a
 * failure jumps to the label that cleans up. */
#define TRY_OR(x, label)                             \
    do {                                             \
        st = (x);                                    \
        if (st != ST_OK) {                           \
            status_trace_at(__FILE__, __LINE__, st); \
            goto label;                              \
        }                                            \
    } while (0)

#endif
