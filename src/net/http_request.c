/* http_request — see http_request.h. */
#include "net/http_request.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

#include <sys/queue.h>

#include <event2/keyvalq_struct.h>

static bool is_number(const char *value)
{
    size_t n = strspn(value, "0123456789");
    return n > 0 && n < 19 && value[n] == 0;
}

struct head {
    int hosts_n, lengths_n, encodings_n;
    const char *fault;
};

const char *http_request_fault(const struct evkeyvalq *headers, int minor)
{
    struct head head = {0};
    const struct evkeyval *at;
    TAILQ_FOREACH(at, headers, next)
    {
        const char *name = at->key, *value = at->value;
        /* A token of RFC 9110: no blanks, no separators. */
        size_t n = 0;
        while (isalnum((unsigned char)name[n]) ||
               (name[n] != 0 && strchr("!#$%&'*+-.^_`|~", name[n]) != NULL))
            n++;
        if (!(n > 0 && name[n] == 0))
            head.fault = "a header name with characters that are not allowed";
        if (strcasecmp(name, "Host") == 0)
            head.hosts_n++;
        if (strcasecmp(name, "Content-Length") == 0) {
            head.lengths_n++;
            if (!is_number(value))
                head.fault = "Content-Length is not a number";
        }
        if (strcasecmp(name, "Transfer-Encoding") == 0) {
            head.encodings_n++;
            if (strcasecmp(value, "chunked") != 0)
                head.fault = "a Transfer-Encoding other than chunked";
        }
    }
    if (head.fault != NULL)
        return head.fault;
    if (head.lengths_n > 1)
        return "more than one Content-Length";
    if (head.encodings_n > 1 || (head.encodings_n > 0 && head.lengths_n > 0))
        return "a second Transfer-Encoding, or one together with Content-Length";
    if (head.hosts_n > 1)
        return "more than one Host";
    return head.hosts_n == 0 && minor > 0 ? "no Host" : NULL;
}
