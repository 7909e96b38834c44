/* chat — see chat.h. The text between two special tokens is one run: it is encoded at once, and
 * each of its tokens is then attributed to the bytes that it stands for. */
#include "data/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/assert.h"
#include "base/memory.h"
#include "base/text.h"

struct special {
    const char *text;
    size_t n;
    uint32_t id;
};

struct chat {
    const struct tokenizer *tokenizer;
    struct chat_template template;
    enum chat_loss loss;
    struct special special[CHAT_TEMPLATE_SPECIAL_MAX];
    size_t special_n;
};

/* ---- life ---- */

static enum status add_special(struct chat *chat, const char *text)
{
    const bool is_optional = text[0] == '?';
    text += is_optional;
    const uint32_t id = strcmp(text, "{eos}") == 0   ? tokenizer_end(chat->tokenizer)
                        : strcmp(text, "{bos}") == 0 ? tokenizer_begin(chat->tokenizer)
                                                     : tokenizer_find(chat->tokenizer, text);
    if (id == TOKENIZER_NONE && !is_optional)
        return FAIL(ST_BAD_SETTING,
                    "CHAT_TEMPLATE=%s needs the token %s, which the tokenizer %s does not have; "
                    "set CHAT_TEMPLATE to the family of this model, or to zephyr, which needs only "
                    "an end of text",
                    chat->template.name, text, tokenizer_name(chat->tokenizer));
    if (id != TOKENIZER_NONE)
        chat->special[chat->special_n++] = (struct special){text, strlen(text), id};
    return ST_OK;
}

static enum status add_specials(struct chat *chat)
{
    const char *const *name = chat->template.special;
    for (size_t i = 0; i < CHAT_TEMPLATE_SPECIAL_MAX && name[i] != NULL; i++)
        TRY(add_special(chat, name[i]));
    return ST_OK;
}

enum status chat_open(const struct tokenizer *tokenizer, const struct chat_template *template,
                      enum chat_loss loss, struct chat **out)
{
    struct chat *chat = memory_new(1, sizeof *chat);
    chat->tokenizer = tokenizer;
    chat->template = *template;
    chat->loss = loss;
    const enum status st = add_specials(chat);
    if (st == ST_OK)
        *out = chat;
    else
        chat_close(chat);
    return st;
}

void chat_close(struct chat *chat)
{
    if (chat != NULL)
        chat_template_free(&chat->template);
    free(chat);
}

static void hash_text(XXH3_state_t *hash, const char *text)
{
    XXH3_128bits_update(hash, text != NULL ? text : "\xff", text != NULL ? strlen(text) + 1 : 2);
}

void chat_identity(const struct chat *chat, uint64_t out[2])
{
    const struct chat_template *t = &chat->template;
    const char *const texts[] = {t->begin,   t->system[0], t->system[1],     t->user[0],
                                 t->user[1], t->assistant, t->turn_end,      t->after,
                                 t->last,    t->finish,    t->default_system};
    const uint32_t facts[] = {chat->loss, t->strip, t->is_system_in_user, t->omits_empty_system};
    XXH3_state_t *hash = XXH3_createState();
    ASSERT(hash != NULL);
    XXH3_128bits_reset(hash);
    XXH3_128bits_update(hash, facts, sizeof facts);
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        hash_text(hash, texts[i]);
    for (size_t i = 0; i < chat->special_n; i++) {
        hash_text(hash, chat->special[i].text);
        XXH3_128bits_update(hash, &chat->special[i].id, sizeof chat->special[i].id);
    }
    /* The tokenizer's identity does not contain which added tokens are special. */
    for (uint32_t id = 0; id < tokenizer_vocab(chat->tokenizer); id++)
        if (tokenizer_is_plain_added(chat->tokenizer, id))
            XXH3_128bits_update(hash, &id, sizeof id);
    const XXH128_hash_t sum = XXH3_128bits_digest(hash);
    XXH3_freeState(hash);
    out[0] = sum.low64;
    out[1] = sum.high64;
}

/* ---- runs ---- */

struct range {
    size_t begin, end;
};

/* A conversation that is being written. */
struct writer {
    const struct chat *chat;
    const struct encode_watch *watch;
    struct chat_ids *out;
    bool is_all;           /* all tokens are trained */
    size_t first;          /* ids of out before the conversation */
    struct text run;       /* text since the last special token */
    struct range *trained; /* bytes of the run that are trained, in rising order */
    size_t trained_n, trained_cap;
};

