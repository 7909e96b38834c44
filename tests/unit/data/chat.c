/* chat — the ids of a conversation are written as its family does, exactly the answers and the ends
 * of their turns are marked, and other records are refused. tests/chat compares with Jinja. */
#include "harness.h"

#include <stdlib.h>

#include "data/chat/chat.h"
#include "data/tokenizer/file.h"

/* Letters are their own tokens: "ab" merges, and so do two line ends. The vocabulary lacks most
 * bytes. */
#define VOCAB                                                                                    \
    "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"u\":3,\"s\":4,\"e\":5,\"r\":6,\"i\":7,\"t\":8,"       \
    "\"n\":9,\"y\":10,\"m\":11,\"\\u010a\":12,\"\\u010a\\u010a\":13,\"\\u0120\":14,\"<\":15,"    \
    "\"|\":16,\"_\":17,\"d\":18,\">\":19,\"[\":20,\"]\":21,\"I\":22,\"N\":23,\"S\":24,\"T\":25," \
    "\"/\":26,\"Y\":27,\"<|im_start|>\":28,\"<|im_end|>\":29,\"<s>\":30,\"</s>\":31}"
#define SPECIAL(id, text) "{\"id\":" id ",\"content\":\"" text "\",\"special\":true}"
#define TOKENIZER                                                                              \
    "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},\"added_tokens\":" \
    "[" SPECIAL("28", "<|im_start|>") "," SPECIAL("29", "<|im_end|>") "," SPECIAL(             \
        "30", "<s>") "," SPECIAL("31", "</s>") "],\"model\":{\"type\":\"BPE\"," VOCAB          \
                                               ",\"merges\":[\"a b\",\"\\u010a \\u010a\"]}}"

static struct tokenizer *open_tokenizer(void)
{
    struct tokenizer *tokenizer;
    assert_int_equal(
        tokenizer_json_open(TOKENIZER, sizeof TOKENIZER - 1, "t.json", "</s>", &tokenizer), ST_OK);
    return tokenizer;
}

/* Returns the ids as text: the bytes of each token, marked ones in braces, special ones by name. */
static const char *shown(const struct tokenizer *tokenizer, const struct chat_ids *ids)
{
    static char text[2048];
    size_t at = 0;
    bool was_trained = false;
    for (size_t i = 0; i < ids->n; i++) {
        const bool is_trained = ids->ids[i] & CHAT_TRAINED;
        size_t n;
        const uint8_t *bytes = tokenizer_bytes(tokenizer, ids->ids[i] & ~CHAT_TRAINED, &n);
        if (is_trained != was_trained)
            text[at++] = is_trained ? '{' : '}';
        memcpy(text + at, bytes, n);
        at += n;
        was_trained = is_trained;
    }
    if (was_trained)
        text[at++] = '}';
    text[at] = 0;
    return text;
}

static struct chat *open_chat(const struct tokenizer *tokenizer, const char *family,
                              enum chat_loss loss)
{
    struct chat_template template;
    struct chat *chat;
    assert_int_equal(chat_template_named(family, &template), ST_OK);
    assert_int_equal(chat_open(tokenizer, &template, loss, &chat), ST_OK);
    return chat;
}

static void expect(const char *family, enum chat_loss loss, const char *line, const char *want)
{
    struct tokenizer *tokenizer = open_tokenizer();
    struct chat_ids ids = {0};
    enum chat_form form = CHAT_FORM_NONE;
    struct chat *chat = open_chat(tokenizer, family, loss);
    if (chat_record(chat, NULL, line, strlen(line), &form, &ids) != ST_OK)
        fail_msg("%s: %s", line, status_message());
    assert_string_equal(shown(tokenizer, &ids), want);
    free(ids.ids);
    chat_close(chat);
    tokenizer_close(tokenizer);
}

#define TURN(role, content) "{\"role\":\"" role "\",\"content\":\"" content "\"}"
#define TWO                                                                  \
    "{\"messages\":[" TURN("user", "a") "," TURN("assistant", "b") "," TURN( \
        "user", "ab") "," TURN("assistant", "ba") "]}"
#define USER "<|im_start|>user\n"
#define ANSWER "<|im_start|>assistant\n"

