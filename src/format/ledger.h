/* ledger — the record of a run: a text file next to the checkpoints that lists the samples of each
 * step, the program and devices that ran it, and the resulting weights; and its audit.
 *
 * The file DIR/ledger.jsonl only grows. Each line is a JSON object that ends with the XXH3-64 of
 * its other bytes, seeded with the hash of the previous line: an altered or missing line is found.
 * Kinds of lines; a reader ignores others:
 *
 *   {"generation":2,"after":100,"sample":800,"data":"89ab…","xxh3_64":"…"}
 *     a process goes on after step 100 of a checkpoint (0: begins) with sample 800 of that data.
 *     Results of later steps in earlier lines are superseded: these steps are done again. If a pass
 *     over the data has each sample once: "epoch":1000,"order":"cdef…", the samples of a pass, and
 *     a fingerprint of their order.
 *   {"generation":2,"step":101,"steps":50,"sample":800,"samples":8,"outcome":"applied",…}
 *     steps 101 to 150 had 8 samples each, from sample 800 on; one outcome for all of them. With
 *     conversations: "trained":63, the tokens of each step that counted in the loss.
 *   {"generation":2,"provenance":{"version":…,"model":…,"settings":…,"layout":…,"devices":[…]},…}
 *     the inputs that decide the results of this generation, besides the data. With "exact":true
 *     two such generations come to the same weights. "commits": as in ckpt.h.
 *   {"generation":2,"checkpoint":150,"weights":"01ef…","state":"23ab…","xxh3_64":"…"}
 *     the checkpoint of step 150: XXH3-64 of its parameters' file, and of all files' checksums.
 *
 * A sample is the number that the run counts: its position in the order of all epochs. A crash may
 * leave an incomplete last line, which counts as not written. It must not know training. */
#ifndef CONVOY_FORMAT_LEDGER_H
#define CONVOY_FORMAT_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEDGER_NAME "ledger.jsonl"
#define LEDGER_LINE_MAX 8192                  /* bytes of a line, including its end */
#define LEDGER_BYTES_MAX ((int64_t)256 << 20) /* bytes of a file that is read */
#define LEDGER_COUNT_MAX ((int64_t)1 << 50)   /* number of steps, and of samples */

enum ledger_outcome {
    LEDGER_OUTCOME_APPLIED,
    LEDGER_OUTCOME_NOT_FINITE, /* skipped: loss or norm was not finite */
    LEDGER_OUTCOME_SPIKE,      /* skipped: loss or norm was a spike */
    LEDGER_OUTCOMES_N
};

struct ledger_start {
    int64_t generation; /* processes that trained, from 1 */
    int64_t after;      /* steps done before this generation */
    int64_t sample;     /* the next sample */
    uint64_t data;      /* fingerprint */
    int64_t epoch;      /* samples of a pass over the data; 0: no pass has each sample once */
    uint64_t order;     /* fingerprint of the order of samples, if epoch > 0 */
};

/* Consecutive steps with the same numbers of samples and of trained tokens. */
struct ledger_run {
    int64_t generation, step, steps, sample, samples;
    enum ledger_outcome outcome;
    int64_t trained; /* tokens of each step that counted in the loss; 0: not recorded */
};

struct ledger_checkpoint {
    int64_t generation, step;
    uint64_t weights, state;
};

/* ledger_write_start — writes one line: the start of a generation. *hash: the hash of the previous
 * line (0: none), then of this one. */
void ledger_write_start(const struct ledger_start *start, uint64_t *hash,
                        char out[LEDGER_LINE_MAX]);
/* ledger_write_run — does the same for a run of steps. */
void ledger_write_run(const struct ledger_run *run, uint64_t *hash, char out[LEDGER_LINE_MAX]);
/* ledger_write_provenance — does the same for provenance. json: an object. Returns false if it is
 * too long for a line; then nothing is written. */
bool ledger_write_provenance(int64_t generation, const char *json, uint64_t *hash,
                             char out[LEDGER_LINE_MAX]);
/* ledger_write_checkpoint — does the same for a checkpoint. */
void ledger_write_checkpoint(const struct ledger_checkpoint *checkpoint, uint64_t *hash,
                             char out[LEDGER_LINE_MAX]);
/* ledger_hash_checkpoint — computes weights and state of a checkpoint's folder, from its manifest.
 * Errors as for ckpt_open_lazy. */
enum status ledger_hash_checkpoint(const char *path, struct ledger_checkpoint *out);
/* ledger_append — returns true if `run` continues *to; it is then added to *to. */
bool ledger_append(struct ledger_run *to, const struct ledger_run *run);

#define LEDGER_CHECKPOINTS_MAX 20000

/* The result of an audit. */
struct ledger_audit {
    int64_t first, last; /* steps in the ledger: first … last; none: last is first - 1 */
    int64_t sample, end; /* their samples: sample … end - 1 */
    int64_t steps[LEDGER_OUTCOMES_N], samples[LEDGER_OUTCOMES_N], trained[LEDGER_OUTCOMES_N];
    int64_t step_samples; /* samples of the last step */
    int64_t epoch;        /* samples of a pass over the data; 0: unknown, or they changed */
    int64_t reordered;    /* the order is different, or not recorded, after this step; 0: never */
    int64_t again;        /* steps that were done again because an earlier result was lost */
    int64_t generations;  /* generation of the last line */
    int64_t data_changes; /* generations with other data than the previous one */
    uint64_t data;
    uint64_t hash; /* hash of the last line */
    size_t bytes;  /* bytes of complete lines; the rest is incomplete */
    bool is_torn;
    /* the newest entry of each step, the oldest step first; only the newest
     * LEDGER_CHECKPOINTS_MAX */
    struct ledger_checkpoint *checkpoint;
    int checkpoints_n;
    /* provenance of the last generation, a JSON object; "": not recorded */
    char provenance[LEDGER_LINE_MAX];
    char problem[256]; /* the first gap or overlap; "": none */
};
/* ledger_audit — reads all of a ledger; the caller frees the result, unless it fails. ST_BAD_DATA:
 * a line is none of ours, or was changed; ST_NO_INPUT: there is no such file. */
enum status ledger_audit(const char *path, struct ledger_audit *out);
/* accepts a zeroed struct; may be called twice */
void ledger_audit_free(struct ledger_audit *audit);
/* ledger_audit_bytes — does the same for bytes in memory with a name, for tests. */
enum status ledger_audit_bytes(const char *bytes, size_t n, const char *what,
                               struct ledger_audit *out);

#endif
