/* file_list: what is written is read the same. Truncated, inflated and hostile bytes are refused.
 * The same content has the same name. */
#include "harness.h"

#include "file_share/file_list.h"

static void fill(struct file_list *list)
{
    static char a[] = "/data/a \"b\".bin", b[] = "/data/c.bin";
    *list = (struct file_list){.state = FILE_LIST_STATE_READY};
    const struct file_list_entry files[] = {
        {0, 3000000000, 1024, 0xFEDCBA9876543210u, ".bin", "", a, false, false},
        {0, 1026, 1024, 7, ".bin", "", b, false, false},
        {1, 5, 0, 9, ".json", "", b, false, false}};
    for (int i = 0; i < 3; i++)
        assert_int_equal(file_list_add(list, &files[i]), ST_OK);
    list->weights[0] = 0.7;
    list->weights[1] = 1.0 / 3;
}

TEST(what_is_written_is_read)
{
    struct file_list list, again;
    char name[FILE_LIST_NAME_MAX], name_again[FILE_LIST_NAME_MAX];
    for (int with_paths = 0; with_paths < 2; with_paths++) {
        struct text out = {0};
        fill(&list);
        file_list_write(&out, &list, with_paths);
        assert_int_equal(file_list_read(out.data, out.len, &again), ST_OK);
        assert_int_equal(again.files_n, 3);
        assert_int_equal(again.items_n, 2);
        assert_true(again.weights[0] == 0.7 && again.weights[1] == 1.0 / 3);
        assert_true(again.files[0].sum == 0xFEDCBA9876543210u && again.files[0].skip == 1024);
        assert_string_equal(again.files[2].suffix, ".json");
        assert_int_equal(file_list_bytes(&again), 3000000000 + 1026 + 5);
        if (with_paths)
            assert_string_equal(again.files[0].path, "/data/a \"b\".bin");
        else
            assert_null(again.files[0].path);
        file_list_name(&list, name);
        file_list_name(&again, name_again);
        assert_string_equal(name, name_again);
        assert_int_equal(strlen(name), FILE_LIST_NAME_MAX - 1);
        text_free(&out);
        file_list_free(&list);
        file_list_free(&again);
    }
}

TEST(other_content_has_another_name)
{
    struct file_list list;
    char name[FILE_LIST_NAME_MAX], other[FILE_LIST_NAME_MAX];
    fill(&list);
    file_list_name(&list, name);
    list.files[1].sum++;
    file_list_name(&list, other);
    assert_string_not_equal(name, other);
    list.files[1].sum--;
    list.weights[0] = 0.6;
    file_list_name(&list, other);
    assert_string_not_equal(name, other);
    list.weights[0] = 0.7;
    list.files[2].item = 0; /* the same files, in other items */
    file_list_name(&list, other);
    assert_string_not_equal(name, other);
    file_list_free(&list);
}

TEST(cut_bytes_are_refused)
{
    struct file_list list;
    struct text out = {0};
    fill(&list);
    file_list_write(&out, &list, true);
    file_list_free(&list);
    for (size_t n = 0; n < out.len; n++) {
        char *copy = malloc(n + 1); /* of exactly this size, for the sanitizers */
        memcpy(copy, out.data, n);
        assert_int_equal(file_list_read(copy, n, &list), ST_BAD_DATA);
        assert_int_equal(list.files_n, 0);
        free(copy);
    }
    text_free(&out);
    status_clear();
}

