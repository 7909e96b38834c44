/* coordinator — see coordinator.h. Must not know sockets, clocks or processes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "meet/accord.h"
#include "meet/coordinator_inside.h"
#include "meet/tally.h"

/* ---- life ---- */

enum status coordinator_open(const struct coordinator_config *config, int64_t now_ms,
                             struct coordinator **out)
{
    size_t nodes_n = (size_t)config->nodes_n, ranks_n = nodes_n * (size_t)config->workers_n;
    struct coordinator *c = calloc(1, sizeof(*c));
    if (c != NULL) {
        c->slots = calloc(nodes_n, sizeof(*c->slots));
        c->addresses = calloc(ranks_n, sizeof(*c->addresses));
        c->ranks = calloc(ranks_n, sizeof(*c->ranks));
        c->roster = calloc(nodes_n, sizeof(*c->roster));
    }
    if (c == NULL || c->slots == NULL || c->addresses == NULL || c->ranks == NULL ||
        c->roster == NULL) {
        coordinator_close(c);
        return FAIL(ST_RETRY, "out of memory: the list of %d nodes with %d workers each",
                    config->nodes_n, config->workers_n);
    }
    c->config = *config;
    c->gather_ms = now_ms, c->fall_ms = INT64_MAX;
    late_init(&c->late, now_ms);
    c->step = c->counts.step_best = -1;
    c->turn = 1;
    for (size_t i = 0; i < nodes_n; i++)
        c->slots[i].closed_ms = -1;
    *out = c;
    return ST_OK;
}

void coordinator_close(struct coordinator *c)
{
    if (c == NULL)
        return;
    free(c->slots);
    free(c->addresses);
    free(c->ranks);
    free(c->roster);
    free(c);
}

/* ---- what people read ---- */

struct notes *coordinator_notes(struct coordinator *c) { return &c->notes; }
int64_t coordinator_turn(const struct coordinator *c) { return c->turn; }

static int id_of(const struct coordinator *c, const struct slot *slot)
{
    return (int)(slot - c->slots);
}

static bool is_here(const struct slot *slot)
{
    return slot->state == MEET_NODE_JOINED || slot->state == MEET_NODE_SUSPECT;
}

static bool is_absent(const struct slot *slot)
{
    return slot->state == MEET_NODE_AWAITED || slot->state == MEET_NODE_LOST;
}

static bool is_unready(const struct slot *slot)
{
    return is_here(slot) && slot->ready <= slot->used;
}

static bool is_absent_i(const void *slots, int i)
{
    return is_absent((const struct slot *)slots + i);
}
static bool is_unready_i(const void *slots, int i)
{
    return is_unready((const struct slot *)slots + i);
}

static void tell_missing(const struct coordinator *c, char *out, size_t cap)
{
    char list[WIRE_TEXT_MAX - 64];
    out[0] = 0;
    if (c->is_running || c->is_ended)
        return;
    int n = notes_list(c->config.nodes_n, is_absent_i, c->slots, list, sizeof(list));
    if (n > 0)
        text_format(out, cap, "node%s %s (%d of %d)", n > 1 ? "s" : "", list, n, c->config.nodes_n);
    else if ((n = notes_list(c->config.nodes_n, is_unready_i, c->slots, list, sizeof(list))) > 0)
        text_format(out, cap, "node%s %s to be ready (%d of %d)", n > 1 ? "s" : "", list, n,
                    c->config.nodes_n);
}

/* Does it hear us? Where both are late a round trip takes its time. */
static bool hears(const struct coordinator *c, const struct slot *slot,
                  const struct wire_says *says)
{
    return says->silence_ms < COORDINATOR_LEASE_MS + coordinator_grace(c, slot);
}

/* ---- what changes the job ---- */

static void changed(struct coordinator *c)
{
    c->turn++;
    c->is_missing_known = false;
}

static void end(struct coordinator *c, enum status st, const char *why)
{
    if (c->is_ended)
        return;
    c->is_ended = true;
    c->is_running = false;
    c->end_st = st;
    text_copy(c->why, sizeof(c->why), why);
    changed(c);
}

