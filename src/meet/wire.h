/* wire — what members and the coordinator say to each other: the messages as structs, and their
 * JSON.
 *
 * A message tells a whole state, never a change: a lost, doubled or late one does no harm. A member
 * says what it is and wants (struct wire_says; the first time with a hello); the coordinator
 * answers with the job's state as this member is to see it (struct wire_told). Addresses travel
 * apart: a member's own when they are new, everybody's once a generation. Readers are pure
 * functions of (bytes, size). Must not know sockets, time or who is in the right. */
#ifndef CONVOY_MEET_WIRE_H
#define CONVOY_MEET_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "meet/meet.h"

#define WIRE_PROTOCOL 1
#define WIRE_TEXT_MAX 1024
#define WIRE_BODY_MAX ((size_t)256 << 10) /* of a member's message */
#define WIRE_AGREE_MAX ((size_t)48 << 10)
/* The widest world: every address in base64. */
#define WIRE_WORLD_MAX ((size_t)24 << 20)

/* One life of one process: 128 random bits; all zero: nobody. */
struct wire_instance {
    uint64_t hi, lo;
};
static inline bool wire_is_same(struct wire_instance a, struct wire_instance b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* How often the job began anew; every member keeps a copy, for a node 0 that lost its memory. */
struct wire_counts {
    int64_t restarts;
    int64_t barren;    /* in a row that ended without a step nobody had reached before */
    int64_t step_best; /* the furthest step when that was last counted; -1 none */
};

/* Who joins: only the first time. */
struct wire_hello {
    int64_t protocol;
    int nodes_n, workers_n;
    int64_t pid;
    char host[64];
    const char *agree_json; /* borrowed from the reader's struct */
};

/* What a member says: its whole state. */
struct wire_says {
    int node_id;
    struct wire_instance instance;
    int64_t sequence;   /* rises with every message of this instance */
    int64_t turn;       /* of the coordinator's state, as last told; -1 never */
    int64_t silence_ms; /* since it sent the message that was last answered: does it hear us? */
    /* it stood still for so long lately (late.h): its host has too much to do */
    int64_t late_ms;
    int64_t generation; /* the highest it has heard of */
    int64_t running;    /* the world it is in; 0 none */
    int64_t ready;      /* how often its workers were ready; this one is not used up yet, else 0 */
    int64_t losses;     /* how often its workers were lost, or it gave a world up */
    int64_t lost;       /* the last time: the generation; 0: before there was a world */
    enum status lost_st;
    bool is_leaving;
    enum status leave_st;
    int stop;     /* as its supervisor was asked; 0 not */
    int64_t step; /* the furthest any of its ranks has done; -1 none */
    struct wire_counts counts;
    char why[WIRE_TEXT_MAX]; /* of lost or of leaving; "" */
    int ranks_n;             /* ≤ MEET_WORKERS_MAX */
    const struct meet_rank *ranks;
    int addresses_n; /* 0, or all of this node's workers, of `ready` */
    const struct meet_address *addresses;
};

/* What the coordinator answers. */
enum wire_answer {
    WIRE_ANSWER_IN,   /* you are a member; the rest holds */
    WIRE_ANSWER_JOIN, /* I do not know you: say hello */
    WIRE_ANSWER_WAIT, /* somebody else may still hold your place: say hello again */
    WIRE_ANSWER_END   /* it is over for you: st, text */
};
struct wire_told {
    enum wire_answer answer;
    struct wire_instance coordinator;
    int64_t turn;       /* rises when the job's state changes */
    int64_t sequence;   /* of the message that this answers */
    int64_t generation; /* the last world made */
    bool is_running;    /* it stands; else all gather */
    bool is_lease;      /* the message counts as heard; else say again at once */
    int64_t lease_ms;   /* for so long, from when the message was sent; 0: for PEER_TIMEOUT */
    int64_t ready;      /* the readiness of yours that is held, with addresses; 0 none */
    int64_t used;       /* the readiness of yours that the last world with you used up; 0 none */
    bool is_left;       /* your leaving is noted */
    int stop;           /* somebody was asked; 0 not */
    enum status st;     /* END */
    struct wire_counts counts;
    /* END: why · gathering: who is awaited, or why the last world ended */
    char text[WIRE_TEXT_MAX];
    char missing[WIRE_TEXT_MAX];
};

/* ---- JSON ---- */

/* What a body said, with the memory that its pointers lead to. */
struct wire_body {
    struct wire_says says;
    struct wire_hello hello;
    bool has_hello;
    int64_t hold_ms; /* how long the answer may wait for something new */
    struct meet_rank ranks[MEET_WORKERS_MAX];
    struct meet_address addresses[MEET_WORKERS_MAX];
    char agree[WIRE_AGREE_MAX];
};

/* Writers append; a text that overflowed its limit is not to be sent. hello NULL: none. */
void wire_write_says(struct text *out, const struct wire_says *says, const struct wire_hello *hello,
                     int64_t hold_ms);
void wire_write_told(struct text *out, const struct wire_told *told);
void wire_write_ask(struct text *out, int node_id, struct wire_instance instance,
                    int64_t generation);
void wire_write_world(struct text *out, const struct meet_world *world);

/* Readers of bodies of any content: ST_BAD_DATA with a sentence. Of another protocol only protocol,
 * node_id and host are read (a hello is then said to be there, so that the difference is named). */
enum status wire_read_says(const char *bytes, size_t n, struct wire_body *out);
enum status wire_read_told(const char *bytes, size_t n, struct wire_told *out);
enum status wire_read_ask(const char *bytes, size_t n, int *node_id_out,
                          struct wire_instance *instance_out, int64_t *generation_out);
/* wire_read_world — addresses: room for ranks_n; another number is refused. */
enum status wire_read_world(const char *bytes, size_t n, int ranks_n,
                            struct meet_address *addresses, int64_t *generation_out,
                            uint8_t secret[MEET_SECRET_BYTES]);

#endif