TEST(test_masks)
{
    expect("chatml", CHAT_LOSS_ASSISTANT, TWO,
           USER "a<|im_end|>\n" ANSWER "{b<|im_end|>}\n" USER "ab<|im_end|>\n" ANSWER
                "{ba<|im_end|>}\n");
    expect("chatml", CHAT_LOSS_LAST, TWO,
           USER "a<|im_end|>\n" ANSWER "b<|im_end|>\n" USER "ab<|im_end|>\n" ANSWER
                "{ba<|im_end|>}\n");
    expect("chatml", CHAT_LOSS_ALL, TWO,
           "{" USER "a<|im_end|>\n" ANSWER "b<|im_end|>\n" USER "ab<|im_end|>\n" ANSWER
           "ba<|im_end|>\n}");
    /* An empty answer still ends its turn. */
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"messages\":[" TURN("user", "a") "," TURN("assistant", "") "]}",
           USER "a<|im_end|>\n" ANSWER "{<|im_end|>}\n");
    /* Two line ends are one token, which the answer shares with the header. */
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"messages\":[" TURN("user", "a") "," TURN("assistant", "\\n") "]}",
           USER "a<|im_end|>\n<|im_start|>assistant{\n\n<|im_end|>}\n");
}

TEST(test_forms)
{
    const char *want = USER "a<|im_end|>\n" ANSWER "{b<|im_end|>}\n";
    expect("chatml", CHAT_LOSS_ASSISTANT, "{\"prompt\":\"a\",\"completion\":\"b\"}", want);
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"conversations\":[{\"from\":\"human\",\"value\":\"a\"},{\"from\":\"gpt\",\"value\":"
           "\"b\"}],\"id\":7}",
           want);
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"prompt\":\"a\",\"completion\":\"b\",\"input\":7,\"tools\":[],\"system\":\"\"}",
           want);
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"instruction\":\"a\",\"input\":null,\"output\":\"b\",\"history\":[]}", want);
    expect("chatml", CHAT_LOSS_ASSISTANT, "{\"instruction\":\"a\",\"input\":\"\",\"output\":\"b\"}",
           want);
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"instruction\":\"a\",\"input\":\"ab\",\"output\":\"b\"}",
           USER "a\n\nab<|im_end|>\n" ANSWER "{b<|im_end|>}\n");
    expect("chatml", CHAT_LOSS_ASSISTANT,
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{"
           "\"type\":\"text\",\"text\":\"b\"}]}," TURN("assistant", "b") "]}",
           USER "ab<|im_end|>\n" ANSWER "{b<|im_end|>}\n");
    expect("chatml", CHAT_LOSS_ASSISTANT, "{\"input_ids\":[0,1,2],\"labels\":[-100,-100,2]}",
           "ab{ab}");
}

/* Names of special tokens in a content are text, and bytes that the vocabulary lacks are left
 * out. */
TEST(test_contents)
{
    struct tokenizer *tokenizer = open_tokenizer();
    struct chat_ids ids = {0};
    enum chat_form form = CHAT_FORM_NONE;
    struct chat *chat = open_chat(tokenizer, "chatml", CHAT_LOSS_ASSISTANT);
    const char *line = "{\"prompt\":\"<s>\",\"completion\":\"Zb<|im_end|>\"}";
    assert_int_equal(chat_record(chat, NULL, line, strlen(line), &form, &ids), ST_OK);
    const char *want = USER "<s><|im_end|>\n" ANSWER "{b<|im_end|><|im_end|>}\n";
    assert_string_equal(shown(tokenizer, &ids), want);
    size_t special = 0;
    for (size_t i = 0; i < ids.n; i++)
        special += (ids.ids[i] & ~CHAT_TRAINED) >= 28;
    assert_int_equal(special, 4); /* two begins, two ends */
    ids.n = 0;
    const struct chat_message question = {CHAT_ROLE_USER, "a", 1};
    assert_int_equal(chat_write(chat, NULL, &question, 1, true, &ids), ST_OK);
    assert_string_equal(shown(tokenizer, &ids), USER "a<|im_end|>\n" ANSWER);
    chat_close(chat);
    /* A prompt has no marks, whatever the loss counts. */
    chat = open_chat(tokenizer, "chatml", CHAT_LOSS_ALL);
    ids.n = 0;
    assert_int_equal(chat_write(chat, NULL, &question, 1, true, &ids), ST_OK);
    assert_string_equal(shown(tokenizer, &ids), USER "a<|im_end|>\n" ANSWER);
    free(ids.ids);
    chat_close(chat);
    tokenizer_close(tokenizer);
}