void chat_reserve_ids(struct chat_ids *out, size_t more)
{
    if (out->cap - out->n >= more)
        return;
    out->cap = 2 * (out->n + more);
    out->ids = memory_resize(out->ids, out->cap, sizeof *out->ids);
}

static size_t token_bytes(const struct writer *w, uint32_t id)
{
    size_t n = 0;
    tokenizer_bytes(w->chat->tokenizer, id, &n);
    return n;
}

/* A byte of the run, and its offset in the normal form of a segment. */
struct cursor {
    size_t at, normal;
};

/* Sets *out to the offset of byte `at`, at or after the cursor. The cursor moves there if the
 * normal forms before and after it are independent, so that many calls read a run once. */
static enum status normal_offset(const struct writer *w, struct cursor *cursor, size_t at,
                                 size_t *out)
{
    size_t n;
    TRY(tokenizer_normal_bytes(w->chat->tokenizer, w->run.data + cursor->at, at - cursor->at, &n));
    *out = cursor->normal + n;
    if (at < w->run.len && (uint8_t)w->run.data[at] < 0x80)
        *cursor = (struct cursor){at, *out};
    return ST_OK;
}

/* Returns the index of the first trained range that ends after byte `at`. */
static size_t range_after(const struct writer *w, size_t at)
{
    size_t low = 0, high = w->trained_n;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (w->trained[mid].end <= at)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Marks the ids, of n, that stand for a trained byte. Together they are bytes [first, end) of the
 * run, without added tokens. Sets *is_spelled to false if they do not spell these bytes. */
static enum status mark_words(const struct writer *w, uint32_t *ids, size_t n, size_t first,
                              size_t end, bool *is_spelled)
{
    struct cursor whole = {first, 0}, cursor = {first, 0};
    size_t bytes = 0, all, at = 0, i = 0;
    for (size_t k = 0; k < n; k++)
        bytes += token_bytes(w, ids[k]);
    TRY(normal_offset(w, &whole, end, &all));
    *is_spelled = *is_spelled && (bytes == all || bytes == all + 1);
    /* A space that was put before the first word belongs to its first byte. */
    const size_t space = bytes - all;
    for (size_t r = range_after(w, first); *is_spelled && r < w->trained_n; r++) {
        const struct range *range = w->trained + r;
        size_t begin, stop;
        if (range->begin >= end)
            break;
        TRY(normal_offset(w, &cursor, range->begin > first ? range->begin : first, &begin));
        TRY(normal_offset(w, &cursor, range->end < end ? range->end : end, &stop));
        for (size_t token_n; i < n && at < stop + space; i++, at += token_n) {
            token_n = token_bytes(w, ids[i] & ~CHAT_TRAINED);
            if (at + token_n > (begin > 0 ? begin + space : 0))
                ids[i] |= CHAT_TRAINED;
        }
    }
    return ST_OK;
}

static bool is_trained_at(const struct writer *w, size_t at)
{
    const size_t r = range_after(w, at);
    return r < w->trained_n && w->trained[r].begin <= at;
}

/* Marks the ids of the run that stand for a trained byte. Sets *is_spelled to false if the ids do
 * not spell the run: the vocabulary lacks some of its bytes. */
static enum status mark_ids(const struct writer *w, uint32_t *ids, size_t n, bool *is_spelled)
{
    const char *const run = w->run.data;
    size_t first = 0; /* byte of the run at which the next id begins */
    for (size_t i = 0, k; *is_spelled && i < n; i = k + 1) {
        for (k = i; k < n && !tokenizer_is_plain_added(w->chat->tokenizer, ids[k]);)
            k++;
        size_t end = w->run.len, added_n = 0;
        if (k < n) {
            const uint8_t *added = tokenizer_bytes(w->chat->tokenizer, ids[k], &added_n);
            const char *found = memmem(run + first, w->run.len - first, added, added_n);
            *is_spelled = found != NULL;
            end = found != NULL ? (size_t)(found - run) : end;
        }
        TRY(mark_words(w, ids + i, k - i, first, end, is_spelled));
        if (k < n && is_trained_at(w, end))
            ids[k] |= CHAT_TRAINED;
        first = end + added_n;
    }
    return ST_OK;
}

/* Appends the ids of bytes [begin, end) of the run. */
static enum status encode_range(struct writer *w, size_t begin, size_t end, bool is_trained)
{
    size_t n;
    chat_reserve_ids(w->out, tokenizer_cap(w->chat->tokenizer, end - begin));
    uint32_t *ids = w->out->ids + w->out->n;
    TRY(tokenizer_encode_turn(w->chat->tokenizer, w->watch, w->run.data + begin, end - begin,
                              w->out->n == w->first, ids, &n));
    for (size_t i = 0; is_trained && i < n; i++)
        ids[i] |= CHAT_TRAINED;
    w->out->n += n;
    return ST_OK;
}

/* Encodes the run in ranges that are trained or not, because its tokens cannot be attributed. */
static enum status encode_ranges(struct writer *w)
{
    size_t at = 0;
    for (size_t r = 0; r < w->trained_n; r++) {
        const struct range *range = w->trained + r;
        TRY(encode_range(w, at, range->begin, false));
        TRY(encode_range(w, range->begin, range->end, true));
        at = range->end;
    }
    return encode_range(w, at, w->run.len, false);
}

static enum status flush_run(struct writer *w)
{
    const size_t before = w->out->n;
    bool is_spelled = true;
    if (w->run.overflow)
        return FAIL(ST_BAD_DATA, "a conversation of more than 128 MiB");
    if (w->run.len == 0)
        return ST_OK;
    TRY(encode_range(w, 0, w->run.len, false));
    if (w->trained_n > 0)
        TRY(mark_ids(w, w->out->ids + before, w->out->n - before, &is_spelled));
    if (!is_spelled) {
        w->out->n = before; /* marks, too, are made anew */
        TRY(encode_ranges(w));
    }
    w->run.len = 0;
    w->trained_n = 0;
    return ST_OK;
}

static void add_text(struct writer *w, const char *text, size_t n, bool is_trained)
{
    struct range *last = w->trained_n > 0 ? w->trained + w->trained_n - 1 : NULL;
    if (is_trained && last != NULL && last->end == w->run.len) {
        last->end += n; /* a text of the template comes byte by byte */
    } else if (is_trained && n > 0) {
        if (w->trained_n == w->trained_cap)
            w->trained = memory_grow(w->trained, w->trained_n, &w->trained_cap, sizeof *w->trained);
        w->trained[w->trained_n++] = (struct range){w->run.len, w->run.len + n};
    }
    text_add_bytes(&w->run, text, n);
}

static enum status add_token(struct writer *w, uint32_t id, bool is_trained)
{
    TRY(flush_run(w));
    chat_reserve_ids(w->out, 1);
    w->out->ids[w->out->n++] = is_trained ? id | CHAT_TRAINED : id;
    return ST_OK;
}

/* Finds the special token of the template that begins at p, the longest if there are several. */
static const struct special *special_at(const struct chat *chat, const char *p)
{
    const struct special *found = NULL;
    for (size_t i = 0; i < chat->special_n; i++) {
        const struct special *one = chat->special + i;
        if (strncmp(p, one->text, one->n) == 0 && (found == NULL || one->n > found->n))
            found = one;
    }
    return found;
}

/* Adds a text of the template, in which names of special tokens are these tokens. */
static enum status add_template(struct writer *w, const char *text, bool is_trained)
{
    for (const char *p = text; p != NULL && *p != '\0';) {
        const struct special *special = special_at(w->chat, p);
        if (special == NULL) {
            add_text(w, p++, 1, is_trained);
            continue;
        }
        TRY(add_token(w, special->id, is_trained));
        p += special->n;
    }
    return ST_OK;
}

/* ---- conversations ---- */

/* Returns the bytes of the white space that begins at p, as Python's str.strip counts it; 0: there
 * is none. */
static size_t space_at(const uint8_t *p, size_t n)
{
    if (*p == ' ' || (*p >= '\t' && *p <= '\r') || (*p >= 0x1c && *p <= 0x1f))
        return 1;
    if (n >= 2 && p[0] == 0xc2 && (p[1] == 0x85 || p[1] == 0xa0))
        return 2;
    if (n < 3 || p[0] < 0xe1 || p[0] > 0xe3)
        return 0;
    const uint32_t c = (uint32_t)(p[0] & 0xf) << 12 | (uint32_t)(p[1] & 0x3f) << 6 | (p[2] & 0x3f);
    const bool is_space = c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
                          c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
    return is_space ? 3 : 0;
}

static void strip_begin(struct chat_message *m)
{
    for (size_t n; m->n > 0 && (n = space_at((const uint8_t *)m->content, m->n)) > 0; m->n -= n)
        m->content += n;
}

static void strip_end(struct chat_message *m)
{
    for (size_t n = 1; m->n > 0 && n > 0;) {
        const uint8_t *p = (const uint8_t *)m->content + m->n - 1;
        size_t back = 1;
        while (back < m->n && (*p & 0xc0) == 0x80) {
            p--;
            back++;
        }
        n = space_at(p, back) == back ? back : 0;
        m->n -= n;
    }
}

/* is_stripped: white space at the end is left out. */
static enum status write_system(struct writer *w, const struct chat_message *system,
                                bool is_stripped)
{
    const struct chat_template *t = &w->chat->template;
    struct chat_message m = *system;
    if (t->strip == CHAT_STRIP_CONTENT && !t->is_system_in_user) {
        strip_begin(&m);
        strip_end(&m);
    }
    TRY(add_template(w, t->system[0], w->is_all));
    add_text(w, m.content, m.n, w->is_all);
    if (!is_stripped)
        return add_template(w, t->system[1], w->is_all);
    m = (struct chat_message){.content = t->system[1], .n = strlen(t->system[1])};
    strip_end(&m);
    add_text(w, m.content, m.n, w->is_all);
    return ST_OK;
}

/* Writes a user turn; system: the message that it contains, or NULL. */
static enum status write_user(struct writer *w, const struct chat_message *message,
                              const struct chat_message *system)
{
    const struct chat_template *t = &w->chat->template;
    struct chat_message m = *message;
    if (t->strip == CHAT_STRIP_CONTENT || (t->strip == CHAT_STRIP_TURN && system == NULL))
        strip_begin(&m);
    if (t->strip != CHAT_STRIP_NONE)
        strip_end(&m);
    TRY(add_template(w, t->user[0], w->is_all));
    if (system != NULL)
        TRY(write_system(w, system, t->strip == CHAT_STRIP_TURN && m.n == 0));
    add_text(w, m.content, m.n, w->is_all);
    return add_template(w, t->user[1], w->is_all);
}

static enum status write_answer(struct writer *w, const struct chat_message *message, bool is_last,
                                bool is_trained)
{
    const struct chat_template *t = &w->chat->template;
    struct chat_message m = *message;
    if (t->strip != CHAT_STRIP_NONE) {
        strip_begin(&m);
        strip_end(&m);
    }
    TRY(add_template(w, t->assistant, w->is_all));
    if (is_last && t->last != NULL) {
        TRY(add_template(w, t->last, w->is_all));
        for (; m.n > 0 && *m.content == '\n'; m.n--)
            m.content++;
    }
    add_text(w, m.content, m.n, is_trained);
    TRY(add_template(w, t->turn_end, is_trained));
    return add_template(w, t->after, w->is_all);
}

/* Returns the index after the last message of a role; 0: there is none. */
static size_t last_of(const struct chat_message *messages, size_t n, enum chat_role role)
{
    while (n > 0 && messages[n - 1].role != role)
        n--;
    return n;
}

/* Checks the order of roles. Templates with the system message in a user turn need turns that
 * alternate. */
static enum status check_order(const struct chat *chat, const struct chat_message *messages,
                               size_t n)
{
    static const char *const names[] = {"system", "user", "assistant"};
    const bool alternates = chat->template.is_system_in_user;
    const size_t first = n > 0 && messages[0].role == CHAT_ROLE_SYSTEM;
    if (chat->template.system[0] == NULL && first > 0)
        return FAIL(ST_BAD_DATA, "a system message, which CHAT_TEMPLATE=%s does not have",
                    chat->template.name);
    for (size_t i = first; i < n; i++) {
        const enum chat_role role = messages[i].role;
        if (role == CHAT_ROLE_SYSTEM)
            return FAIL(ST_BAD_DATA, "message %zu is a system message, which may only be the first",
                        i + 1);
        if (chat->template.last != NULL && role == CHAT_ROLE_ASSISTANT &&
            memmem(messages[i].content, messages[i].n, "</think>", 8) != NULL)
            return FAIL(ST_BAD_DATA,
                        "message %zu contains </think>, but CHAT_TEMPLATE=%s writes answers "
                        "without thoughts; CHAT_TEMPLATE=chatml keeps them",
                        i + 1, chat->template.name);
        if (alternates && (role == CHAT_ROLE_USER) != ((i - first) % 2 == 0))
            return FAIL(ST_BAD_DATA,
                        "message %zu is of role %s, but with CHAT_TEMPLATE=%s user and assistant "
                        "alternate, and a user begins",
                        i + 1, names[role], chat->template.name);
    }
    return ST_OK;
}

static enum status write_all(struct writer *w, const struct chat_message *messages, size_t n,
                             bool is_prompt)
{
    const struct chat_template *t = &w->chat->template;
    const struct chat_message fallback = {CHAT_ROLE_SYSTEM, t->default_system,
                                          t->default_system != NULL ? strlen(t->default_system)
                                                                    : 0};
    const bool has_system = n > 0 && messages[0].role == CHAT_ROLE_SYSTEM;
    const struct chat_message *system = has_system                  ? messages
                                        : t->default_system != NULL ? &fallback
                                                                    : NULL;
    if (system != NULL && system->n == 0 && t->omits_empty_system)
        system = NULL;
    const size_t last_user = last_of(messages, n, CHAT_ROLE_USER),
                 last_answer = last_of(messages, n, CHAT_ROLE_ASSISTANT);
    TRY(add_template(w, t->begin, w->is_all));
    if (system != NULL && !t->is_system_in_user)
        TRY(write_system(w, system, false));
    for (size_t i = has_system; i < n; i++) {
        const bool is_trained =
            !is_prompt && (w->chat->loss != CHAT_LOSS_LAST || i + 1 == last_answer);
        if (messages[i].role == CHAT_ROLE_USER)
            TRY(write_user(w, messages + i,
                           t->is_system_in_user && i == has_system ? system : NULL));
        else
            TRY(write_answer(w, messages + i, i + 1 == n && i >= last_user, is_trained));
    }
    if (is_prompt) {
        TRY(add_template(w, t->assistant, false));
        TRY(add_template(w, t->last, false));
    } else {
        TRY(add_template(w, t->finish, w->is_all));
    }
    return flush_run(w);
}

enum status chat_write(const struct chat *chat, const struct encode_watch *watch,
                       const struct chat_message *messages, size_t n, bool is_prompt,
                       struct chat_ids *out)
{
    struct writer w = {.chat = chat,
                       .watch = watch,
                       .out = out,
                       .is_all = chat->loss == CHAT_LOSS_ALL && !is_prompt,
                       .first = out->n,
                       .run = {.limit = (size_t)128 << 20}};
    TRY(check_order(chat, messages, n));
    const enum status st = write_all(&w, messages, n, is_prompt);
    text_free(&w.run);
    free(w.trained);
    return st;
}

uint32_t chat_turn_end(const struct chat *chat)
{
    const char *p = chat->template.turn_end;
    while (*p != '\0' && special_at(chat, p) == NULL)
        p++;
    return *p != '\0' ? special_at(chat, p)->id : TOKENIZER_NONE;
}

void chat_show(const struct tokenizer *tokenizer, const int32_t *ids, int64_t n, bool has_color,
               struct text *out)
{
    const char *const begin = has_color ? "\x1b[32m" : "\xe2\x9f\xa6";
    const char *const end = has_color ? "\x1b[0m" : "\xe2\x9f\xa7";
    bool was_trained = false;
    for (int64_t i = 0; i <= n; i++) {
        const bool is_trained = i < n && ((uint32_t)ids[i] & CHAT_TRAINED) != 0;
        size_t bytes_n = 0;
        const uint8_t *bytes =
            i < n ? tokenizer_bytes(tokenizer, (uint32_t)ids[i] & ~CHAT_TRAINED, &bytes_n) : NULL;
        if (is_trained != was_trained)
            text_add(out, "%s", is_trained ? begin : end);
        /* Text from a file must not control a terminal. */
        for (size_t k = 0; bytes != NULL && k < bytes_n; k++) {
            const uint8_t c = bytes[k];
            const bool is_shown = c == '\n' || c == '\t' || (c >= 0x20 && c != 0x7f);
            text_add_bytes(out, is_shown ? (const void *)&c : "?", 1);
        }
        was_trained = is_trained;
    }
}
