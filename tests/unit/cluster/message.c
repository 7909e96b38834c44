/* message and base64: what is written is read the same. Truncated, inflated and hostile bodies are
 * refused. */
#include "harness.h"

#include "cluster/message.h"
#include "cluster/succession.h"
#include "net/base64.h"

static struct message_body body;
static struct cluster_address addresses[2] = {{5, "hello"}, {CLUSTER_ADDRESS_MAX, "x"}};
static const struct cluster_rank rank = {.rank = 3,
                                         .state = "training",
                                         .device = "cpu \"0\"",
                                         .step = 9,
                                         .compute_ms = 1.25,
                                         .comm_ms = NAN,
                                         .call = "all_reduce",
                                         .call_sequence = 812};

static void write_hello(struct text *out)
{
    struct message_heartbeat heartbeat = {.node_id = 4,
                                          .incarnation = {0xABCDEF, 1},
                                          .sequence = 7,
                                          .revision = 2,
                                          .generation = 5,
                                          .ready = 3,
                                          .losses = 2,
                                          .lost = 5,
                                          .lost_st = ST_HANG,
                                          .lost_worker = 1,
                                          .lost_step = 9,
                                          .closed = 4,
                                          .closed_rank = 6,
                                          .stepped = 3,
                                          .stop = 3,
                                          .step = 11,
                                          .counts = {3, 1, 2, {10, 2, ST_OK}},
                                          .machine = {0.5, 7000, 8000, NAN, 2.5, 3.5, 4.5},
                                          .ranks_n = 1,
                                          .ranks = &rank,
                                          .addresses_n = 2,
                                          .addresses = addresses};
    struct message_join join = {MESSAGE_PROTOCOL,
                                8,
                                2,
                                4711,
                                "a-host",
                                "{\"SEED\":\"1\",\"DATA\":\"a\\\"b\"}",
                                0,
                                NULL,
                                {0, 0}};
    snprintf(heartbeat.why, sizeof(heartbeat.why), "it \"died\"\n");
    message_write_heartbeat(out, &heartbeat, &join, 1000);
}

TEST(a_heartbeat_is_read_as_written)
{
    struct text out = {0};
    write_hello(&out);
    assert_int_equal(message_read_heartbeat(out.data, out.len, &body), ST_OK);
    const struct message_heartbeat *s = &body.heartbeat;
    assert_true(body.has_join && body.hold_ms == 1000 && s->node_id == 4 && s->sequence == 7 &&
                s->revision == 2);
    assert_true(s->incarnation.hi == 0xABCDEF && s->incarnation.lo == 1 && s->lost_st == ST_HANG &&
                s->stop == 3 && s->closed == 4 && s->closed_rank == 6 && s->stepped == 3);
    assert_true(s->counts.restarts == 3 && s->counts.refilled == 1 && s->counts.losses == 2 &&
                s->counts.first.step == 10 && s->counts.first.n == 2 && s->lost_worker == 1 &&
                s->lost_step == 9);
    assert_string_equal(s->why, "it \"died\"\n");
    assert_true(s->machine.cpu_busy == 0.5 && s->machine.memory_used == 7000 &&
                s->machine.memory_total == 8000 && isnan(s->machine.disk_read) &&
                s->machine.net_sent == 4.5);
    assert_string_equal(body.join.agree_json, "{\"SEED\":\"1\",\"DATA\":\"a\\\"b\"}");
    assert_true(body.join.nodes_n == 8 && body.join.workers_n == 2 && body.join.pid == 4711);
    assert_true(s->ranks_n == 1 && s->ranks[0].call_sequence == 812 && isnan(s->ranks[0].comm_ms));
    assert_string_equal(s->ranks[0].device, "cpu \"0\"");
    assert_true(s->addresses_n == 2 && s->addresses[1].bytes == CLUSTER_ADDRESS_MAX);
    assert_memory_equal(s->addresses[0].data, "hello", 5);
    text_free(&out);
}

TEST(every_truncation_is_refused)
{
    struct text out = {0};
    write_hello(&out);
    for (size_t n = 0; n < out.len; n += n < 2000 || n + 50 > out.len ? 1 : 37)
        assert_int_equal(message_read_heartbeat(out.data, n, &body), ST_BAD_DATA);
    text_free(&out);
}