TEST(test_families)
{
    expect("llama-2", CHAT_LOSS_ASSISTANT, TWO,
           "<s>[INST] a [/INST] {b </s>}<s>[INST] ab [/INST] {ba </s>}");
    expect("llama-2", CHAT_LOSS_ASSISTANT,
           "{\"messages\":[" TURN("system", "t") "," TURN("user", " a ") "," TURN("assistant",
                                                                                  " b ") "]}",
           "<s>[INST] <<SYS>>\nt\n<</SYS>>\n\n a [/INST] {b </s>}");
}

static void refuse(const char *family, const char *line, const char *why)
{
    struct tokenizer *tokenizer = open_tokenizer();
    struct chat_ids ids = {0};
    enum chat_form form = CHAT_FORM_NONE;
    struct chat *chat = open_chat(tokenizer, family, CHAT_LOSS_ASSISTANT);
    assert_int_equal(chat_record(chat, NULL, line, strlen(line), &form, &ids), ST_BAD_DATA);
    if (strstr(status_message(), why) == NULL)
        fail_msg("%s: \"%s\", expected \"%s\"", line, status_message(), why);
    assert_int_equal(ids.n, 0);
    free(ids.ids);
    chat_close(chat);
    tokenizer_close(tokenizer);
}

TEST(test_refusals)
{
    refuse("chatml", "", "");
    refuse("chatml", "[]", "not a conversation");
    refuse("chatml", "{\"text\":\"a\"}", "not a conversation");
    refuse("chatml", "{\"messages\":[]}", "not a list with a message");
    refuse("chatml", "{\"messages\":[" TURN("user", "a") "]}", "no message of the assistant");
    refuse("chatml", "{\"messages\":[" TURN("tool", "a") "]}", "role \"tool\"");
    refuse("chatml", "{\"messages\":[{\"role\":\"user\"}]}", "no text");
    refuse("chatml", "{\"messages\":[{\"content\":\"a\"}]}", "no \"role\"");
    refuse("chatml",
           "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image\",\"url\":\"x\"}]}]}",
           "type \"image\"");
    refuse("chatml",
           "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"tool_calls\":[{}]}]}",
           "tool_calls");
    refuse(
        "chatml",
        "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"reasoning_content\":\"b\"}]}",
        "reasoning_content");
    refuse("chatml", "{\"messages\":[{\"role\":\"assistant\",\"content\":\"a\",\"weight\":0}]}",
           "a weight of 0");
    refuse("chatml", "{\"messages\":[" TURN("assistant", "a") "],\"tools\":[{\"name\":\"f\"}]}",
           "\"tools\" next to messages");
    refuse("chatml", "{\"system\":\"a\",\"conversations\":[{\"from\":\"gpt\",\"value\":\"b\"}]}",
           "\"system\" next to conversations");
    refuse("chatml", "{\"instruction\":\"a\",\"output\":\"b\",\"history\":[[\"a\",\"b\"]]}",
           "\"history\" next to instruction");
    refuse("chatml", "{\"messages\":[" TURN("assistant", "a") "," TURN("system", "b") "]}",
           "may only be the first");
    refuse("chatml", "{\"input_ids\":[1],\"labels\":[]}", "each id needs one label");
    refuse("chatml", "{\"input_ids\":[1,2],\"labels\":[2,-100]}", "not shifted");
    refuse("chatml", "{\"input_ids\":[-1],\"labels\":[-1]}", "input_ids");
    refuse("chatml", "{\"prompt\":1,\"completion\":\"a\"}", "\"prompt\" is not a text");
    refuse("llama-2", "{\"messages\":[" TURN("assistant", "a") "]}", "alternate");
}

