/* member — one node's side of the job: what it says to the coordinator, and what it makes of the
 * answers.
 *
 * A pure state machine: (state, event, now) → state, and actions for the driver to carry out. No
 * system calls, no memory of its own beyond the struct, no clock but the caller's.
 *
 * A lease makes two worlds at once impossible: a member counts node 0's silence from the moment it
 * sent the message that was last answered, so it gives its world up no later than node 0 declares
 * it dead. How long the lease is node 0 says with each answer; this node says how long it lately
 * stood still. Must not know sockets. */
#ifndef CONVOY_CLUSTER_MEMBER_H
#define CONVOY_CLUSTER_MEMBER_H

#include "net/loop_lag.h"
#include "cluster/message.h"

#define MEMBER_LEASE_FACTOR_MAX 4 /* × peer_timeout_ms: no answer is good for longer */
/* node 0's connection ended and it cannot be reached for so long: it is gone */
#define MEMBER_DISCONNECTED_MS 400
#define MEMBER_LEAVE_MS 3000       /* who leaves waits so long for node 0 to note it */
#define MEMBER_LEAVE_SILENT_MS 500 /* likewise, when node 0 has been silent for MEMBER_LEAVE_MS */

struct member_config {
    int node_id;
    int64_t join_timeout_ms, peer_timeout_ms;
    struct message_incarnation incarnation;
};

/* What the driver is to do, in this order. */
struct member_actions {
    int64_t abort; /* give up this generation; 0 none; why in text */
    int64_t fetch; /* ask for the addresses of this world; 0 none */
    int stop;      /* 0 none */
    bool is_over;  /* the end: st, text */
    enum status st;
    bool is_urgent; /* tell node 0 now, not at the next beat */
    char text[MESSAGE_TEXT_MAX];
};

struct member {
    struct member_config config;
    struct message_incarnation coordinator; /* zero: none met yet */
    int64_t sequence, revision;
    int64_t generation; /* the highest heard of */
    int64_t running;    /* the world it is in; 0 none */
    int64_t ready;      /* how often ready */
    bool is_ready, is_ready_held,
        is_ready_sent;        /* the last readiness waits for a world · node 0 has its addresses */
    bool is_joined;           /* by this coordinator */
    bool is_welcome;          /* ever */
    int64_t since_ms;         /* looking for node 0 since */
    int64_t answered_ms;      /* when the message was sent that was last answered; -1 never */
    int64_t contact_ms;       /* likewise, with a lease or without */
    int64_t lease_ms;         /* how long that answer is good for */
    struct loop_lag lag;      /* this process itself */
    int64_t disconnected_ms;  /* node 0 cannot be reached since; -1 it can */
    int64_t losses, lost;     /* as in message_heartbeat */
    int64_t replied_sequence; /* the highest answered */
    enum status lost_st;
    int stop, known_stop; /* asked here · heard of or asked here */
    bool is_leaving, is_over;
    int64_t leaving_ms;
    enum status leave_st;
    int64_t step;
    struct message_restarts counts;
    char why[MESSAGE_TEXT_MAX];     /* of lost or of leaving */
    char missing[MESSAGE_TEXT_MAX]; /* as told */
    char trouble[256];              /* why node 0 cannot be reached, for people */
};

void member_init(struct member *m, const struct member_config *config, int64_t now_ms);

/* What the supervisor tells. Each sets actions->is_news when node 0 should hear at once. */
void member_ready(struct member *m, struct member_actions *actions);
void member_lost(struct member *m, int64_t generation, enum status st, const char *why,
                 struct member_actions *actions);
void member_stop(struct member *m, int request, struct member_actions *actions);
/* member_abandon — the world is given up at once, for nothing moves in it; node 0 hears of it when
 * it can. */
void member_abandon(struct member *m, const char *why, struct member_actions *actions);
void member_leave(struct member *m, enum status st, const char *why, int64_t now_ms,
                  struct member_actions *actions);

/* member_make_heartbeat — the next message (without ranks and addresses: the driver's); true: say
 * hello with it. */
bool member_make_heartbeat(struct member *m, int64_t now_ms, struct message_heartbeat *heartbeat);
/* member_has_addresses — the next message carries the workers' addresses: only to a coordinator
 * that is known, so that no two make a world of them. */
bool member_has_addresses(const struct member *m);
/* member_on_reply — an answer to a message sent at sent_ms. */
void member_on_reply(struct member *m, const struct message_reply *reply, int64_t sent_ms,
                     int64_t now_ms, struct member_actions *actions);
/* member_on_world — the addresses of this world are here: true when it is to be entered now. */
bool member_on_world(struct member *m, int64_t generation, int64_t now_ms);
/* member_on_disconnect — node 0 closed the connection, or refused one; why for people. member_tick:
 * several times a second. */
void member_on_disconnect(struct member *m, const char *why, int64_t now_ms);
void member_tick(struct member *m, int64_t now_ms, struct member_actions *actions);

#endif