TEST(hostile_bytes_are_refused)
{
    static const char *const bodies[] = {
        "",
        "null",
        "[]",
        "{}",
        "\"ready\"",
        "{\"state\":\"ready\"}",
        "{\"state\":\"gone\",\"why\":\"\",\"weights\":[],\"files\":[]}",
        /* READY, but no file */
        "{\"state\":\"ready\",\"why\":\"\",\"weights\":[],\"files\":[]}",
        /* a weight without an item */
        "{\"state\":\"none\",\"why\":\"\",\"weights\":[1],\"files\":[]}",
        "{\"state\":\"none\",\"why\":1,\"weights\":[],\"files\":[]}",
#define FILES(f) "{\"state\":\"ready\",\"why\":\"\",\"weights\":[0],\"files\":[" f "]}"
#define ONE(part, bytes, skip, sum, suffix)                                   \
    "{\"part\":" part ",\"bytes\":" bytes ",\"skip\":" skip ",\"sum\":\"" sum \
    "\",\"suffix\":\"" suffix "\"}"
        FILES(ONE("1", "5", "0", "0000000000000009", ".bin")), /* the first item is 1 */
        FILES(ONE("-1", "5", "0", "0000000000000009", ".bin")),
        FILES(ONE("64", "5", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "0", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "-5", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "1e300", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "5", "6", "0000000000000009", ".bin")),
        FILES(ONE("0", "5.5", "0", "0000000000000009", ".bin")),
        FILES(ONE("0", "5", "0", "9", ".bin")),
        FILES(ONE("0", "5", "0", "00000000000000090", ".bin")),
        FILES(ONE("0", "5", "0", "000000000000000G", ".bin")),
        FILES(ONE("0", "5", "0", "0000000000000009", "/../x")),
        FILES(ONE("0", "5", "0", "0000000000000009", "./x")),
        FILES(ONE("0", "5", "0", "0000000000000009", "..")),
        FILES(ONE("0", "5", "0", "0000000000000009", "")),
        FILES(ONE("0", "5", "0", "0000000000000009", ".farfartoolong")),
        FILES(ONE("0", "5", "0", "0000000000000009",
                  ".b\\u0000in")), /* cJSON ends the string: ".b" is fine, see below */
        FILES("{\"part\":0}"),
        FILES("[]"),
        FILES("7"),
    };
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++) {
        struct file_list list;
        enum status st = file_list_read(bodies[i], strlen(bodies[i]), &list);
        if (st == ST_OK) /* what is accepted is harmless */
            assert_string_equal(list.files[0].suffix, ".b");
        else
            assert_int_equal(st, ST_BAD_DATA);
        file_list_free(&list);
    }
    status_clear();
}

TEST(too_many_files_are_refused)
{
    struct file_list list = {.state = FILE_LIST_STATE_READY};
    const struct file_list_entry file = {0, 5, 0, 1, ".bin", "", NULL, false, false};
    for (int i = 0; i < FILE_LIST_FILES_MAX; i++)
        assert_int_equal(file_list_add(&list, &file), ST_OK);
    assert_int_equal(file_list_add(&list, &file), ST_BAD_DATA);
    const struct file_list_entry beyond = {
        FILE_LIST_ITEMS_MAX, 5, 0, 1, ".bin", "", NULL, false, false};
    assert_int_equal(file_list_add(&list, &beyond), ST_BAD_DATA);
    file_list_free(&list);
    status_clear();
}

/* A file may share the name of the file right before it, in its item, with another suffix. */
TEST(pairs_are_read)
{
    static const struct file_list_entry bin = {0, 5, 0, 1, ".bin", "", NULL, false, false},
                                        idx = {0, 7, 0, 2, ".idx", "", NULL, true, false},
                                        same = {0, 7, 0, 2, ".bin", "", NULL, true, false},
                                        next = {1, 7, 0, 2, ".idx", "", NULL, true, false};
    struct file_list list = {.state = FILE_LIST_STATE_READY}, again;
    struct text out = {0};
    char name[FILE_LIST_NAME_MAX], other[FILE_LIST_NAME_MAX];
    assert_int_equal(file_list_add(&list, &idx), ST_BAD_DATA);
    assert_int_equal(file_list_add(&list, &bin), ST_OK);
    assert_int_equal(file_list_add(&list, &same), ST_BAD_DATA);
    assert_int_equal(file_list_add(&list, &next), ST_BAD_DATA);
    assert_int_equal(file_list_add(&list, &idx), ST_OK);
    assert_int_equal(file_list_add(&list, &idx), ST_BAD_DATA);
    file_list_write(&out, &list, false);
    assert_int_equal(file_list_read(out.data, out.len, &again), ST_OK);
    assert_true(!again.files[0].is_pair && again.files[1].is_pair);
    file_list_name(&again, name);
    again.files[1].is_pair = false;
    file_list_name(&again, other);
    assert_string_not_equal(name, other);
    again.files[1].is_pair = again.files[1].sums_ends = true;
    file_list_name(&again, other);
    assert_string_not_equal(name, other);
    text_free(&out);
    file_list_free(&list);
    file_list_free(&again);
    status_clear();
}