/* A life of the job is over: may there be another? */
static void count_restart(struct coordinator *c, enum status st, const char *why)
{
    char text[WIRE_TEXT_MAX];
    if (tally_restart(&c->counts, c->step, c->config.max_restarts, why, text, sizeof(text)))
        notes_add(&c->notes, true, "%s; restart %lld of %d", why, (long long)c->counts.restarts,
                  c->config.max_restarts);
    else
        end(c, st, text);
}

/* The world that stands falls, or gathering suffered a loss that counts. */
static void fall(struct coordinator *c, enum status st, const char *why, int64_t now_ms)
{
    if (c->is_ended)
        return;
    c->is_running = false;
    c->gather_ms = c->fall_ms = now_ms;
    text_copy(c->why, sizeof(c->why), why);
    changed(c);
    if (c->stop != 0)
        notes_add(&c->notes, true, "%s, while the job was stopping", why);
    else if (c->left_n > 0)
        end(c, st, why); /* who has left cannot come back for another life */
    else
        count_restart(c, st, why);
}

static void lose(struct coordinator *c, struct slot *slot, const char *how, int64_t now_ms)
{
    char why[256];
    text_format(why, sizeof(why), "node %d (%s, pid %lld) was lost: %s", id_of(c, slot), slot->host,
                (long long)slot->pid, how);
    slot->state = MEET_NODE_LOST;
    slot->ready = 0;
    slot->closed_ms = -1;
    /* else it fell with the others, which is counted */
    if (c->is_running || slot->seated_ms > c->fall_ms) {
        fall(c, ST_PEER, why, now_ms);
    } else {
        notes_add(&c->notes, true, "%s", why);
        c->gather_ms = now_ms;
        changed(c);
    }
}

static bool is_whole(const struct coordinator *c)
{
    const struct slot *slot = c->slots, *last = c->slots + c->config.nodes_n;
    while (slot < last && slot->state == MEET_NODE_JOINED && slot->closed_ms < 0 &&
           slot->ready > slot->used)
        slot++;
    return slot == last;
}

static void try_world(struct coordinator *c)
{
    if (c->is_running || c->is_ended || c->stop != 0 || !is_whole(c))
        return;
    if (c->worlds_n == 0 && c->generation > 0) /* this node 0 is a new one: that, too, was a loss */
        count_restart(c, ST_PEER, "node 0 was lost and came back");
    if (c->is_ended)
        return;
    if (c->worlds_n == 0 && c->config.nodes_n > 1)
        for (size_t i = 0; i < 2; i++)
            c->first[i] = c->addresses[i * (size_t)c->config.workers_n];
    c->generation++;
    c->worlds_n++;
    c->is_running = true;
    c->why[0] = 0;
    for (int i = 0; i < c->config.nodes_n; i++)
        c->slots[i].used = c->slots[i].ready;
    changed(c);
    notes_add(&c->notes, false, "generation %lld: %d node%s, %d worker%s each",
              (long long)c->generation, c->config.nodes_n, c->config.nodes_n > 1 ? "s" : "",
              c->config.workers_n, c->config.workers_n > 1 ? "s" : "");
}

/* ---- what a known member says ---- */

/* Others end likewise only when the reason holds for them too. */
static enum status shared_status(enum status st)
{
    enum status_group group = status_group(st);
    return group == STATUS_GROUP_REQUEST || group == STATUS_GROUP_STORE ? st : ST_PEER;
}

static void take_leave(struct coordinator *c, struct slot *slot, const struct wire_says *says,
                       int64_t now_ms)
{
    char why[WIRE_TEXT_MAX];
    enum status_group group = status_group(says->leave_st);
    bool is_asked = c->stop != 0 && (group == STATUS_GROUP_STOP || group == STATUS_GROUP_RETRY);
    slot->state = MEET_NODE_LEFT;
    c->left_n++;
    changed(c);
    if (says->leave_st == ST_OK || is_asked) {
        if (!c->is_running && c->stop == 0)
            fall(c, ST_PEER, "a node left before the others", now_ms);
        return;
    }
    text_format(why, sizeof(why), "node %d (%s) ended: %.800s", id_of(c, slot), slot->host,
                says->why);
    end(c, shared_status(says->leave_st), why);
}

