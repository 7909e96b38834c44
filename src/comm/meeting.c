/* meeting — the first message of every call. Must not know what the content is. */
#include "comm/meeting.h"

#include <stdlib.h>
#include <string.h>

#include "base/must.h"

enum status meeting_open(struct meeting *m)
{
    size_t n = (size_t)m->n, room = (size_t)(MEETING_HEAD + m->small);
    m->guests = calloc(n, sizeof(*m->guests));
    m->came = aligned_alloc(64, room * n);
    m->brought = aligned_alloc(64, room * n);
    if (m->guests == NULL || m->came == NULL || m->brought == NULL)
        return FAIL(ST_RETRY, "out of memory: first messages of %d ranks", m->n);
    memset(m->came, 0, room * n);
    memset(m->brought, 0, room * n);
    return ST_OK;
}

void meeting_free(struct meeting *m)
{
    free(m->guests);
    free(m->came);
    free(m->brought);
    *m = (struct meeting){0};
}

void meeting_call(struct meeting *m, const struct comm_call *call)
{
    m->call = call;
    for (int r = 0; r < m->n; r++)
        m->guests[r].has_come = r == m->me;
}

enum status meeting_greet(struct meeting *m, int r, enum ucx_lane lane, int64_t bytes)
{
    struct meeting_guest *guest = &m->guests[r];
    struct comm_header header = comm_ops_header(m->call);
    struct ucx_tag tag = {.group = m->group, .from = m->world[r], .lane = lane};
    ASSERTF(bytes <= m->small, "%lld bytes", (long long)bytes);
    memcpy(meeting_brought(m, r) - MEETING_HEAD, &header, sizeof(header));
    guest->has_come = false;
    if (m->call->kind != COMM_CALL_SEND)
        TRY(ucx_recv(m->ucx, &guest->recv, meeting_came(m, r) - MEETING_HEAD,
                     MEETING_HEAD + m->small, tag));
    if (m->call->kind != COMM_CALL_RECV) {
        TRY(ucx_send(m->ucx, &guest->send, meeting_brought(m, r) - MEETING_HEAD,
                     MEETING_HEAD + bytes, m->world[r], tag));
        m->bytes_sent += MEETING_HEAD + bytes;
    }
    return ST_OK;
}

enum status meeting_begin(struct meeting *m, const struct comm_call *call, const void *content,
                          int64_t stride, int64_t bytes)
{
    meeting_call(m, call);
    for (int i = 1; i < m->n; i++) {
        int r = (m->me + i) % m->n;
        if (bytes > 0)
            memcpy(meeting_brought(m, r), (const char *)content + r * stride, (size_t)bytes);
        TRY(meeting_greet(m, r, UCX_LANE_CALL, bytes));
    }
    return ST_OK;
}

enum status meeting_look(struct meeting *m, const struct comm_wire *wire, int r)
{
    struct meeting_guest *guest = &m->guests[r];
    if (guest->has_come || !ucx_is_done(&guest->recv))
        return ST_OK;
    struct comm_header theirs;
    memcpy(&theirs, meeting_came(m, r) - MEETING_HEAD, sizeof(theirs));
    guest->has_come = true;
    return comm_ops_agree(wire, r, &theirs);
}

enum status meeting_end(struct meeting *m, const struct comm_wire *wire, struct ucx_wait *wait)
{
    for (int r = 0; r < m->n; r++) {
        for (;;) {
            TRY(meeting_look(m, wire, r));
            if (r == m->me || (m->guests[r].has_come && ucx_is_done(&m->guests[r].send)))
                break;
            TRY(ucx_pump(m->ucx, wait));
        }
    }
    return ST_OK;
}
