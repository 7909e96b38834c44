/* message_choose — the driver that ranks choose by their addresses: the same on all of them. */
#include "harness.h"

#include "comm/message/inside.h"
#include "comm/ucx/env.h"

#define ROOM 2048

struct trial {
    struct messenger *m;
    char addresses[3][ROOM];
    int64_t bytes[3];
    bool is_peer[3];
    struct message_world world;
};

/* This rank is 0 of three; the others have the same address as it. */
static void begin(struct trial *t, enum comm_net net, const char *tls)
{
    memset(t, 0, sizeof *t);
    if (tls)
        setenv("UCX_TLS", tls, 1);
    else
        unsetenv("UCX_TLS");
    assert_int_equal(
        messenger_open(&(struct message_config){.net = net, .eager_bytes = 4096}, &t->m), ST_OK);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(message_choose_pack(t->m, false, t->addresses[r], ROOM, &t->bytes[r]),
                         ST_OK);
        t->is_peer[r] = r > 0;
    }
    t->world = (struct message_world){.ranks = 3,
                                      .is_peer = t->is_peer,
                                      .addresses = t->addresses,
                                      .stride = ROOM,
                                      .bytes = t->bytes};
}

static void end(struct trial *t, enum status want, const char *driver, const char *why)
{
    enum status st = message_choose_select(t->m, &t->world);
    if (st != want)
        fail_msg("%s: %s", status_name(st), status_message());
    if (st == ST_OK) {
        int64_t bytes;
        assert_string_equal(t->m->driver->name, driver);
        assert_string_equal(messenger_choice_reason(t->m), why);
        assert_non_null(message_choose_address(t->m, &t->world, 2, &bytes));
    } else {
        assert_non_null(strstr(status_message(), why));
    }
    t->m->driver = NULL; /* no connections: only closed */
    messenger_close(t->m);
}

TEST(one_rule_for_all)
{
    struct trial t;
    if (ucx_env_has_rdma())
        HARNESS_SKIP("this machine has InfiniBand");
    begin(&t, COMM_NET_AUTO, NULL);
    end(&t, ST_OK, "tcp", "rank 0 has no InfiniBand or RoCE device");
    begin(&t, COMM_NET_TCP, "tcp,self");
    end(&t, ST_OK, "tcp", "");
    begin(&t, COMM_NET_AUTO, "tcp,self");
    end(&t, ST_OK, "ucx", "UCX_TLS names tcp");
    begin(&t, COMM_NET_AUTO, "tcp,self");
    /* An address is {magic, net, bytes of TCP's, bytes of UCX's}, and then these addresses. */
    int rank = 2;
    uint16_t bytes;
    memcpy(&bytes, t.addresses[rank] + 4, sizeof bytes);
    t.bytes[rank] -= bytes;
    memset(t.addresses[rank] + 4, 0, sizeof bytes);
    end(&t, ST_OK, "tcp", "rank 2 has no InfiniBand or RoCE device");
    begin(&t, COMM_NET_UCX, "tcp,self");
    end(&t, ST_OK, "ucx", "");
}

TEST(errors_name_the_rank)
{
    struct trial t;
    begin(&t, COMM_NET_TCP, NULL);
    t.addresses[1][1] = COMM_NET_AUTO;
    end(&t, ST_DISAGREE, "", "rank 1 has BACKEND=auto, rank 0 tcp");
    begin(&t, COMM_NET_TCP, NULL);
    t.bytes[2] = 0;
    end(&t, ST_PEER, "", "rank 2 has sent no address");
    begin(&t, COMM_NET_TCP, NULL);
    t.bytes[2] -= 1;
    end(&t, ST_PEER, "", "the address of rank 2 (25 bytes) cannot be read");
    begin(&t, COMM_NET_TCP, NULL);
    t.addresses[2][3] = 0x7f;
    end(&t, ST_PEER, "", "cannot be read");
    begin(&t, COMM_NET_TCP, NULL);
    memset(t.addresses[1], 0xff, ROOM);
    end(&t, ST_PEER, "", "the address of rank 1");
}

TEST(ucx_over_tcp_must_be_asked_for)
{
    struct messenger *m = NULL;
    if (ucx_env_has_rdma())
        HARNESS_SKIP("this machine has InfiniBand");
    unsetenv("UCX_TLS");
    assert_int_equal(
        messenger_open(&(struct message_config){.net = COMM_NET_UCX, .eager_bytes = 4096}, &m),
        ST_NO_DEVICE);
    assert_non_null(strstr(status_message(), "UCX_TLS=tcp,self"));
    setenv("UCX_TLS", "^tcp", 1);
    assert_true(ucx_env_has_transports() && !ucx_env_names_tcp());
    setenv("UCX_TLS", "rc,tcp_x,self", 1);
    assert_false(ucx_env_names_tcp());
    setenv("UCX_TLS", "rc,tcp", 1);
    assert_true(ucx_env_names_tcp());
}

TEST(tcp_uses_the_interface_set_for_ucx)
{
    char name[32];
    setenv("UCX_NET_DEVICES", "lo,eth9", 1);
    ucx_env_device(name, sizeof name);
    assert_string_equal(name, "lo");
    setenv("UCX_NET_DEVICES", "mlx5_0:1", 1);
    ucx_env_device(name, sizeof name);
    assert_string_equal(name, "");
    unsetenv("UCX_NET_DEVICES");
    ucx_env_device(name, sizeof name);
    assert_string_equal(name, "");
}

HARNESS_RUN_ALL()
