/* chat_ids — the ids of conversations, for tests/chat/test_chat_ids.sh.
 *
 *   chat_ids TOKENIZER FAMILY <conversations.jsonl
 *   chat_ids TOKENIZER @TEMPLATE.jinja <conversations.jsonl
 *   chat_ids FAMILY — prints the family as Jinja
 *
 * stdout: a line for each conversation: its ids, a trained one with a minus before it; or "refused"
 * with the reason. A template that is not recognised ends it with 2. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/chat/chat.h"
#include "data/tokenizer/file.h"

static void fail(int code)
{
    printf("refused %s\n", status_message());
    exit(code);
}

static void open_template(const char *name, struct chat_template *out)
{
    char *jinja;
    size_t n;
    if (name[0] != '@') {
        if (chat_template_named(name, out) != ST_OK)
            fail(2);
        return;
    }
    if (file_read(name + 1, 1 << 20, &jinja, &n) != ST_OK ||
        chat_template_recognise(jinja, name + 1, out) != ST_OK)
        fail(2);
    free(jinja);
}

static int print_jinja(const char *family)
{
    struct chat_template template = {.name = ""}, again = {.name = ""};
    struct text out = {.data = NULL};
    open_template(family, &template);
    chat_template_jinja(&template, &out);
    if (chat_template_recognise(out.data, "it", &again) != ST_OK || strcmp(again.name, family) != 0)
        fail(2);
    printf("%s", out.data);
    text_free(&out);
    return 0;
}

int main(int argc, char **argv)
{
    struct tokenizer *tokenizer;
    struct chat_template template = {.name = ""};
    struct chat *chat;
    struct chat_ids ids = {0};
    enum chat_form form = CHAT_FORM_NONE;
    char *line = NULL;
    size_t cap = 0;
    if (argc == 2)
        return print_jinja(argv[1]);
    if (argc != 3 || tokenizer_file_open(argv[1], &tokenizer) != ST_OK)
        fail(1);
    open_template(argv[2], &template);
    fprintf(stderr, "%s\n", template.name);
    if (chat_open(tokenizer, &template, CHAT_LOSS_ASSISTANT, &chat) != ST_OK)
        fail(2);
    for (ssize_t n; (n = getline(&line, &cap, stdin)) > 0; ids.n = 0) {
        if (chat_record(chat, NULL, line, (size_t)n, &form, &ids) != ST_OK)
            printf("refused %s", status_message());
        for (size_t i = 0; i < ids.n; i++)
            printf("%s%s%u", i > 0 ? " " : "", ids.ids[i] & CHAT_TRAINED ? "-" : "",
                   ids.ids[i] & ~CHAT_TRAINED);
        printf("\n");
    }
    free(line);
    free(ids.ids);
    chat_close(chat);
    tokenizer_close(tokenizer);
    return 0;
}