TEST(test_one_form)
{
    struct tokenizer *tokenizer = open_tokenizer();
    struct chat_template template;
    struct chat_ids ids = {0};
    enum chat_form form = CHAT_FORM_PROMPT;
    struct chat *chat = open_chat(tokenizer, "chatml", CHAT_LOSS_ASSISTANT);
    assert_int_equal(chat_record(chat, NULL, TWO, strlen(TWO), &form, &ids), ST_BAD_DATA);
    assert_non_null(strstr(status_message(), "messages among records with prompt"));
    chat_close(chat);
    assert_int_equal(chat_template_named("llama-3", &template), ST_OK);
    assert_int_equal(chat_open(tokenizer, &template, CHAT_LOSS_ASSISTANT, &chat), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "<|begin_of_text|>"));
    free(ids.ids);
    tokenizer_close(tokenizer);
}

static void read_identity(const struct chat_template *from, enum chat_loss loss, uint64_t out[2])
{
    struct tokenizer *tokenizer = open_tokenizer();
    struct chat *chat;
    assert_int_equal(chat_open(tokenizer, from, loss, &chat), ST_OK);
    chat_identity(chat, out);
    chat_close(chat);
    tokenizer_close(tokenizer);
}

/* Token files are kept under this identity. */
TEST(test_identity)
{
    const struct chat_template base = {.special = {"<s>"}, .user = {"<s>", ""}, .turn_end = "</s>"};
    struct chat_template other[3] = {base, base, base};
    uint64_t first[2], next[2];
    other[0].omits_empty_system = true; /* phi-3 and phi-3.5 differ in nothing else */
    other[1].special[1] = "</s>";
    other[2].special[1] = "{eos}"; /* the same id, which is not found in the texts */
    read_identity(&base, CHAT_LOSS_ASSISTANT, first);
    read_identity(&base, CHAT_LOSS_ALL, next);
    assert_memory_not_equal(first, next, sizeof first);
    for (size_t i = 0; i < 3; i++) {
        read_identity(other + i, CHAT_LOSS_ASSISTANT, next);
        assert_memory_not_equal(first, next, sizeof first);
        memcpy(first, next, sizeof first);
    }
}

