/* wire and base64: what is written is read the same; cut, swollen and hostile bodies are
 * refused. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "meet/base64.h"
#include "meet/wire.h"

static struct wire_body body;
static struct meet_address addresses[2] = {{5, "hello"}, {MEET_ADDRESS_MAX, "x"}};
static const struct meet_rank rank = {.rank = 3,
                                      .state = "training",
                                      .device = "cpu \"0\"",
                                      .step = 9,
                                      .compute_ms = 1.25,
                                      .comm_ms = NAN,
                                      .call = "all_reduce",
                                      .call_sequence = 812};

static void write_hello(struct text *out)
{
    struct wire_says says = {.node_id = 4,
                             .instance = {0xABCDEF, 1},
                             .sequence = 7,
                             .turn = 2,
                             .generation = 5,
                             .ready = 3,
                             .losses = 2,
                             .lost = 5,
                             .lost_st = ST_HANG,
                             .stop = 3,
                             .step = 11,
                             .counts = {1, 2, 10},
                             .ranks_n = 1,
                             .ranks = &rank,
                             .addresses_n = 2,
                             .addresses = addresses};
    struct wire_hello hello = {WIRE_PROTOCOL, 8,        2,
                               4711,          "a-host", "{\"SEED\":\"1\",\"DATA\":\"a\\\"b\"}"};
    snprintf(says.why, sizeof(says.why), "it \"died\"\n");
    wire_write_says(out, &says, &hello, 1000);
}

static void a_message_comes_back_the_same(void **state)
{
    (void)state;
    struct text out = {0};
    write_hello(&out);
    assert_int_equal(wire_read_says(out.data, out.len, &body), ST_OK);
    const struct wire_says *s = &body.says;
    assert_true(body.has_hello && body.hold_ms == 1000 && s->node_id == 4 && s->sequence == 7 &&
                s->turn == 2);
    assert_true(s->instance.hi == 0xABCDEF && s->instance.lo == 1 && s->lost_st == ST_HANG &&
                s->stop == 3);
    assert_true(s->counts.restarts == 1 && s->counts.barren == 2 && s->counts.step_best == 10);
    assert_string_equal(s->why, "it \"died\"\n");
    assert_string_equal(body.hello.agree_json, "{\"SEED\":\"1\",\"DATA\":\"a\\\"b\"}");
    assert_true(body.hello.nodes_n == 8 && body.hello.workers_n == 2 && body.hello.pid == 4711);
    assert_true(s->ranks_n == 1 && s->ranks[0].call_sequence == 812 && isnan(s->ranks[0].comm_ms));
    assert_string_equal(s->ranks[0].device, "cpu \"0\"");
    assert_true(s->addresses_n == 2 && s->addresses[1].bytes == MEET_ADDRESS_MAX);
    assert_memory_equal(s->addresses[0].data, "hello", 5);
    text_free(&out);
}

static void every_cut_is_refused(void **state)
{
    (void)state;
    struct text out = {0};
    write_hello(&out);
    for (size_t n = 0; n < out.len; n += n < 2000 || n + 50 > out.len ? 1 : 37)
        assert_int_equal(wire_read_says(out.data, n, &body), ST_BAD_DATA);
    text_free(&out);
}

static void another_protocol_says_who_and_no_more(void **state)
{
    (void)state;
    static const char text[] = "{\"protocol\":2,\"node_id\":3,\"host\":\"new\",\"whatever\":[1]}";
    assert_int_equal(wire_read_says(text, sizeof(text) - 1, &body), ST_OK);
    assert_true(body.has_hello && body.hello.protocol == 2 && body.says.node_id == 3);
    assert_string_equal(body.hello.host, "new");
}

static void answers_come_back_the_same(void **state)
{
    (void)state;
    struct text out = {0};
    struct wire_told told = {.answer = WIRE_ANSWER_END,
                             .coordinator = {1, 2},
                             .turn = 9,
                             .sequence = 4,
                             .generation = 3,
                             .is_running = true,
                             .is_lease = true,
                             .lease_ms = 12345,
                             .ready = 1,
                             .used = 2,
                             .is_left = true,
                             .stop = 4,
                             .st = ST_DISAGREE,
                             .counts = {3, 1, -1},
                             .text = "why \"this\"",
                             .missing = "node 3"};
    struct wire_told back;
    wire_write_told(&out, &told);
    assert_int_equal(wire_read_told(out.data, out.len, &back), ST_OK);
    assert_memory_equal(&told, &back, offsetof(struct wire_told, text));
    assert_string_equal(back.text, told.text);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(wire_read_told(out.data, n, &back), ST_BAD_DATA);
    text_free(&out);
}

static void worlds_have_the_right_number(void **state)
{
    (void)state;
    struct text out = {0};
    static struct meet_address back[3];
    int64_t generation;
    wire_write_world(&out, &(struct meet_world){6, 2, addresses, "sixteen bytes o"});
    uint8_t secret[MEET_SECRET_BYTES];
    assert_int_equal(wire_read_world(out.data, out.len, 2, back, &generation, secret), ST_OK);
    assert_memory_equal(secret, "sixteen bytes o", sizeof(secret));
    assert_true(generation == 6 && back[0].bytes == 5 && back[1].bytes == MEET_ADDRESS_MAX);
    assert_int_equal(wire_read_world(out.data, out.len, 1, back, &generation, secret), ST_BAD_DATA);
    assert_int_equal(wire_read_world(out.data, out.len, 3, back, &generation, secret), ST_BAD_DATA);
    text_free(&out);
}

static void base64_is_strict(void **state)
{
    (void)state;
    uint8_t bytes[300], back[300];
    char text[BASE64_SIZE(sizeof(bytes))];
    size_t n;
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 37);
    for (size_t size = 0; size <= sizeof(bytes); size++) {
        base64_write(text, bytes, size);
        assert_true(base64_read(text, back, sizeof(back), &n) && n == size);
        assert_memory_equal(bytes, back, size);
        assert_true(size == 0 || !base64_read(text, back, size - 1, &n));
    }
    static const char *bad[] = {"A",
                                "AA",
                                "AAA",
                                "A===",
                                "====",
                                "AA=A",
                                "AAA=AAAA",
                                "AB==",
                                "AAB=",
                                "A A=",
                                "AAA-",
                                "\xff"
                                "AAA"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(base64_read(bad[i], back, sizeof(back), &n));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_message_comes_back_the_same),
    cmocka_unit_test(every_cut_is_refused),
    cmocka_unit_test(another_protocol_says_who_and_no_more),
    cmocka_unit_test(answers_come_back_the_same),
    cmocka_unit_test(worlds_have_the_right_number),
    cmocka_unit_test(base64_is_strict),
};
HARNESS_MAIN(tests)
