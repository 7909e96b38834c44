/* s3_error — see s3_error.h. Source: "Error responses" in the API reference of Amazon S3. */
#include "remote/s3_error.h"

#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/text.h"
#include "remote/aws_xml.h"

/* The kind of an error decides its sentence. */
enum kind {
    KIND_OTHER,
    KIND_PASSES,
    KIND_DENIED,
    KIND_KEY,
    KIND_SIGNATURE,
    KIND_CLOCK,
    KIND_EXPIRED,
    KIND_BUCKET,
    KIND_MISSING,
    KIND_REGION,
    KIND_CHANGED,
    KIND_ARCHIVED,
    KIND_FULL,
    KIND_GONE, /* the multipart upload */
};

static enum kind find_kind(const struct s3_error *error)
{
    static const struct {
        const char *code;
        enum kind kind;
    } rows[] = {
        {"AccessDenied", KIND_DENIED},
        {"AllAccessDisabled", KIND_DENIED},
        {"AuthorizationHeaderMalformed", KIND_REGION},
        {"BadDigest", KIND_PASSES},
        {"ExpiredToken", KIND_EXPIRED},
        {"IllegalLocationConstraintException", KIND_REGION},
        {"IncompleteBody", KIND_PASSES},
        {"InternalError", KIND_PASSES},
        {"InvalidAccessKeyId", KIND_KEY},
        {"InvalidObjectState", KIND_ARCHIVED},
        {"InvalidRange", KIND_CHANGED},
        {"InvalidToken", KIND_EXPIRED},
        {"NoSuchBucket", KIND_BUCKET},
        {"NoSuchKey", KIND_MISSING},
        {"NoSuchUpload", KIND_GONE},
        {"OperationAborted", KIND_PASSES},
        {"PermanentRedirect", KIND_REGION},
        {"PreconditionFailed", KIND_CHANGED},
        {"QuotaExceeded", KIND_FULL},
        {"RequestTimeTooSkewed", KIND_CLOCK},
        {"RequestTimeout", KIND_PASSES},
        {"ServiceUnavailable", KIND_PASSES},
        {"SignatureDoesNotMatch", KIND_SIGNATURE},
        {"SlowDown", KIND_PASSES},
        {"TemporaryRedirect", KIND_REGION},
        {"TokenRefreshRequired", KIND_EXPIRED},
        {"TooManyRequests", KIND_PASSES},
        {"XAmzContentSHA256Mismatch", KIND_PASSES},
        {"XMinioStorageFull", KIND_FULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].code, error->code) == 0)
            return rows[i].kind;
    switch (error->http) {
    case 301:
    case 302:
    case 307:
    case 308:
        return KIND_REGION;
    case 401:
    case 403:
        return KIND_DENIED;
    case 404:
        return error->code[0] == '\0' ? KIND_MISSING : KIND_OTHER;
    case 408:
    case 425:
    case 429:
        return KIND_PASSES;
    case 412:
    case 416:
        return KIND_CHANGED;
    case 507:
        return KIND_FULL;
    default:
        return error->http >= 500 && error->http != 501 && error->http != 505 ? KIND_PASSES
                                                                              : KIND_OTHER;
    }
}

/* Copies an element of the error as printable text. */
static void read_element(const char *body, size_t n, const char *path, char *out, size_t cap)
{
    char text[1024];
    aws_xml_get(body, n, path, text, sizeof text);
    text_printable(out, cap, text);
}

void s3_error_read(struct s3_error *error, long http, const char *body, size_t n,
                   const char *region)
{
    *error = (struct s3_error){.http = http};
    read_element(body, n, "Error/Code", error->code, sizeof error->code);
    read_element(body, n, "Error/Message", error->message, sizeof error->message);
    read_element(body, n, "Error/Region", error->region, sizeof error->region);
    if (region != NULL)
        text_printable(error->region, sizeof error->region, region);
}

bool s3_error_passes(const struct s3_error *error) { return find_kind(error) == KIND_PASSES; }

bool s3_error_is_missing(const struct s3_error *error) { return find_kind(error) == KIND_MISSING; }

bool s3_error_is_expired(const struct s3_error *error) { return find_kind(error) == KIND_EXPIRED; }

/* Returns the permission that a request needs. */
static const char *permission_for(const struct s3_error_request *request)
{
    if (request->is_list)
        return "s3:ListBucket";
    if (strcmp(request->method, "DELETE") == 0)
        return "s3:DeleteObject";
    return strcmp(request->method, "GET") == 0 || strcmp(request->method, "HEAD") == 0
               ? "s3:GetObject (and s3:ListBucket, if the object does not exist)"
               : "s3:PutObject";
}

