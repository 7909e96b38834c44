/* plan_link — LINK=auto: chooses the form in which gradients should travel over a link, from
 * measurements of the first steps of a run. Pure. It must not know settings, ranks' connections or
 * logs.
 *
 * The steps show the time of computation, the time of waiting for other ranks, and the rate at
 * which this rank's bytes were sent. For each form the estimate has the bytes that a rank sends to
 * other nodes, at that rate, and the time to quantise and code. Time that was hidden by computation
 * stays hidden.
 *
 * With N nodes of L workers each, P parameters, and a form of b bits an element, a rank sends to
 * other nodes in an exchange
 *   2 (N-1)/N · 4 P/L     fp32: the sums of a node are made before
 *   2 (N-1)/N · 2 P       bf16, with one worker on each node
 *   (N-1)/N · (4+2) P/L   bf16, with several: sums of a node travel as fp32, the result as bf16
 *   2 (N-1)/N · P b/8     quantised: each worker quantises its own gradient
 *   2 (N-1)/N · P/L b/8   quantised, in an outer step of LOCAL_STEPS
 *
 * The choice is the first form of this order that fits:
 *   1. fp32, bf16, int8, int8-zstd, int4-zstd, if at most PLAN_LINK_WAIT_MOST of a step waits
 *   2. the fastest of these, if at most PLAN_LINK_CHANGED_MOST of a step waits
 *   3. LOCAL_STEPS=H, fp32, then int4-zstd: the smallest H in which at most
 *      PLAN_LINK_CHANGED_MOST of a step waits; the largest H if none does
 * The later ones change the loss more (docs/benchmarks.md). */
#ifndef CONVOY_PLAN_PLAN_LINK_H
#define CONVOY_PLAN_PLAN_LINK_H

#include "base/text.h"
#include "mesh/grad/compress.h"

/* steps at the beginning, which are not measured because they touch new memory */
#define PLAN_LINK_SKIPPED 1
#define PLAN_LINK_STEPS 5
#define PLAN_LINK_WAIT_MOST 0.1
#define PLAN_LINK_CHANGED_MOST 0.3
#define PLAN_LINK_FORMS 17

/* A measured step of this rank, as in struct step_result. */
struct plan_link_step {
    double step_ms, comm_ms, wait_ms;
    int64_t sent_bytes;
};

struct plan_link_form {
    enum grad_compress_kind compress;
    int64_t local_steps; /* 0: gradients travel in every step */
    double sent_bytes;   /* bytes to other nodes for each step, on average */
    double step_ms, wait_ms;
};

struct plan_link_run {
    /* set by the caller */
    int64_t params;
    int nodes, locals;
    enum grad_compress_kind compress; /* the run's current form */
    bool allows_local_steps;          /* each worker holds the whole model */
    /* measured */
    int seen_n;
    struct plan_link_step step[PLAN_LINK_STEPS];
};

/* plan_link_add — adds one step. true: it was the last one that is needed; the next two may be
 * called. */
bool plan_link_add(struct plan_link_run *link, const struct plan_link_step *step);
/* plan_link_forms — estimates each form in the order above and returns the number of forms; for
 * tests. *now_out: the run's form, with its measured times, or -1: it is none of them (int4).
 * *choice_out: the proposal. */
int plan_link_forms(const struct plan_link_run *link, struct plan_link_form form[PLAN_LINK_FORMS],
                    int *now_out, int *choice_out);
/* plan_link_text — appends three sentences: the measurements, the estimated time of each form, the
 * proposal and its reason. */
void plan_link_text(const struct plan_link_run *link, struct text *out);

#endif