static void take_loss(struct coordinator *c, struct slot *slot, const struct wire_says *says,
                      int64_t now_ms)
{
    char why[WIRE_TEXT_MAX];
    bool is_of_now = c->is_running ? says->lost == c->generation : says->lost == 0;
    slot->losses = says->losses;
    if (!is_of_now) /* of a world that fell already */
        return;
    text_format(why, sizeof(why), "node %d (%s): %.800s", id_of(c, slot), slot->host, says->why);
    fall(c, says->lost_st, why, now_ms);
}

static void take_ready(struct coordinator *c, struct slot *slot, const struct wire_says *says)
{
    if (c->is_running)
        return;
    int64_t before = slot->ready;
    if (says->ready <= slot->used) {
        slot->ready = 0;
    } else if (says->addresses_n == c->config.workers_n) {
        size_t n = (size_t)c->config.workers_n;
        memcpy(c->addresses + (size_t)id_of(c, slot) * n, says->addresses,
               n * sizeof(*c->addresses));
        slot->ready = says->ready;
    } else if (says->ready != slot->ready) {
        slot->ready = 0;
    }
    c->is_missing_known = c->is_missing_known && slot->ready == before;
    if (slot->ready != before && slot->ready > 0 && coordinator_alike(c))
        changed(c);
}

static void take_report(struct coordinator *c, struct slot *slot, const struct wire_says *says)
{
    int n = says->ranks_n < c->config.workers_n ? says->ranks_n : c->config.workers_n;
    if (n > 0) {
        memcpy(c->ranks + (size_t)id_of(c, slot) * (size_t)c->config.workers_n, says->ranks,
               (size_t)n * sizeof(*c->ranks));
        slot->ranks_n = n;
    }
    if (says->step > c->step)
        c->step = says->step;
}

/* A new node 0 learns from the others how far the job had come, perhaps after it made a lower
 * generation. */
static void learn(struct coordinator *c, const struct slot *slot, const struct wire_says *says,
                  int64_t now_ms)
{
    char why[96];
    if (says->generation <= c->generation)
        return;
    text_format(why, sizeof(why), "node %d knows of a later generation", id_of(c, slot));
    c->generation = says->generation;
    if (says->counts.restarts > c->counts.restarts)
        c->counts = says->counts;
    if (c->is_running)
        fall(c, ST_PEER, why, now_ms);
}

static void take(struct coordinator *c, struct slot *slot, const struct wire_says *says,
                 int64_t now_ms)
{
    if (slot->state == MEET_NODE_LEFT)
        return;
    slot->spoke_ms = now_ms;
    slot->closed_ms = -1;
    slot->late_ms = says->late_ms;
    if (hears(c, slot, says)) {
        if (slot->state == MEET_NODE_SUSPECT)
            notes_add(&c->notes, false, "node %d is heard again", id_of(c, slot));
        slot->state = MEET_NODE_JOINED;
        slot->heard_ms = now_ms;
    }
    if (says->sequence > slot->sequence) {
        slot->sequence = says->sequence;
        take_report(c, slot, says);
        learn(c, slot, says, now_ms);
        if (says->stop != 0 && says->stop != slot->stop) {
            slot->stop = c->stop = says->stop;
            changed(c);
            notes_add(&c->notes, false, "node %d was asked to stop: so are all", id_of(c, slot));
        }
        if (says->losses > slot->losses)
            take_loss(c, slot, says, now_ms);
        take_ready(c, slot, says);
        if (says->is_leaving)
            take_leave(c, slot, says, now_ms);
    }
    try_world(c);
}

/* ---- who is let in ---- */

static void refuse(struct wire_told *told, enum status st)
{
    told->answer = WIRE_ANSWER_END;
    told->st = st;
}

static bool is_refused(const struct slot *slot, struct wire_instance instance,
                       struct wire_told *told)
{
    if (!wire_is_same(slot->refused, instance))
        return false;
    refuse(told, ST_DISAGREE);
    text_copy(told->text, sizeof(told->text), slot->why);
    return true;
}

static void tell_wrong(const struct coordinator *c, struct wire_told *told)
{
    told->answer = WIRE_ANSWER_WAIT;
    text_format(told->text, sizeof(told->text), "node 0 with this job's settings (%.900s)", c->why);
}

