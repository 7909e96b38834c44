/* tcp_addr — the address on which workers listen: by the route to a master, by name, address,
 * interface. */
#include "harness.h"

#include "comm/tcp/addr.h"

static const char *where(const char *data_addr, const char *master, enum status want)
{
    static char text[64];
    struct sockaddr_storage at;
    socklen_t bytes = 0;
    enum status st = tcp_addr_choose(data_addr, master, &at, &bytes);
    if (st != want)
        fail_msg("%s, %s: %s: %s", data_addr, master, status_name(st), status_message());
    text[0] = 0;
    if (st == ST_OK)
        tcp_addr_text(&at, text, sizeof text);
    return text;
}

TEST(by_master_or_by_setting)
{
    assert_string_equal(where("", "127.0.0.1", ST_OK), "127.0.0.1:0");
    assert_string_equal(where(NULL, NULL, ST_OK), "127.0.0.1:0");
    assert_string_equal(where("127.0.0.9", "127.0.0.1", ST_OK), "127.0.0.9:0");
    assert_string_equal(where("lo", "192.0.2.1", ST_OK), "127.0.0.1:0");
    where("", "0.0.0.0", ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "DATA_ADDR"));
    where("", "no-such-name.invalid", ST_RETRY);
    assert_non_null(strstr(status_message(), "MASTER_ADDR=no-such-name.invalid"));
    where("no-such-name.invalid", "127.0.0.1", ST_RETRY);
    assert_non_null(strstr(status_message(), "DATA_ADDR=no-such-name.invalid"));
}

TEST(a_packed_address_unpacks_the_same)
{
    static const char *const names[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < 2; i++) {
        struct sockaddr_storage at, back;
        socklen_t bytes, back_bytes;
        struct tcp_addr_packed packed;
        char text[64];
        if (tcp_addr_choose(names[i], NULL, &at, &bytes) != ST_OK)
            continue; /* no IPv6 here */
        tcp_addr_pack(&at, &packed);
        assert_false(tcp_addr_unpack(&packed, &at, &back, &back_bytes)); /* port 0 */
        packed.port = 4242;
        assert_true(tcp_addr_unpack(&packed, &at, &back, &back_bytes));
        tcp_addr_text(&back, text, sizeof text);
        assert_string_equal(text, i == 0 ? "127.0.0.1:4242" : "[::1]:4242");
        assert_int_equal(bytes, back_bytes);
        packed.family = 5;
        assert_false(tcp_addr_unpack(&packed, &at, &back, &back_bytes));
    }
}

HARNESS_RUN_ALL()
