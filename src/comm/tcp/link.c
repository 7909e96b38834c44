/* tcp_link — what the kernel knows of a connection (TCP_INFO). A file of its own: <linux/tcp.h>,
 * which has the newer fields, cannot be included beside <netinet/tcp.h>. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>

#include "comm/tcp/inside.h"

bool tcp_link(const struct message_peer *peer, struct comm_link *out)
{
    const struct tcp_conn *conn = peer->conn;
    struct tcp_info info = {0};
    socklen_t bytes = sizeof info;
    if (conn == NULL || conn->fd < 0 || !conn->is_up ||
        getsockopt(conn->fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
        bytes < offsetof(struct tcp_info, tcpi_data_segs_out) + sizeof info.tcpi_data_segs_out)
        return false; /* a kernel before 4.6 does not count segments */
    *out = (struct comm_link){.segments_sent = info.tcpi_data_segs_out,
                              .segments_resent = info.tcpi_total_retrans,
                              .rtt_us = info.tcpi_rtt,
                              .rtt_us_min = info.tcpi_min_rtt};
    return true;
}