/* All nodes run the same job, or none does: before the first world a difference ends it for all,
 * for nobody can tell which node is wrong; later the newcomer is, which may be this node 0: the
 * others then wait for another. */
static bool is_agreed(struct coordinator *c, const struct wire_says *says,
                      const struct wire_hello *hello, struct wire_told *told)
{
    const struct accord_side mine = {
        0, "", WIRE_PROTOCOL, c->config.nodes_n, c->config.workers_n, c->config.agree_json};
    const struct accord_side theirs = {says->node_id,  hello->host,      hello->protocol,
                                       hello->nodes_n, hello->workers_n, hello->agree_json};
    char why[WIRE_TEXT_MAX];
    if (accord_is_same(&mine, &theirs, why, sizeof(why)))
        return true;
    if (c->generation == 0) {
        c->is_wrong = c->is_wrong || (!c->is_ended && says->generation > 0);
        end(c, ST_DISAGREE, why); /* which says it */
    } else {
        notes_add(&c->notes, true, "refused: %s", why);
    }
    refuse(told, ST_DISAGREE);
    text_copy(told->text, sizeof(told->text), why);
    if (c->is_wrong)
        tell_wrong(c, told);
    return false;
}

static void seat(struct coordinator *c, struct slot *slot, const struct wire_says *says,
                 const struct wire_hello *hello, int64_t now_ms)
{
    bool is_back = slot->state == MEET_NODE_LOST;
    int64_t used = wire_is_same(slot->instance, says->instance) ? slot->used : 0;
    *slot = (struct slot){.state = MEET_NODE_JOINED,
                          .instance = says->instance,
                          .pid = hello->pid,
                          .used = used,
                          .generation = says->generation,
                          .losses = says->losses,
                          .closed_ms = -1};
    slot->sequence = says->sequence - 1; /* the rest of this message is still to be taken */
    slot->seated_ms = slot->heard_ms = slot->spoke_ms = now_ms;
    text_copy(slot->host, sizeof(slot->host), hello->host);
    c->is_missing_known = false;
    notes_add(&c->notes, false, "node %d (%s, pid %lld) %s", id_of(c, slot), slot->host,
              (long long)slot->pid, is_back ? "is back" : "joined");
}

/* The place is another's who lives: this one was a member and was away, or is a second of its
 * number. */
static void refuse_second(const struct slot *slot, const struct wire_says *says,
                          struct wire_told *told)
{
    bool was_member = says->generation > 0;
    refuse(told, was_member ? ST_PEER : ST_DISAGREE);
    text_format(
        told->text, sizeof(told->text), "%sNODE_ID %d is held by host %s pid %lld%s",
        was_member ? "this node was away and its place was taken: " : "", says->node_id, slot->host,
        (long long)slot->pid,
        was_member
            ? ""
            : ", which lives; give every node its own NODE_ID, and every job its own MASTER_PORT");
}

/* The place is another's. Wait until the holder is heard from (it lives: go away) or is lost. */
static bool is_vacant(struct coordinator *c, struct slot *slot, const struct wire_says *says,
                      int64_t now_ms, struct wire_told *told)
{
    if (is_absent(slot))
        return true;
    if (is_here(slot) && c->worlds_n == 0 && says->generation > slot->generation)
        return true; /* node 0 is new, and an old life of this node came first */
    told->answer = WIRE_ANSWER_WAIT;
    text_format(told->text, sizeof(told->text), "NODE_ID %d is held by host %s pid %lld",
                says->node_id, slot->host, (long long)slot->pid);
    if (slot->state == MEET_NODE_LEFT)
        return false;
    if (!wire_is_same(slot->newcomer, says->instance)) {
        slot->newcomer = says->instance;
        slot->newcomer_ms = now_ms;
    } else if (slot->spoke_ms - slot->newcomer_ms >= COORDINATOR_PROOF_MS && slot->closed_ms < 0) {
        refuse_second(slot, says, told);
        notes_add(&c->notes, true,
                  "refused a second node %d: its place is held by host %s pid %lld", says->node_id,
                  slot->host, (long long)slot->pid);
    }
    return false;
}

/* is_member — true when the message comes from the holder of its place, which may just have been
 * given. */
