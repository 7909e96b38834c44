/* wire — what members and the coordinator say to each other: the messages as structs, and their
 * JSON.
 *
 * A message tells a whole state, never a change: a lost, doubled or late one does no harm. A member
 * says what it is and wants (struct message_heartbeat; the first time with a hello); the
 * coordinator answers with the job's state as this member is to see it (struct message_reply).
 * Addresses travel apart: a member's own when they are new, everybody's once a generation. Readers
 * are pure functions of (bytes, size). Must not know sockets, time or who is in the right. */
#ifndef CONVOY_CLUSTER_MESSAGE_H
#define CONVOY_CLUSTER_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "base/text.h"
#include "cluster/cluster.h"

#define MESSAGE_PROTOCOL 1
#define MESSAGE_TEXT_MAX 1024
#define MESSAGE_BODY_MAX ((size_t)256 << 10) /* of a member's message */
#define MESSAGE_AGREE_MAX ((size_t)48 << 10)
/* The widest world: every address in base64. */
#define MESSAGE_WORLD_MAX ((size_t)24 << 20)

/* One life of one process: 128 random bits; all zero: nobody. */
struct message_incarnation {
    uint64_t hi, lo;
};
static inline bool message_is_same(struct message_incarnation a, struct message_incarnation b)
{
    return a.hi == b.hi && a.lo == b.lo;
}

/* How often the job began anew; every member keeps a copy, for a node 0 that lost its memory. */
struct message_restarts {
    int64_t restarts;
    int64_t no_progress; /* in a row that ended without a step nobody had reached before */
    int64_t best_step;   /* the furthest step when that was last counted; -1 none */
};

/* Who joins: only the first time. */
struct message_join {
    int64_t protocol;
    int nodes_n, workers_n;
    int64_t pid;
    char host[64];
    const char *agree_json; /* borrowed from the reader's struct */
};

/* What a member says: its whole state. */
struct message_heartbeat {
    int node_id;
    struct message_incarnation incarnation;
    int64_t sequence;   /* rises with every message of this instance */
    int64_t revision;   /* of the coordinator's state, as last told; -1 never */
    int64_t silence_ms; /* since it sent the message that was last answered: does it hear us? */
    /* it stood still for so long lately (late.h): its host has too much to do */
    int64_t lag_ms;
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
    struct message_restarts counts;
    char why[MESSAGE_TEXT_MAX]; /* of lost or of leaving; "" */
    int ranks_n;                /* ≤ CLUSTER_WORKERS_MAX */
    const struct cluster_rank *ranks;
    int addresses_n; /* 0, or all of this node's workers, of `ready` */
    const struct cluster_address *addresses;
};

/* What the coordinator answers. */
enum message_answer {
    MESSAGE_ANSWER_MEMBER, /* you are a member; the rest holds */
    MESSAGE_ANSWER_JOIN,   /* I do not know you: say hello */
    MESSAGE_ANSWER_WAIT,   /* somebody else may still hold your place: say hello again */
    MESSAGE_ANSWER_END     /* it is over for you: st, text */
};
struct message_reply {
    enum message_answer answer;
    struct message_incarnation coordinator;
    int64_t revision;   /* rises when the job's state changes */
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
    struct message_restarts counts;
    /* END: why · gathering: who is awaited, or why the last world ended */
    char text[MESSAGE_TEXT_MAX];
    char missing[MESSAGE_TEXT_MAX];
};

/* ---- JSON ---- */

/* What a body said, with the memory that its pointers lead to. */
struct message_body {
    struct message_heartbeat heartbeat;
    struct message_join join;
    bool has_join;
    int64_t hold_ms; /* how long the answer may wait for something new */
    struct cluster_rank ranks[CLUSTER_WORKERS_MAX];
    struct cluster_address addresses[CLUSTER_WORKERS_MAX];
    char agree[MESSAGE_AGREE_MAX];
};

/* Writers append; a text that overflowed its limit is not to be sent. hello NULL: none. */
void message_write_heartbeat(struct text *out, const struct message_heartbeat *heartbeat,
                             const struct message_join *join, int64_t hold_ms);
void message_write_reply(struct text *out, const struct message_reply *reply);
void message_write_world_request(struct text *out, int node_id,
                                 struct message_incarnation incarnation, int64_t generation);
void message_write_world(struct text *out, const struct cluster_world *world);

/* Readers of bodies of any content: ST_BAD_DATA with a sentence. Of another protocol only protocol,
 * node_id and host are read (a hello is then said to be there, so that the difference is named). */
enum status message_read_heartbeat(const char *bytes, size_t n, struct message_body *out);
enum status message_read_reply(const char *bytes, size_t n, struct message_reply *out);
enum status message_read_world_request(const char *bytes, size_t n, int *node_id_out,
                                       struct message_incarnation *incarnation_out,
                                       int64_t *generation_out);
/* message_read_world — addresses: room for ranks_n; another number is refused. */
enum status message_read_world(const char *bytes, size_t n, int ranks_n,
                               struct cluster_address *addresses, int64_t *generation_out,
                               uint8_t secret[CLUSTER_SECRET_BYTES]);

#endif
