/* aws_xml — see aws_xml.h. */
#include "remote/aws_xml.h"

#include <string.h>

#include "base/text.h"

enum { XML_DEPTH_MAX = 16 };

/* The state of a walk. */
struct xml {
    const char *at, *end;
    char path[AWS_XML_PATH_MAX]; /* names of the open elements, joined by '/' */
    int depth;                   /* open elements */
    bool is_begun;               /* the root element was opened */
    struct text text;            /* text of the innermost element, since its last child */
};

static bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == '.' || c == ':' || (unsigned char)c >= 0x80;
}

static void skip_space(struct xml *xml)
{
    while (xml->at < xml->end && is_space(*xml->at))
        xml->at++;
}

/* Skips the bytes up to and including a mark. */
static bool skip_to(struct xml *xml, const char *mark)
{
    const char *found = memmem(xml->at, (size_t)(xml->end - xml->at), mark, strlen(mark));
    if (found == NULL)
        return false;
    xml->at = found + strlen(mark);
    return true;
}

/* Returns true if the next bytes are the mark. */
static bool is_next(const struct xml *xml, const char *mark)
{
    const size_t n = strlen(mark);
    return (size_t)(xml->end - xml->at) >= n && memcmp(xml->at, mark, n) == 0;
}

/* Reads a name, and returns its bytes; 0: there is none. */
static size_t read_name(struct xml *xml, const char **name)
{
    *name = xml->at;
    while (xml->at < xml->end && is_name(*xml->at))
        xml->at++;
    return (size_t)(xml->at - *name);
}

/* Reads the number of a character reference: "#65" or "#x41". */
static bool read_character(const char *at, size_t n, uint32_t *out)
{
    const bool is_hex = n > 1 && at[1] == 'x';
    uint32_t value = 0;
    size_t i = is_hex ? 2 : 1;
    if (i >= n || n > 10)
        return false;
    for (; i < n; i++) {
        const int digit = text_hex_digit(at[i]);
        if (digit < 0 || (!is_hex && digit > 9))
            return false;
        value = value * (is_hex ? 16 : 10) + (uint32_t)digit;
        if (value > 0x10ffff)
            return false;
    }
    *out = value;
    return value != 0 && (value < 0xd800 || value > 0xdfff);
}

/* Reads "&name;" and appends its character. */
static bool read_entity(struct xml *xml)
{
    static const struct {
        const char *name;
        char c;
    } entities[] = {{"amp", '&'}, {"lt", '<'}, {"gt", '>'}, {"quot", '"'}, {"apos", '\''}};
    const char *at = xml->at + 1;
    const size_t most = (size_t)(xml->end - at) < 12 ? (size_t)(xml->end - at) : 12;
    const char *stop = memchr(at, ';', most);
    if (stop == NULL)
        return false;
    const size_t n = (size_t)(stop - at);
    xml->at = stop + 1;
    if (n > 0 && *at == '#') {
        uint32_t c;
        unsigned char utf8[4];
        if (!read_character(at, n, &c))
            return false;
        text_add_bytes(&xml->text, utf8, text_utf8_put(utf8, c));
        return true;
    }
    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (n == strlen(entities[i].name) && memcmp(at, entities[i].name, n) == 0) {
            text_add_bytes(&xml->text, &entities[i].c, 1);
            return true;
        }
    return false;
}

/* Reads text up to the next '<' or the end. */
static bool read_text(struct xml *xml)
{
    while (xml->at < xml->end && *xml->at != '<') {
        if (*xml->at == '&') {
            if (!read_entity(xml))
                return false;
            continue;
        }
        const char *from = xml->at;
        while (xml->at < xml->end && *xml->at != '<' && *xml->at != '&')
            if (*xml->at++ == '\0')
                return false;
        text_add_bytes(&xml->text, from, (size_t)(xml->at - from));
    }
    return !xml->text.overflow;
}

/* Skips the attributes of an element, up to '>' or "/>". */
static bool skip_attributes(struct xml *xml)
{
    for (;;) {
        const char *name;
        skip_space(xml);
        if (xml->at == xml->end)
            return false;
        if (*xml->at == '>' || *xml->at == '/')
            return true;
        if (read_name(xml, &name) == 0)
            return false;
        skip_space(xml);
        if (xml->at == xml->end || *xml->at++ != '=')
            return false;
        skip_space(xml);
        if (xml->at == xml->end || (*xml->at != '"' && *xml->at != '\''))
            return false;
        const char quote[2] = {*xml->at++, '\0'};
        if (!skip_to(xml, quote))
            return false;
    }
}

/* Ends the innermost element: its path and text go to on_element. */
static bool end_element(struct xml *xml,
                        bool (*on_element)(void *arg, const char *path, const char *text),
                        void *arg)
{
    const bool goes_on = on_element(arg, xml->path, xml->text.len > 0 ? xml->text.data : "");
    char *slash = strrchr(xml->path, '/');
    *(slash != NULL ? slash : xml->path) = '\0';
    xml->depth--;
    xml->text.len = 0;
    return goes_on;
}

