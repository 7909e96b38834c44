/* ledger — the record of a run: a text file beside the checkpoints that says which samples each
 * step has trained on, what ran it, and which weights came out; and its audit.
 *
 * The file DIR/ledger.jsonl only grows. Each line is a JSON object that ends with the XXH3-64 of
 * its other bytes, seeded with the line before's: a line that is altered or missing is found. Kinds
 * of lines; a reader passes over others:
 *
 *   {"generation":2,"after":100,"sample":800,"data":"89ab…","xxh3_64":"…"}
 *     a process goes on after step 100 of a checkpoint (0: begins) with sample 800 of that data.
 *     What earlier lines say of later steps is superseded: these steps are done again. If a pass
 *     over the data has each sample once: "epoch":1000,"order":"cdef…", the samples of a pass, and
 *     a fingerprint of their order.
 *   {"generation":2,"step":101,"steps":50,"sample":800,"samples":8,"outcome":"applied",…}
 *     steps 101 to 150 took 8 samples each, the first one sample 800; one outcome for all of them.
 *   {"generation":2,"provenance":{"version":…,"model":…,"settings":…,"layout":…,"devices":[…]},…}
 *     what decides the results of this generation, besides the data. With "exact":true two such
 *     generations come to the same weights.
 *   {"generation":2,"checkpoint":150,"weights":"01ef…","state":"23ab…","xxh3_64":"…"}
 *     the checkpoint of step 150: XXH3-64 of its parameters' file, and of all files' checksums.
 *
 * A sample is the number that the run counts: its place in the order of all epochs. An incomplete
 * last line is what a crash leaves, and counts as not written. It must not know training. */
#ifndef CONVOY_FORMAT_LEDGER_H
#define CONVOY_FORMAT_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define LEDGER_NAME "ledger.jsonl"
#define LEDGER_LINE_MAX 8192                  /* bytes of a line, its end included */
#define LEDGER_BYTES_MAX ((int64_t)256 << 20) /* of a file that is read */
#define LEDGER_COUNT_MAX ((int64_t)1 << 50)   /* of steps, and of samples */

enum ledger_outcome {
    LEDGER_OUTCOME_APPLIED,
    LEDGER_OUTCOME_NOT_FINITE, /* skipped: loss or norm was not finite */
    LEDGER_OUTCOME_SPIKE,      /* skipped: loss or norm was a spike */
    LEDGER_OUTCOMES_N
};

struct ledger_start {
    int64_t generation; /* processes that trained, from 1 */
    int64_t after;      /* steps done before */
    int64_t sample;     /* the next one */
    uint64_t data;      /* fingerprint */
    int64_t epoch;      /* samples of a pass over the data; 0: no pass has each sample once */
    uint64_t order;     /* fingerprint of the order of samples, if epoch > 0 */
};

/* Steps one after the other, of which each took as many samples. */
struct ledger_run {
    int64_t generation, step, steps, sample, samples;
    enum ledger_outcome outcome;
};

struct ledger_checkpoint {
    int64_t generation, step;
    uint64_t weights, state;
};

/* ledger_write_… — one line; *hash: of the line before (0: none), then of this.
 * _provenance: json: an object. False: it is too long for a line, and nothing is written. */
void ledger_write_start(const struct ledger_start *start, uint64_t *hash,
                        char out[LEDGER_LINE_MAX]);
void ledger_write_run(const struct ledger_run *run, uint64_t *hash, char out[LEDGER_LINE_MAX]);
bool ledger_write_provenance(int64_t generation, const char *json, uint64_t *hash,
                             char out[LEDGER_LINE_MAX]);
void ledger_write_checkpoint(const struct ledger_checkpoint *checkpoint, uint64_t *hash,
                             char out[LEDGER_LINE_MAX]);
/* ledger_hash_checkpoint — weights and state of a checkpoint's folder, from its manifest. Errors:
 * as ckpt_open_lazy. */
enum status ledger_hash_checkpoint(const char *path, struct ledger_checkpoint *out);
/* ledger_append — whether run continues *to, which it then is a part of. */
bool ledger_append(struct ledger_run *to, const struct ledger_run *run);

#define LEDGER_CHECKPOINTS_MAX 20000

/* What a ledger says of a run. */
struct ledger_audit {
    int64_t first, last; /* steps that are there: first … last; none: last is first - 1 */
    int64_t sample, end; /* their samples: sample … end - 1 */
    int64_t steps[LEDGER_OUTCOMES_N], samples[LEDGER_OUTCOMES_N];
    int64_t step_samples; /* samples of the last step */
    int64_t epoch;        /* samples of a pass over the data; 0: not known, or they changed */
    int64_t reordered;    /* step after which the order is another, or not recorded; 0: none */
    int64_t again;        /* steps of which an earlier result was lost, done again */
    int64_t generations;  /* of the last line */
    int64_t data_changes; /* generations with other data than the one before */
    uint64_t data;
    uint64_t hash; /* of the last line */
    size_t bytes;  /* of complete lines; what is behind them is incomplete */
    bool is_torn;
    /* the newest entry of each step, the oldest step first; of the newest LEDGER_CHECKPOINTS_MAX */
    struct ledger_checkpoint *checkpoint;
    int checkpoints_n;
    char provenance[LEDGER_LINE_MAX]; /* of the last generation, a JSON object; "": not said */
    char problem[256];                /* the first gap or overlap; "": none */
};
/* ledger_audit — reads all of a ledger; the caller frees what it found, unless it fails.
 * ST_BAD_DATA: a line is none of ours, or was changed; ST_NO_INPUT: there is no such file. */
enum status ledger_audit(const char *path, struct ledger_audit *out);
void ledger_audit_free(struct ledger_audit *audit); /* accepts a zeroed one, twice */
/* ledger_audit_bytes — for tests: the same of bytes in memory; what: their name. */
enum status ledger_audit_bytes(const char *bytes, size_t n, const char *what,
                               struct ledger_audit *out);

#endif