TEST(test_recognition)
{
    struct chat_template template;
    static const struct {
        const char *jinja, *family;
    } cases[] = {
        {"{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}",
         "chatml"},
        {"{{ '<|im_start|>'+message.role+\"\n\"+message.content + '<|im_end|>' }}{{ '\n' }}",
         "chatml"},
        /* No line end after a turn; a system message of its own; a character after the end. */
        {"{{ '<|im_start|>'+message.role+'\\n'+message.content + '<|im_end|>' }}", NULL},
        {"{{'<|im_start|>system\\n' + system_message + '<|im_end|>\\n'}}{{'<|im_start|>' + "
         "message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}",
         NULL},
        {"{{'<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n'}}{{'<|im_start|>' + "
         "message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}",
         "chatml"},
        {"{{'<|im_start|>system\\nYou\\nare<|im_end|>\\n'}}{{'<|im_start|>' + message['role'] + "
         "'\\n' + message['content'] + '<|im_end|>' + '\\n'}}",
         NULL},
        {"{{'<|start_header_id|>system<|end_header_id|>\\n\\nBe kind.<|eot_id|>'}}{{ "
         "message['content'] | trim + '<|eot_id|>' }}",
         NULL},
        {"{{ message['content'] | trim + '<|eot_id|>' }}", "llama-3"},
        {"{{'<|system|>\\nBe kind.' + eos_token}}{{ '<|user|>\\n' + message['content'] + eos_token "
         "}}",
         NULL},
        {"[", NULL},
        {"{{ bos_token }}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + "
         "'<|im_end|>'}}",
         NULL},
        {"{{'<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>'}}",
         NULL},
        {"{{ '<|user|>\\n' + message['content'] + eos_token }}", "zephyr"},
        {"{{ ' [INST] ' + message['content'] + ' [/INST]' }}{{ ' ' + message['content'] + "
         "eos_token}}",
         "mistral"},
        {"{{ '[INST] ' + message['content'] + ' [/INST]' }}{{ message['content'] + eos_token}}",
         NULL},
        {"", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum status st = chat_template_recognise(cases[i].jinja, "t.json", &template);
        assert_int_equal(st, cases[i].family != NULL ? ST_OK : ST_BAD_SETTING);
        if (st == ST_OK)
            assert_string_equal(template.name, cases[i].family);
    }
    assert_int_equal(chat_template_recognise(
                         "{{'<|im_start|>system\nBe kind<|im_end|>\n'}}{{'<|im_start|>' + "
                         "message['role'] + '\n' + message['content'] + '<|im_end|>'}}{{'\n'}}",
                         "t.json", &template),
                     ST_OK);
    assert_string_equal(template.default_system, "Be kind");
    chat_template_free(&template);
}

/* A family as Jinja is recognised again; texts of a table are quoted. */
TEST(test_jinja)
{
    static const char *const names[] = {"chatml",  "qwen3",  "llama-2", "llama-3", "llama-3.1",
                                        "mistral", "zephyr", "phi-3",   "phi-3.5", "gemma"};
    static const char table[] =
        "{\"special\": [\"{bos}\"], \"begin\": \"{bos}\", \"user\": [\"it's\\n\", "
        "\"\\\\\"], \"assistant\": [\"A:\", \".\", \"\"]}";
    struct chat_template template, again;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct text jinja = {.data = NULL};
        assert_int_equal(chat_template_named(names[i], &template), ST_OK);
        chat_template_jinja(&template, &jinja);
        assert_int_equal(chat_template_recognise(jinja.data, "own", &again), ST_OK);
        assert_string_equal(again.name, names[i]);
        text_free(&jinja);
    }
    struct text jinja = {.data = NULL};
    assert_int_equal(chat_template_parse(table, sizeof table - 1, "table", &template), ST_OK);
    chat_template_jinja(&template, &jinja);
    assert_non_null(strstr(jinja.data, "{{ '' + bos_token + '' }}"));
    assert_non_null(strstr(jinja.data, "{{ 'it\\'s\\n' + message['content'] + '\\\\' }}"));
    assert_non_null(strstr(jinja.data, "raise_exception"));
    chat_template_free(&template);
    text_free(&jinja);
}

TEST(test_tables)
{
    struct chat_template template;
    static const struct {
        const char *json, *why;
    } cases[] = {
        {"{\"special\":[],\"user\":[\"Q: \",\"\\n\"],\"assistant\":[\"A:\",\"</s>\",\"\\n\"]}",
         NULL},
        {"{\"special\":[],\"user\":[\"Q: \",\"\\n\"],\"assistant\":[\"A:\",\"\",\"\\n\"]}",
         "never end its turn"},
        {"{\"special\":[],\"user\":[\"Q: \"],\"assistant\":[\"A:\",\"x\",\"\\n\"]}", "two texts"},
        {"{\"special\":[],\"user\":[\"Q: \",\"\"]}", "needs \"user\" and \"assistant\""},
        {"{\"special\":[1]}", "list of tokens"},
        {"{\"special\":[],\"user\":[\"Q: \",\"\\n\"],\"assistant\":[\"A:\",\"{eos}\",\"\\n\"]}",
         "has {eos}, which"},
        {"{\"special\":[],\"default_system\":\"x\",\"user\":[\"Q: "
         "\",\"\\n\"],\"assistant\":[\"A:\",\"x\",\"\"]}",
         "needs \"system\""},
        {"{\"special\":[],\"uzer\":[]}", "no \"uzer\""},
        {"[]", "JSON object"},
        {"{", ""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const enum status st =
            chat_template_parse(cases[i].json, strlen(cases[i].json), "t.json", &template);
        assert_int_equal(st, cases[i].why == NULL ? ST_OK : ST_BAD_DATA);
        if (st != ST_OK && strstr(status_message(), cases[i].why) == NULL)
            fail_msg("%s: %s", cases[i].json, status_message());
        if (st == ST_OK) {
            assert_string_equal(template.name, "t.json");
            chat_template_free(&template);
        }
    }
    assert_int_equal(chat_template_named("nothing", &template), ST_BAD_SETTING);
    assert_non_null(strstr(status_message(), "chatml, qwen3"));
}

HARNESS_RUN_ALL()