static bool is_member(struct coordinator *c, const struct wire_says *says,
                      const struct wire_hello *hello, int64_t now_ms, struct wire_told *told)
{
    struct slot *slot = &c->slots[says->node_id];
    bool is_holder = wire_is_same(slot->instance, says->instance);
    if (is_holder && !is_absent(slot))
        return true;
    /* a message of a life that was lost */
    bool is_old = is_holder && says->sequence <= slot->sequence;
    if (hello == NULL ? is_absent(slot) : is_old) {
        told->answer = WIRE_ANSWER_JOIN;
        return false;
    }
    if (hello == NULL) {
        refuse_second(slot, says, told);
        return false;
    }
    if (!is_vacant(c, slot, says, now_ms, told))
        return false;
    seat(c, slot, says, hello, now_ms);
    return true;
}

static void tell_head(const struct coordinator *c, int64_t sequence, struct wire_told *told)
{
    *told = (struct wire_told){.answer = WIRE_ANSWER_IN,
                               .coordinator = c->config.instance,
                               .turn = c->turn,
                               .sequence = sequence,
                               .generation = c->generation,
                               .is_running = c->is_running,
                               .is_lease = true,
                               .stop = c->stop,
                               .counts = c->counts};
}

static void tell_end(struct coordinator *c, struct slot *slot, struct wire_told *told)
{
    refuse(told, c->end_st);
    text_copy(told->text, sizeof(told->text), c->why);
    if (slot != NULL)
        slot->is_told = true;
    if (c->is_wrong && slot != c->slots)
        tell_wrong(c, told);
}

void coordinator_tell(struct coordinator *c, int node_id, struct wire_instance instance,
                      int64_t sequence, struct wire_told *told)
{
    struct slot *slot = &c->slots[node_id];
    bool is_holder = wire_is_same(slot->instance, instance) && !is_absent(slot);
    tell_head(c, sequence, told);
    if (is_refused(slot, instance, told))
        return;
    if (is_holder && slot->state == MEET_NODE_LEFT) {
        told->is_left = true;
        return;
    }
    if (c->is_ended) {
        tell_end(c, is_holder ? slot : NULL, told);
        return;
    }
    if (!is_holder) {
        told->answer = WIRE_ANSWER_JOIN;
        return;
    }
    if (!c->is_missing_known) {
        tell_missing(c, c->missing, sizeof(c->missing));
        c->is_missing_known = true;
    }
    told->lease_ms = c->config.peer_timeout_ms + coordinator_grace(c, slot);
    if (slot->until_ms < slot->heard_ms + told->lease_ms)
        slot->until_ms = slot->heard_ms + told->lease_ms;
    told->ready = slot->ready;
    told->used = slot->used;
    text_copy(told->text, sizeof(told->text), c->why);
    text_copy(told->missing, sizeof(told->missing), c->missing);
}

void coordinator_hear(struct coordinator *c, const struct wire_says *says,
                      const struct wire_hello *hello, int64_t now_ms, struct wire_told *told)
{
    tell_head(c, says->sequence, told);
    if (hello != NULL && !is_agreed(c, says, hello, told))
        return;
    if (says->node_id >= c->config.nodes_n) {
        refuse(told, ST_DISAGREE);
        text_format(told->text, sizeof(told->text), "NODE_ID %d, but N_NODES is %d on node 0",
                    says->node_id, c->config.nodes_n);
        return;
    }
    if (is_refused(&c->slots[says->node_id], says->instance, told))
        return;
    if (c->is_ended && !wire_is_same(c->slots[says->node_id].instance, says->instance)) {
        tell_end(c, says->node_id == 0 ? c->slots : NULL, told);
        return;
    }
    if (!is_member(c, says, hello, now_ms, told))
        return;
    take(c, &c->slots[says->node_id], says, now_ms);
    coordinator_tell(c, says->node_id, says->instance, says->sequence, told);
    told->is_lease = hears(c, &c->slots[says->node_id], says);
}

/* ---- time and connections ---- */

void coordinator_closed(struct coordinator *c, int node_id, struct wire_instance instance,
                        int64_t now_ms)
{
    struct slot *slot = &c->slots[node_id];
    if (is_here(slot) && wire_is_same(slot->instance, instance) && slot->closed_ms < 0)
        slot->closed_ms = now_ms;
}

