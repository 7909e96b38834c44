/* plan_link — LINK=auto: in which form gradients should travel over the link that the first steps
 * of a run have measured. Pure. It must not know settings, ranks' connections or logs.
 *
 * The steps say how long one computes, how long it waits for other ranks, and how fast what this
 * rank sent has gone. For each form: the bytes that a rank sends to other nodes, at that rate, and
 * the time to quantise and code. What was hidden behind computation stays hidden.
 *
 * With N nodes of L workers each, P parameters, and a form of b bits an element, a rank sends to
 * other nodes in an exchange
 *   2 (N-1)/N · 4 P/L     fp32: the sums of a node are made before
 *   2 (N-1)/N · 2 P       bf16, with one worker on each node
 *   (N-1)/N · (4+2) P/L   bf16, with several: sums of a node travel as fp32, what follows as bf16
 *   2 (N-1)/N · P b/8     quantised: each worker quantises its own gradient
 *   2 (N-1)/N · P/L b/8   quantised, in an outer step of LOCAL_STEPS
 *
 * The choice is the first of this order that fits:
 *   1. fp32, bf16, int8, int8-zstd, int4-zstd, if at most PLAN_LINK_WAIT_MOST of a step waits
 *   2. of these the fastest, if at most PLAN_LINK_CHANGED_MOST of a step waits
 *   3. LOCAL_STEPS=H, fp32, then int4-zstd: the smallest H in which at most
 *      PLAN_LINK_CHANGED_MOST of a step waits; the largest H if none does
 * The later ones change the loss more (docs/benchmarks.md). */
#ifndef CONVOY_PLAN_PLAN_LINK_H
#define CONVOY_PLAN_PLAN_LINK_H

#include "base/text.h"
#include "mesh/grad/compress.h"

#define PLAN_LINK_SKIPPED 1 /* steps at the beginning, which touch new memory */
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
    double sent_bytes;   /* to other nodes, of a step in the mean */
    double step_ms, wait_ms;
};

struct plan_link_run {
    /* set by the caller */
    int64_t params;
    int nodes, locals;
    enum grad_compress_kind compress; /* that the run has now */
    bool takes_local;                 /* each worker holds the whole model */
    /* measured */
    int seen_n;
    struct plan_link_step step[PLAN_LINK_STEPS];
};

/* plan_link_add — one step. true: it was the last one that is needed; the next two may be called.
 * plan_link_forms — for tests: how long each form would take, in the order above; returns how many
 * there are.
 * *now_out: the one that the run has, as measured, or -1: it is none of them (int4).
 * *choice_out: the proposal.
 * plan_link_text — appends three sentences: what was measured, what each form would take, what is
 * proposed and why. */
bool plan_link_add(struct plan_link_run *link, const struct plan_link_step *step);
int plan_link_forms(const struct plan_link_run *link, struct plan_link_form form[PLAN_LINK_FORMS],
                    int *now_out, int *choice_out);
void plan_link_text(const struct plan_link_run *link, struct text *out);

#endif