/* Reads an element's first tag. */
static bool read_open(struct xml *xml,
                      bool (*on_element)(void *arg, const char *path, const char *text), void *arg)
{
    const char *name;
    const size_t n = read_name(xml, &name), have = strlen(xml->path);
    if (n == 0 || have + 1 + n + 1 > sizeof xml->path || xml->depth == XML_DEPTH_MAX ||
        (xml->depth == 0 && xml->is_begun) || !skip_attributes(xml))
        return false;
    char *to = xml->path + have;
    if (xml->depth > 0)
        *to++ = '/';
    memcpy(to, name, n);
    to[n] = '\0';
    xml->is_begun = true;
    xml->depth++;
    xml->text.len = 0;
    if (*xml->at == '/') {
        xml->at++;
        if (!end_element(xml, on_element, arg))
            return false;
    }
    return xml->at < xml->end && *xml->at++ == '>';
}

/* Reads an element's last tag, which has the name of the innermost one. */
static bool read_close(struct xml *xml,
                       bool (*on_element)(void *arg, const char *path, const char *text), void *arg)
{
    const char *name, *slash = strrchr(xml->path, '/');
    const char *open = slash != NULL ? slash + 1 : xml->path;
    const size_t n = read_name(xml, &name);
    skip_space(xml);
    if (xml->depth == 0 || n != strlen(open) || memcmp(name, open, n) != 0 || xml->at == xml->end ||
        *xml->at++ != '>')
        return false;
    return end_element(xml, on_element, arg);
}

/* Reads a tag, a comment or the declaration; xml->at is at its '<'. */
static bool read_tag(struct xml *xml,
                     bool (*on_element)(void *arg, const char *path, const char *text), void *arg)
{
    if (is_next(xml, "<!--"))
        return skip_to(xml, "-->");
    if (is_next(xml, "<?"))
        return skip_to(xml, "?>");
    xml->at++;
    if (is_next(xml, "/")) {
        xml->at++;
        return read_close(xml, on_element, arg);
    }
    return read_open(xml, on_element, arg);
}

bool aws_xml_walk(const char *bytes, size_t n,
                  bool (*on_element)(void *arg, const char *path, const char *text), void *arg)
{
    struct xml xml = {.at = bytes, .end = bytes + n, .text.limit = AWS_XML_TEXT_MAX};
    bool is_good = n > 0;
    while (is_good && xml.at < xml.end) {
        is_good = read_text(&xml);
        /* white space is all that may be outside of the root */
        for (size_t i = 0; is_good && xml.depth == 0 && i < xml.text.len; i++)
            is_good = is_space(xml.text.data[i]);
        if (is_good && xml.at < xml.end)
            is_good = read_tag(&xml, on_element, arg);
    }
    if (xml.text.data != NULL)
        explicit_bzero(xml.text.data, xml.text.cap); /* STS sends secrets */
    text_free(&xml.text);
    return is_good && xml.is_begun && xml.depth == 0;
}

/* An element that is searched. */
struct search {
    const char *path;
    char *out;
    size_t cap;
    bool is_found, is_fitting;
};

static bool match_element(void *arg, const char *path, const char *text)
{
    struct search *search = arg;
    if (strcmp(path, search->path) != 0)
        return true;
    search->is_found = true;
    search->is_fitting = strlen(text) < search->cap;
    if (search->is_fitting)
        memcpy(search->out, text, strlen(text) + 1);
    return false;
}

bool aws_xml_get(const char *bytes, size_t n, const char *path, char *out, size_t cap)
{
    struct search search = {.path = path, .out = out, .cap = cap};
    out[0] = '\0';
    aws_xml_walk(bytes, n, match_element, &search);
    return search.is_found && search.is_fitting;
}

bool aws_xml_decode_url(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        if (*at != '%') {
            *to++ = *at == '+' ? ' ' : *at;
            continue;
        }
        const int high = text_hex_digit(at[1]), low = high < 0 ? -1 : text_hex_digit(at[2]);
        if (low < 0 || high * 16 + low == 0)
            return false;
        *to++ = (char)(high * 16 + low);
        at += 2;
    }
    *to = '\0';
    return true;
}

#ifdef FUZZ
#include "base/assert.h"

static bool check_element(void *arg, const char *path, const char *text)
{
    int *n = arg;
    ASSERT(path[0] != '\0' && strlen(path) < AWS_XML_PATH_MAX && strlen(text) <= AWS_XML_TEXT_MAX);
    return ++*n < 100000;
}

/* Reads a document as a store might send it. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int n = 0;
    char out[64];
    const bool is_good = aws_xml_walk((const char *)data, size, check_element, &n);
    ASSERT(!is_good || n > 0);
    if (aws_xml_get((const char *)data, size, "ListBucketResult/Contents/Key", out, sizeof out))
        aws_xml_decode_url(out);
    ASSERT(strlen(out) < sizeof out);
    return 0;
}
#endif