/* A node of a version without the report is read, so that the difference of versions is named. */
TEST(a_heartbeat_of_an_earlier_version_is_read)
{
    static const char key[] = ",\"closed\":4,\"closed_rank\":6,\"stepped\":3";
    struct text out = {0};
    write_hello(&out);
    char *at = strstr(out.data, key);
    assert_non_null(at);
    memmove(at, at + strlen(key), out.len - (size_t)(at - out.data) - strlen(key) + 1);
    assert_int_equal(message_read_heartbeat(out.data, out.len - strlen(key), &body), ST_OK);
    assert_true(body.heartbeat.closed == 0 && body.heartbeat.sequence == 7);
    text_free(&out);
    out = (struct text){0};
    write_hello(&out);
    memcpy(strstr(out.data, "machine_cpu_busy"), "machine_cpu_past", 16);
    assert_int_equal(message_read_heartbeat(out.data, out.len, &body), ST_OK);
    assert_true(isnan(body.heartbeat.machine.cpu_busy) && body.heartbeat.machine.memory_used == -1);
    text_free(&out);
}

TEST(another_protocol_gives_the_sender_only)
{
    static const char text[] = "{\"protocol\":2,\"node_id\":3,\"host\":\"new\",\"whatever\":[1]}";
    assert_int_equal(message_read_heartbeat(text, sizeof(text) - 1, &body), ST_OK);
    assert_true(body.has_join && body.join.protocol == 2 && body.heartbeat.node_id == 3);
    assert_string_equal(body.join.host, "new");
}

TEST(replies_are_read_as_written)
{
    struct text out = {0};
    struct message_reply reply = {.answer = MESSAGE_ANSWER_END,
                                  .coordinator = {1, 2},
                                  .revision = 9,
                                  .sequence = 4,
                                  .generation = 3,
                                  .is_running = true,
                                  .is_lease = true,
                                  .lease_ms = 12345,
                                  .ready = 1,
                                  .used = 2,
                                  .is_leave_confirmed = true,
                                  .stop = 4,
                                  .st = ST_DISAGREE,
                                  .leader_id = 2,
                                  .control = "10.0.0.2:29500",
                                  .counts = {3, 1, 1, {-1, 0, ST_OK}},
                                  .text = "why \"this\"",
                                  .missing = "node 3"};
    struct message_reply back;
    message_write_reply(&out, &reply);
    assert_int_equal(message_read_reply(out.data, out.len, &back), ST_OK);
    assert_memory_equal(&reply, &back, offsetof(struct message_reply, control));
    assert_string_equal(back.control, reply.control);
    assert_memory_equal(&reply.counts, &back.counts, sizeof reply.counts);
    assert_string_equal(back.text, reply.text);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(message_read_reply(out.data, n, &back), ST_BAD_DATA);
    text_free(&out);
}

static struct succession_world past;
static char controls[3][CLUSTER_CONTROL_MAX];

TEST(a_world_has_the_right_number_of_addresses)
{
    struct text out = {0};
    static struct cluster_address back[3];
    static const int ids[] = {0, 2};
    int ids_back[3];
    struct cluster_world world;
    message_write_world(&out, &(struct cluster_world){.generation = 6,
                                                      .ranks_n = 2,
                                                      .nodes_n = 2,
                                                      .addresses = addresses,
                                                      .node_ids = ids,
                                                      .secret = "sixteen bytes o"});
    assert_int_equal(
        message_read_world(out.data, out.len, 3, 1, back, ids_back, &past, controls, &world),
        ST_OK);
    assert_memory_equal(world.secret, "sixteen bytes o", sizeof(world.secret));
    assert_true(world.generation == 6 && world.nodes_n == 2 && world.ranks_n == 2);
    assert_true(back[0].bytes == 5 && back[1].bytes == CLUSTER_ADDRESS_MAX);
    assert_memory_equal(ids_back, ids, sizeof ids);
    /* nodes 0 and 2 of two; two workers each */
    assert_int_equal(
        message_read_world(out.data, out.len, 2, 1, back, ids_back, &past, controls, &world),
        ST_BAD_DATA);
    assert_int_equal(
        message_read_world(out.data, out.len, 3, 2, back, ids_back, &past, controls, &world),
        ST_BAD_DATA);
    text_free(&out);
}

/* Two worlds; the first one is finished. */
static void make_past(struct succession *out)
{
    const struct succession_world first = {.generation = 4,
                                           .coordinator = {1, 2},
                                           .has_stepped = true,
                                           .n = 1,
                                           .processes = {{.node_id = 0, .incarnation = {3, 4}}}};
    const struct succession_world second = {.generation = 5,
                                            .coordinator = {1, 2},
                                            .n = 2,
                                            .processes = {{.node_id = 0, .incarnation = {3, 4}},
                                                          {.node_id = 2, .incarnation = {5, 6}}}};
    *out = (struct succession){0};
    assert_true(succession_add(out, &first) && succession_add(out, &second));
}