static void look(struct coordinator *c, struct slot *slot, int64_t now_ms)
{
    char how[96];
    int64_t silent_ms = now_ms - slot->heard_ms;
    if (slot->closed_ms >= 0 &&
        now_ms - slot->closed_ms >= COORDINATOR_CLOSED_MS + coordinator_grace_late(c, slot)) {
        lose(c, slot, "its connection was closed", now_ms);
    } else if (silent_ms >= c->config.peer_timeout_ms && now_ms >= slot->until_ms) {
        text_format(how, sizeof(how), "silent for %.1f s", (double)silent_ms / 1e3);
        lose(c, slot, how, now_ms);
    } else if (slot->state == MEET_NODE_JOINED && silent_ms >= COORDINATOR_SUSPECT_MS) {
        slot->state = MEET_NODE_SUSPECT;
        notes_add(&c->notes, true, "node %d (%s) is silent for %.1f s; it is lost after %.1f s",
                  id_of(c, slot), slot->host, (double)silent_ms / 1e3,
                  (double)c->config.peer_timeout_ms / 1e3);
    }
}

/* What came while we did not listen (a host with too much to do, a stopped process) is heard after
 * this. */
static void discount(struct coordinator *c, int64_t late_ms, int64_t now_ms)
{
    for (int i = 0; i < c->config.nodes_n; i++) {
        struct slot *slot = &c->slots[i];
        if (slot->heard_ms + late_ms > now_ms)
            continue;
        slot->heard_ms += late_ms;
        slot->until_ms += late_ms;
        slot->closed_ms += slot->closed_ms >= 0 ? late_ms : 0;
    }
}

/* The same, of seconds: told. */
static void forgive(struct coordinator *c, int64_t late_ms, int64_t now_ms)
{
    char why[128];
    c->gather_ms += late_ms;
    text_format(why, sizeof(why), "node 0 itself stood still for %.1f s", (double)late_ms / 1e3);
    if (c->is_running && late_ms >= c->config.peer_timeout_ms)
        fall(c, ST_PEER, why, now_ms);
    else
        notes_add(&c->notes, true, "%s", why);
}

static void look_late(struct coordinator *c, int64_t now_ms)
{
    char list[WIRE_TEXT_MAX - 256], why[WIRE_TEXT_MAX], span[32];
    if (c->is_running || c->is_ended || c->stop != 0 ||
        now_ms - c->gather_ms < c->config.join_timeout_ms)
        return;
    int n = notes_list(c->config.nodes_n, is_absent_i, c->slots, list, sizeof(list));
    if (n == 0)
        return;
    text_format(
        why, sizeof(why),
        "node%s %s did not join within %s (%d of %d); start what is missing, or raise JOIN_TIMEOUT",
        n > 1 ? "s" : "", list, text_span(span, sizeof(span), c->config.join_timeout_ms), n,
        c->config.nodes_n);
    end(c, ST_PEER, why);
}

void coordinator_tick(struct coordinator *c, int64_t now_ms)
{
    int64_t late_ms = late_tick(&c->late, now_ms);
    if (late_ms > 0)
        discount(c, late_ms, now_ms);
    if (late_ms >= 2000)
        forgive(c, late_ms, now_ms);
    for (int i = 0; i < c->config.nodes_n; i++) {
        if (is_here(&c->slots[i]))
            look(c, &c->slots[i], now_ms);
    }
    look_late(c, now_ms);
}

bool coordinator_is_told(const struct coordinator *c)
{
    for (int i = 0; i < c->config.nodes_n && !c->is_wrong; i++) {
        if (is_here(&c->slots[i]) && !(c->is_ended && c->slots[i].is_told))
            return false;
    }
    return true;
}

bool coordinator_world(const struct coordinator *c, int node_id, struct wire_instance instance,
                       int64_t generation, struct meet_world *out)
{
    if (node_id < 0 || node_id >= c->config.nodes_n ||
        !wire_is_same(c->slots[node_id].instance, instance) || !is_here(&c->slots[node_id]) ||
        !c->is_running || generation != c->generation)
        return false;
    *out = (struct meet_world){
        c->generation, c->config.nodes_n * c->config.workers_n, c->addresses, {0}};
    return true;
}