/* Fails for a request that the store does not permit. */
static enum status fail_denied(const struct s3_error *error, const struct s3_error_request *r)
{
    if (strcmp(r->credentials, "none") == 0)
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: access denied (HTTP %ld), and no credentials were found, so the "
                    "request was anonymous; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or "
                    "AWS_PROFILE",
                    r->verb, r->name, error->http);
    return FAIL(ST_BAD_SETTING,
                "cannot %s %s: access denied (HTTP %ld %s) with the credentials of %s; allow %s in "
                "their policy or the bucket's",
                r->verb, r->name, error->http, error->code, r->credentials, permission_for(r));
}

/* Fails for a bucket of another region. */
static enum status fail_region(const struct s3_error *error, const struct s3_error_request *r)
{
    if (error->region[0] != '\0' && strcmp(error->region, r->region) != 0)
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: the bucket is in region %s, not in %s; set AWS_REGION=%s",
                    r->verb, r->name, error->region, r->region, error->region);
    return FAIL(ST_BAD_SETTING,
                "cannot %s %s: the store redirects or expects another region than %s (HTTP %ld %s: "
                "%s); set AWS_REGION to the bucket's region, or AWS_ENDPOINT_URL to its store",
                r->verb, r->name, r->region, error->http, error->code, error->message);
}

enum status s3_error_fail(const struct s3_error *error, const struct s3_error_request *r)
{
    char now[32];
    switch (find_kind(error)) {
    case KIND_DENIED:
        return fail_denied(error, r);
    case KIND_KEY:
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: InvalidAccessKeyId: the store does not have the access key of "
                    "%s; check it, and AWS_ENDPOINT_URL if the key belongs to another store",
                    r->verb, r->name, r->credentials);
    case KIND_SIGNATURE:
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: SignatureDoesNotMatch: the secret key of %s does not belong to "
                    "its access key; check AWS_SECRET_ACCESS_KEY",
                    r->verb, r->name, r->credentials);
    case KIND_CLOCK:
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: RequestTimeTooSkewed: this machine's clock, %s, is not the "
                    "store's; set it, for example with `timedatectl set-ntp true`",
                    r->verb, r->name, clock_iso(now, sizeof now, clock_wall_ms()));
    case KIND_EXPIRED:
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: %s: the credentials of %s have expired; set new ones "
                    "(AWS_SESSION_TOKEN belongs to them)",
                    r->verb, r->name, error->code, r->credentials);
    case KIND_BUCKET:
        return FAIL(ST_BAD_SETTING,
                    "cannot %s %s: NoSuchBucket: there is no bucket %s; create it, or check its "
                    "name and AWS_ENDPOINT_URL",
                    r->verb, r->name, r->bucket);
    case KIND_MISSING:
        return FAIL(ST_NO_INPUT, "cannot %s %s: there is no such object; check its name", r->verb,
                    r->name);
    case KIND_REGION:
        return fail_region(error, r);
    case KIND_CHANGED:
        return FAIL(ST_BAD_DATA,
                    "%s changed while it was downloaded (HTTP %ld %s); start again when it is no "
                    "longer written",
                    r->name, error->http, error->code);
    case KIND_ARCHIVED:
        return FAIL(ST_NO_INPUT, "cannot %s %s: it is archived; restore it from Glacier first",
                    r->verb, r->name);
    case KIND_FULL:
        return FAIL(ST_STORE, "cannot %s %s: the store is full or its quota is used (HTTP %ld %s)",
                    r->verb, r->name, error->http, error->code);
    case KIND_GONE:
        return FAIL(ST_RETRY,
                    "cannot %s %s: its multipart upload was ended meanwhile, by a lifecycle rule "
                    "or another process; start again",
                    r->verb, r->name);
    case KIND_PASSES:
        return FAIL(ST_RETRY, "cannot %s %s: the store answers HTTP %ld%s%s; start again later",
                    r->verb, r->name, error->http, error->code[0] != '\0' ? " " : "", error->code);
    case KIND_OTHER:
        break;
    }
    return FAIL(ST_BAD_SETTING, "cannot %s %s: the store refuses the request: HTTP %ld %s %s",
                r->verb, r->name, error->http, error->code, error->message);
}