/* Files may keep their names, which lead out of no folder and are there once. */
TEST(names_are_read)
{
    static const char *const refused[] = {"../x", "a/b",  ".hidden", "..",
                                          "a b",  "a\nb", "\xc3\xa4"};
    struct file_list list = {.state = FILE_LIST_STATE_READY}, again;
    struct file_list_entry file = {.bytes = 5, .sum = 1, .name = "config.json"};
    char name[FILE_LIST_NAME_MAX], other[FILE_LIST_NAME_MAX];
    struct text out = {0};
    assert_int_equal(file_list_add(&list, &file), ST_OK);
    assert_int_equal(file_list_add(&list, &file), ST_BAD_DATA); /* twice */
    for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
        text_copy(file.name, sizeof(file.name), refused[i]);
        assert_int_equal(file_list_add(&list, &file), ST_BAD_DATA);
    }
    text_copy(file.name, sizeof(file.name), "model-00001-of-00002.safetensors");
    assert_int_equal(file_list_add(&list, &file), ST_OK);
    file_list_write(&out, &list, false);
    assert_int_equal(file_list_read(out.data, out.len, &again), ST_OK);
    assert_string_equal(again.files[1].name, "model-00001-of-00002.safetensors");
    file_list_name(&list, name);
    file_list_name(&again, other);
    assert_string_equal(name, other);
    text_copy(again.files[1].name, sizeof(again.files[1].name), "other.safetensors");
    file_list_name(&again, other);
    assert_string_not_equal(name, other);
    file_list_free(&again);
    for (int i = list.files_n; i < FILE_LIST_NAMED_MAX; i++) {
        text_format(file.name, sizeof(file.name), "%d", i);
        assert_int_equal(file_list_add(&list, &file), ST_OK);
    }
    text_copy(file.name, sizeof(file.name), "last");
    assert_int_equal(file_list_add(&list, &file), ST_BAD_DATA);
    file_list_free(&list);
    text_free(&out);
    static const char *const bodies[] = {
#define NAMED(name)                                                                          \
    FILES("{\"part\":0,\"bytes\":5,\"skip\":0,\"sum\":\"0000000000000009\",\"suffix\":\"\"," \
          "\"name\":\"" name "\"}")
        NAMED("../x"), NAMED("a/b"), NAMED(""), NAMED("/etc/passwd"),
        NAMED("0123456789012345678901234567890123456789012345678901234567890123")};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        assert_int_equal(file_list_read(bodies[i], strlen(bodies[i]), &list), ST_BAD_DATA);
    status_clear();
}

TEST(settings_have_names)
{
    assert_string_equal(file_list_setting(FILE_LIST_KIND_VAL_DATA), "VAL_DATA");
    for (int kind = 0; kind < FILE_LIST_KINDS_N; kind++)
        assert_non_null(file_list_setting((enum file_list_kind)kind));
}

TEST(requests_are_read)
{
    struct file_list_request request = {.kind = 1,
                                        .node_id = 7,
                                        .name = "0123456789abcdef0123456789abcdef",
                                        .file_i = 3,
                                        .first = 99};
    struct file_list_request again;
    struct text out = {0};
    file_list_write_request(&out, &request);
    assert_int_equal(file_list_read_request(out.data, out.len, &again), ST_OK);
    assert_memory_equal(&request, &again, sizeof(request));
    for (size_t n = 0; n < out.len; n++)
        assert_int_equal(file_list_read_request(out.data, n, &again), ST_BAD_DATA);
    text_free(&out);
    static const char *const bodies[] = {
        "{}",
        "{\"kind\":5,\"node_id\":1}",
        "{\"kind\":0,\"node_id\":-1}",
        "{\"kind\":0,\"node_id\":1,\"name\":\"../../etc/passwd\",\"file\":0,\"first\":0}",
        "{\"kind\":0,\"node_id\":1,\"name\":\"0123456789abcdef0123456789abcdef\",\"file\":-1,"
        "\"first\":0}",
        "{\"kind\":0,\"node_id\":1,\"name\":\"0123456789abcdef0123456789abcdef\",\"file\":0,"
        "\"first\":-1}"};
    for (size_t i = 0; i < sizeof(bodies) / sizeof(bodies[0]); i++)
        assert_int_equal(file_list_read_request(bodies[i], strlen(bodies[i]), &again), ST_BAD_DATA);
    assert_int_equal(file_list_read_request("{\"kind\":0,\"node_id\":1}", 22, &again), ST_OK);
    assert_true(again.is_for_list);
    status_clear();
}

HARNESS_RUN_ALL()
