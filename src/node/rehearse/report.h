/* rehearse_report — writes the results of a rehearsal, as a table for people or as JSON. Must not
 * know how a run is made. */
#ifndef CONVOY_NODE_REHEARSE_REPORT_H
#define CONVOY_NODE_REHEARSE_REPORT_H

#include "base/text.h"
#include "node/rehearse/losses.h"
#include "node/rehearse/run.h"

struct rehearse_report {
    int nodes_n;
    int gpus_n, gpu_workers_n; /* GPUs of this machine, workers that use them; 0: none */
    int64_t seed, every_ms, duration_ms;
    struct rehearse_mix mix;
    int64_t sentinel_every; /* SENTINEL_EVERY set by the rehearsal; 0: not set */
    /* reason why a kind of fault cannot be made here; "": it can be */
    char left_out[REHEARSE_KINDS_N][300];
    struct rehearse_result *calm, *faulty; /* times of outcomes are not changed */
    /* number of checkpoints that both runs have written */
    int compared_n;
    int64_t compared_step; /* step of the last one */
    uint64_t calm_weights, faulty_weights;
    bool is_equal; /* all compared weights are equal */
    /* the job repeats its bits: the weights are judged, else the losses */
    bool is_exact;
    struct rehearse_losses losses;
    bool is_whole;      /* every sample is in exactly one step */
    char problem[1200]; /* first problem; "": none */
};

/* rehearse_report_write — appends the report to out. */
void rehearse_report_write(const struct rehearse_report *report, bool as_json, struct text *out);

#endif