TEST(a_world_has_its_processes_and_where_they_listen)
{
    static const char listen[2][CLUSTER_CONTROL_MAX] = {"10.0.0.1:29500", "[fe80::1]:4711"};
    static struct succession list;
    static const int ids[] = {0, 2};
    struct text out = {0};
    static struct cluster_address back[3];
    int ids_back[3];
    struct cluster_world world;
    make_past(&list);
    message_write_world(&out, &(struct cluster_world){.generation = 5,
                                                      .ranks_n = 2,
                                                      .nodes_n = 2,
                                                      .addresses = addresses,
                                                      .node_ids = ids,
                                                      .past = &list.worlds[1],
                                                      .controls = listen,
                                                      .secret = "sixteen bytes o"});
    assert_int_equal(
        message_read_world(out.data, out.len, 3, 1, back, ids_back, &past, controls, &world),
        ST_OK);
    assert_true(world.past == &past && past.n == 2 && past.generation == 5);
    assert_memory_equal(past.processes, list.worlds[1].processes, 2 * sizeof *past.processes);
    assert_string_equal(world.controls[0], listen[0]);
    assert_string_equal(world.controls[1], listen[1]);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(
            message_read_world(out.data, n, 3, 1, back, ids_back, &past, controls, &world),
            ST_BAD_DATA);
    text_free(&out);
}

TEST(a_member_joins_with_its_list_of_worlds)
{
    static struct succession list, list_back;
    static struct message_body back;
    struct text out = {0};
    const struct message_heartbeat heartbeat = {.node_id = 2,
                                                .incarnation = {5, 6},
                                                .sequence = 1,
                                                .revision = -1,
                                                .step = -1,
                                                .lost_worker = -1,
                                                .lost_step = -1};
    make_past(&list);
    list.left_out = 3;
    const struct message_join join = {.protocol = MESSAGE_PROTOCOL,
                                      .nodes_n = 3,
                                      .workers_n = 1,
                                      .agree_json = "{}",
                                      .control_port = 4711,
                                      .past = &list,
                                      .ended = {3, 4}};
    back.past = &list_back;
    message_write_heartbeat(&out, &heartbeat, &join, 0);
    assert_int_equal(message_read_heartbeat(out.data, out.len, &back), ST_OK);
    assert_true(back.has_join && back.join.control_port == 4711 && back.join.past == &list_back &&
                message_is_same(back.join.ended, join.ended));
    assert_true(list_back.n == 2 && list_back.left_out == 3 && list_back.worlds[0].has_stepped &&
                !list_back.worlds[1].has_stepped && list_back.worlds[1].generation == 5);
    assert_memory_equal(list_back.worlds[1].processes, list.worlds[1].processes,
                        2 * sizeof *list.worlds[1].processes);
    text_free(&out);
}

TEST(a_view_comes_back_as_it_was_sent)
{
    const struct message_view view = {.node_id = 1,
                                      .incarnation = {7, 8},
                                      .is_coordinator = true,
                                      .coordinator = {9, 10},
                                      .generation = 3,
                                      .is_running = true,
                                      .has_past = true,
                                      .leader_id = 1,
                                      .control = "10.0.0.2:29500"};
    struct message_view back;
    struct text out = {0};
    message_write_view(&out, &view);
    assert_int_equal(message_read_view(out.data, out.len, &back), ST_OK);
    assert_memory_equal(&view, &back, offsetof(struct message_view, control));
    assert_string_equal(back.control, view.control);
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(message_read_view(out.data, n, &back), ST_BAD_DATA);
    text_free(&out);
}

TEST(the_nodes_of_a_world_ascend)
{
    static const char *const wrong[] = {"",   "3",     "0,0",     "0,2,1", "0,3",
                                        "-1", "0,1.5", "0,1,2,3", "\"0\"", "0,1e9"};
    struct cluster_world world;
    struct cluster_address back[3];
    int ids[3];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct text out = {0};
        text_add(&out,
                 "{\"generation\":1,\"secret\":\"0123456789abcdef0123456789abcdef\",\"nodes\":[%s],"
                 "\"addresses\":[]}",
                 wrong[i]);
        assert_int_equal(
            message_read_world(out.data, out.len, 3, 1, back, ids, &past, controls, &world),
            ST_BAD_DATA);
        assert_non_null(strstr(status_message(), i == 0 ? "no nodes" : "do not ascend"));
        text_free(&out);
    }
}

TEST(base64_is_strict)
{
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

HARNESS_RUN_ALL()
