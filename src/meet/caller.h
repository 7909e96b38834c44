/* caller — requests to node 0, on the loop: libcurl, a few lanes, one request a lane. Nothing here
 * blocks, names are looked up aside. Must not know what is said. */
#ifndef CONVOY_MEET_CALLER_H
#define CONVOY_MEET_CALLER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "meet/secret.h"

struct event_base;
struct caller;

enum caller_lane { CALLER_LANE_BEAT, CALLER_LANE_NEWS, CALLER_LANE_WORLD, CALLER_LANES_N };

enum caller_result {
    CALLER_ANSWERED,    /* code and body */
    CALLER_UNREACHED,   /* no way there (yet), or no answer in time */
    CALLER_CLOSED,      /* refused or closed: nobody is there */
    CALLER_NOT_ADMITTED /* not the same key on both sides */
};

struct caller_answer {
    enum caller_lane lane;
    enum caller_result result;
    long code;
    const char *bytes; /* during the call */
    size_t n;
    int64_t sent_ms; /* when the request was begun */
    char why[256];   /* unless ANSWERED */
};

struct caller_config {
    struct event_base *loop;
    const char *host; /* borrowed during open */
    int port;
    const struct secret *secret;                                      /* outlives the caller */
    void (*on_answer)(void *arg, const struct caller_answer *answer); /* the lane is free again */
    void *arg;
};

enum status caller_open(const struct caller_config *config, struct caller **out);
void caller_close(struct caller *caller); /* not from on_answer; accepts NULL */
bool caller_is_busy(const struct caller *caller, enum caller_lane lane);
/* caller_post — takes the text's memory (leaves it empty). path: "/v1/say". */
void caller_post(struct caller *caller, enum caller_lane lane, const char *path,
                 struct text *take_body, size_t answer_max, int64_t timeout_ms);

#endif
