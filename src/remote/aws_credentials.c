/* aws_credentials — see aws_credentials.h. Read find_credentials first. */
#include "remote/aws_credentials.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/secure.h"
#include "net/curl_client.h"
#include "remote/aws_xml.h"

enum {
    CREDENTIALS_KEY_MAX = 256,
    CREDENTIALS_TOKEN_MAX = 8192,
    CREDENTIALS_FILE_MAX = 1 << 20,
    CREDENTIALS_TRIES = 4,
    CREDENTIALS_CONNECT_MS = 5000,
    CREDENTIALS_TOTAL_MS = 20000,
    METADATA_CONNECT_MS = 1000, /* outside of EC2 nothing answers */
    METADATA_TOTAL_MS = 5000,
    RENEW_MS = 5 * 60 * 1000 /* before they expire */
};

#define CONTAINER_URL "http://169.254.170.2"
#define METADATA_URL "http://169.254.169.254"

enum source {
    SOURCE_UNKNOWN, /* not searched yet */
    SOURCE_ENVIRONMENT,
    SOURCE_PROFILE,
    SOURCE_WEB_IDENTITY,
    SOURCE_CONTAINER,
    SOURCE_METADATA,
    SOURCE_NONE /* anonymous */
};

/* The credentials; in memory of secure.h. */
struct keys {
    char access_key[CREDENTIALS_KEY_MAX], secret_key[CREDENTIALS_KEY_MAX];
    char token[CREDENTIALS_TOKEN_MAX];         /* "": none */
    char service_token[CREDENTIALS_TOKEN_MAX]; /* for the service that hands out credentials */
};

struct aws_credentials {
    struct aws_credentials_config config;
    char region[AWS_SIGN_REGION_MAX];
    const char *profile;
    char credentials_file[FILE_PATH_MAX], config_file[FILE_PATH_MAX];
    pthread_mutex_t lock; /* protects the rest */
    enum source source;
    int64_t expires_ms; /* wall time; 0: never */
    struct keys *keys;
    bool (*goes_on)(void *arg); /* the callback of the current call */
    void *goes_on_arg;
};

/* Returns a variable of the environment, or NULL if it is missing or empty. */
static const char *find_variable(const struct aws_credentials *c, const char *name)
{
    const char *value = text_variable(c->config.environment, name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Copies a text that must fit. */
static bool copy_whole(char *out, size_t cap, const char *text)
{
    if (text == NULL || strlen(text) >= cap)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

/* ---- profiles ---- */

/* Returns true if the line [at, end) is "[section]". */
static bool is_section(const char *at, const char *end, const char *section)
{
    while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
        end--;
    const size_t n = strlen(section);
    return (size_t)(end - at) == n + 2 && at[0] == '[' && end[-1] == ']' &&
           memcmp(at + 1, section, n) == 0;
}

bool aws_credentials_profile(const char *text, const char *section, const char *key, char *out,
                             size_t cap)
{
    bool is_inside = false;
    for (const char *at = text, *next; *at != '\0'; at = next) {
        const char *end = at + strcspn(at, "\n");
        next = *end != '\0' ? end + 1 : end;
        if (*at == '[')
            is_inside = is_section(at, end, section);
        const size_t n = strlen(key);
        /* indented lines belong to a nested setting */
        if (!is_inside || (size_t)(end - at) < n || memcmp(at, key, n) != 0)
            continue;
        at += n;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (at == end || *at++ != '=')
            continue;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        while (end > at && (end[-1] == ' ' || end[-1] == '\t' || end[-1] == '\r'))
            end--;
        if (end == at || (size_t)(end - at) >= cap)
            return false;
        memcpy(out, at, (size_t)(end - at));
        out[end - at] = '\0';
        return true;
    }
    return false;
}

/* Writes the path of a file of the AWS command line: the variable, or ~/.aws/NAME; "": none. */
static void name_file(const struct aws_credentials *c, const char *variable, const char *name,
                      char out[FILE_PATH_MAX])
{
    const char *path = find_variable(c, variable), *home = find_variable(c, "HOME");
    out[0] = '\0';
    if (path != NULL ? !text_copy(out, FILE_PATH_MAX, path)
                     : home != NULL && !text_format(out, FILE_PATH_MAX, "%s/.aws/%s", home, name))
        out[0] = '\0';
}

/* Reads a file of the AWS command line; *text_out is NULL if it does not exist or cannot be read.
 * Wipe it with free_text. */
static void read_file(const char *path, char **text_out)
{
    size_t n;
    *text_out = NULL;
    if (path[0] != '\0' && file_exists(path) &&
        file_read(path, CREDENTIALS_FILE_MAX, text_out, &n) != ST_OK) {
        LOG_WARN("%s", status_message());
        status_clear();
        *text_out = NULL;
    }
}

static void free_text(char *text)
{
    if (text != NULL)
        explicit_bzero(text, strlen(text));
    free(text);
}

/* Reads the keys of the profile from a text. */
static bool read_keys(struct aws_credentials *c, const char *text, const char *section)
{
    struct keys *keys = c->keys;
    if (text == NULL ||
        !aws_credentials_profile(text, section, "aws_access_key_id", keys->access_key,
                                 sizeof keys->access_key) ||
        !aws_credentials_profile(text, section, "aws_secret_access_key", keys->secret_key,
                                 sizeof keys->secret_key))
        return false;
    if (!aws_credentials_profile(text, section, "aws_session_token", keys->token,
                                 sizeof keys->token))
        keys->token[0] = '\0';
    return true;
}

/* Writes the name of the profile's section in ~/.aws/config. */
static void name_section(const char *profile, char *out, size_t cap)
{
    text_format(out, cap, strcmp(profile, "default") == 0 ? "%s" : "profile %s", profile);
}

/* Finds the keys of the profile in the two files. A profile that the user sets must have keys. */
static enum status find_profile(struct aws_credentials *c, bool *is_found)
{
    char section[CREDENTIALS_KEY_MAX + 8], other[32], *text, *config;
    read_file(c->credentials_file, &text);
    read_file(c->config_file, &config);
    name_section(c->profile, section, sizeof section);
    *is_found = read_keys(c, text, c->profile) || read_keys(c, config, section);
    static const char *const ways[] = {"credential_process", "sso_session", "sso_start_url",
                                       "role_arn"};
    const char *way = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways && config != NULL && !*is_found; i++)
        if (aws_credentials_profile(config, section, ways[i], other, sizeof other) ||
            strstr(config, ways[i]) != NULL)
            way = way == NULL ? ways[i] : way;
    free_text(text);
    free_text(config);
    if (*is_found || find_variable(c, "AWS_PROFILE") == NULL)
        return ST_OK;
    if (way != NULL)
        return FAIL(ST_BAD_SETTING,
                    "AWS_PROFILE=%s has no keys in %s; profiles with %s are not read: set the "
                    "variables that `aws configure export-credentials --profile %s --format env` "
                    "prints",
                    c->profile, c->credentials_file, way, c->profile);
    return FAIL(ST_BAD_SETTING,
                "AWS_PROFILE=%s: no keys of this profile in %s or %s; set another AWS_PROFILE, or "
                "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
                c->profile, c->credentials_file, c->config_file);
}

/* ---- services ---- */

/* A request to a service of credentials. */
struct service {
    const char *name; /* in messages */
    char url[AWS_CREDENTIALS_URL_MAX];
    const char *method, *header, *body; /* NULL: GET, none, none */
    bool is_metadata;                   /* its address may be link-local */
    int64_t connect_ms, total_ms;
    int tries;
    long code;          /* status code of the response; 0: none */
    struct text answer; /* holds secrets: wipe it with close_service */
    char why[256];      /* the failure, if code is 0 */
};

static void close_service(struct service *service)
{
    if (service->answer.data != NULL)
        explicit_bzero(service->answer.data, service->answer.cap);
    text_free(&service->answer);
}

/* Sends the request once. */
static enum status send_once(const struct aws_credentials *c, struct service *service)
{
    char error[CURL_ERROR_SIZE];
    struct curl_client_guard guard = {.allows_local = c->config.allows_local,
                                      .allows_metadata = service->is_metadata};
    const struct curl_client_config config = {.server = service->name,
                                              .url = service->url,
                                              .uses_proxy =
                                                  c->config.allows_local && !service->is_metadata,
                                              .connect_ms = service->connect_ms,
                                              .total_ms = service->total_ms,
                                              .body = &service->answer,
                                              .error = error};
    CURL *curl;
    struct curl_slist *headers = NULL;
    close_service(service);
    service->answer.limit = CREDENTIALS_FILE_MAX;
    service->code = 0;
    TRY(curl_client_open(&config, &curl));
    curl_client_guard_set(curl, &guard);
    if (service->header != NULL) {
        headers = curl_slist_append(NULL, service->header);
        curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    }
    if (service->body != NULL)
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, service->body);
    if (service->method != NULL)
        curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, service->method);
    const CURLcode result = curl_easy_perform(curl);
    if (result == CURLE_OK)
        service->code = curl_client_http_code(curl);
    else
        text_copy(service->why, sizeof service->why,
                  guard.refused[0] != '\0' ? "its address is of this machine or of a private "
                                             "network; set ALLOW_LOCAL_URLS=1 if that is meant"
                                           : curl_client_error(error, result));
    const bool is_refused = guard.refused[0] != '\0';
    for (struct curl_slist *at = headers; at != NULL; at = at->next)
        explicit_bzero(at->data, strlen(at->data));
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    return is_refused ? FAIL(ST_BAD_SETTING, "%s: %s", service->name, service->why) : ST_OK;
}

/* Sends the request, and again after failures that may pass. */
static enum status send_request(const struct aws_credentials *c, struct service *service)
{
    for (int i = 1;; i++) {
        TRY(send_once(c, service));
        const bool is_passing = service->code == 0 || service->code >= 500 || service->code == 429;
        if (!is_passing || i >= service->tries)
            return ST_OK;
        for (int64_t end = clock_ms() + 250 * (1 << i); clock_ms() < end; clock_sleep_ms(50))
            if (c->goes_on != NULL && !c->goes_on(c->goes_on_arg))
                return FAIL(ST_RETRY, "stopped while waiting for %s", service->name);
    }
}

/* Fails for a service without an answer, or with an error. */
static enum status fail_service(const struct service *service, const char *detail,
                                const char *remedy)
{
    char text[512];
    text_printable(text, sizeof text, detail);
    if (service->code == 0)
        return FAIL(ST_RETRY, "%s does not answer: %s", service->name, service->why);
    return FAIL(service->code >= 500 || service->code == 429 ? ST_RETRY : ST_BAD_SETTING,
                "%s refuses credentials (HTTP %ld%s%s); %s", service->name, service->code,
                text[0] != '\0' ? ": " : "", text, remedy);
}

/* Reads a time such as 2026-01-31T12:00:00Z as wall time; 0: it is none. */
static int64_t read_time(const char *text)
{
    static const int days_before[] = {0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334};
    int64_t part[6];
    static const int at[6] = {0, 5, 8, 11, 14, 17}, digits[6] = {4, 2, 2, 2, 2, 2};
    if (strlen(text) < 20)
        return 0;
    for (int i = 0; i < 6; i++) {
        char number[5] = {0};
        memcpy(number, text + at[i], (size_t)digits[i]);
        if (text_parse_i64(number, 0, 9999, &part[i]) != TEXT_OK)
            return 0;
    }
    const int64_t year = part[0], month = part[1];
    if (year < 1970 || month < 1 || month > 12)
        return 0;
    const int64_t leaps = year - (month <= 2); /* leap days up to this date */
    const int64_t days = (year - 1970) * 365 + leaps / 4 - leaps / 100 + leaps / 400 - 477 +
                         days_before[month - 1] + part[2] - 1;
    return (((days * 24 + part[3]) * 60 + part[4]) * 60 + part[5]) * 1000;
}

/* Copies the credentials that a service sent. */
static enum status accept_keys(struct aws_credentials *c, const struct service *service,
                               const char *access_key, const char *secret_key, const char *token,
                               const char *expiration)
{
    struct keys *keys = c->keys;
    if (access_key[0] == '\0' || secret_key[0] == '\0' ||
        !copy_whole(keys->access_key, sizeof keys->access_key, access_key) ||
        !copy_whole(keys->secret_key, sizeof keys->secret_key, secret_key) ||
        !copy_whole(keys->token, sizeof keys->token, token))
        return FAIL(ST_BAD_SETTING, "%s sent no credentials that can be used", service->name);
    c->expires_ms = read_time(expiration);
    return ST_OK;
}

/* Reads credentials in JSON, as containers and instances receive them. */
static enum status accept_json(struct aws_credentials *c, const struct service *service)
{
    cJSON *json;
    if (json_parse(service->answer.data != NULL ? service->answer.data : "", service->answer.len,
                   service->name, &json) != ST_OK)
        return FAIL(ST_BAD_SETTING, "%s did not send JSON with credentials", service->name);
    const enum status st =
        accept_keys(c, service, json_text(json, "AccessKeyId"), json_text(json, "SecretAccessKey"),
                    json_text(json, "Token"), json_text(json, "Expiration"));
    for (cJSON *item = json->child; item != NULL; item = item->next)
        if (cJSON_IsString(item))
            explicit_bzero(item->valuestring, strlen(item->valuestring));
    cJSON_Delete(json);
    return st;
}

/* Writes the form with which STS exchanges the token of a file for credentials. */
static enum status write_form(const struct aws_credentials *c, const char *file, const char *role,
                              struct text *form)
{
    const char *session = find_variable(c, "AWS_ROLE_SESSION_NAME");
    char *token;
    size_t n;
    TRY(file_read(file, CREDENTIALS_FILE_MAX, &token, &n));
    token[strcspn(token, " \r\n")] = '\0';
    text_add(form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15&RoleArn=");
    aws_sign_encode(form, role, false);
    text_add(form, "&RoleSessionName=");
    aws_sign_encode(form, session != NULL ? session : "convoy", false);
    text_add(form, "&WebIdentityToken=");
    aws_sign_encode(form, token, false);
    free_text(token);
    return ST_OK;
}

#define STS_PATH "AssumeRoleWithWebIdentityResponse/AssumeRoleWithWebIdentityResult/Credentials/"

/* Reads the credentials, or the error, that STS sent. */
static enum status accept_sts(struct aws_credentials *c, const struct service *service)
{
    const char *xml = service->answer.data != NULL ? service->answer.data : "";
    const size_t n = service->answer.len;
    if (service->code != 200) {
        char code[64], message[256], detail[400];
        aws_xml_get(xml, n, "ErrorResponse/Error/Code", code, sizeof code);
        aws_xml_get(xml, n, "ErrorResponse/Error/Message", message, sizeof message);
        text_format(detail, sizeof detail, "%s %s", code, message);
        return fail_service(service, code[0] != '\0' ? detail : "",
                            "check AWS_ROLE_ARN, the role's trust policy, and the token in "
                            "AWS_WEB_IDENTITY_TOKEN_FILE");
    }
    struct keys *got = secure_alloc(sizeof *got);
    char expiration[64];
    if (got == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot read credentials");
    aws_xml_get(xml, n, STS_PATH "AccessKeyId", got->access_key, sizeof got->access_key);
    aws_xml_get(xml, n, STS_PATH "SecretAccessKey", got->secret_key, sizeof got->secret_key);
    aws_xml_get(xml, n, STS_PATH "SessionToken", got->token, sizeof got->token);
    aws_xml_get(xml, n, STS_PATH "Expiration", expiration, sizeof expiration);
    const enum status st =
        accept_keys(c, service, got->access_key, got->secret_key, got->token, expiration);
    secure_free(got);
    return st;
}

/* Exchanges a web identity token for credentials (STS AssumeRoleWithWebIdentity). */
static enum status find_web_identity(struct aws_credentials *c, bool *is_found)
{
    const char *file = find_variable(c, "AWS_WEB_IDENTITY_TOKEN_FILE"),
               *role = find_variable(c, "AWS_ROLE_ARN"),
               *endpoint = find_variable(c, "AWS_ENDPOINT_URL_STS");
    struct service service = {.name = "AWS STS",
                              .connect_ms = CREDENTIALS_CONNECT_MS,
                              .total_ms = CREDENTIALS_TOTAL_MS,
                              .tries = CREDENTIALS_TRIES};
    struct text form = {0};
    *is_found = file != NULL; /* AWS_ROLE_ARN may be of a profile */
    if (!*is_found)
        return ST_OK;
    if (role == NULL)
        return FAIL(ST_BAD_SETTING,
                    "AWS_WEB_IDENTITY_TOKEN_FILE is set, but AWS_ROLE_ARN is not; set both");
    if (endpoint == NULL)
        endpoint = find_variable(c, "AWS_ENDPOINT_URL");
    if (endpoint != NULL
            ? !text_format(service.url, sizeof service.url, "%s", endpoint)
            : !text_format(service.url, sizeof service.url, "https://sts.%s.amazonaws.com%s/",
                           c->region, text_starts(c->region, "cn-") ? ".cn" : ""))
        return FAIL(ST_BAD_SETTING, "the address in AWS_ENDPOINT_URL_STS is too long");
    enum status st = write_form(c, file, role, &form);
    service.body = form.data;
    if (st == ST_OK)
        st = send_request(c, &service);
    if (st == ST_OK)
        st = accept_sts(c, &service);
    if (form.data != NULL)
        explicit_bzero(form.data, form.cap);
    text_free(&form);
    close_service(&service);
    return st;
}

/* Returns true for the hosts to which a container's token may be sent without TLS: the services of
 * ECS and EKS, and this machine. */
static bool is_container_host(const char *url)
{
    static const char *const hosts[] = {"http://169.254.170.2",  "http://169.254.170.23",
                                        "http://[fd00:ec2::23]", "http://127.0.0.1",
                                        "http://localhost",      "http://[::1]"};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++)
        if (text_starts(url, hosts[i]) && strchr(":/", url[strlen(hosts[i])]) != NULL)
            return true;
    return text_starts(url, "https://");
}

/* Writes the header with the container's token, if there is one. */
static enum status write_container_token(struct aws_credentials *c)
{
    const char *file = find_variable(c, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"),
               *token = find_variable(c, "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    char *text = NULL;
    size_t n;
    c->keys->service_token[0] = '\0';
    if (file == NULL && token == NULL)
        return ST_OK;
    if (file != NULL) {
        TRY(file_read(file, CREDENTIALS_FILE_MAX, &text, &n));
        text[strcspn(text, "\r\n")] = '\0';
        token = text;
    }
    const bool is_good = strpbrk(token, "\r\n") == NULL &&
                         text_format(c->keys->service_token, sizeof c->keys->service_token,
                                     "Authorization: %s", token);
    free_text(text);
    return is_good ? ST_OK
                   : FAIL(ST_BAD_SETTING,
                          "the token in AWS_CONTAINER_AUTHORIZATION_TOKEN%s is "
                          "too long or has several lines",
                          file != NULL ? "_FILE" : "");
}

/* Gets the credentials of a container (ECS, EKS Pod Identity). */
static enum status find_container(struct aws_credentials *c, bool *is_found)
{
    const char *relative = find_variable(c, "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"),
               *full = find_variable(c, "AWS_CONTAINER_CREDENTIALS_FULL_URI");
    struct service service = {.name = "the container's credentials service",
                              .is_metadata = true,
                              .connect_ms = CREDENTIALS_CONNECT_MS,
                              .total_ms = CREDENTIALS_TOTAL_MS,
                              .tries = CREDENTIALS_TRIES};
    *is_found = relative != NULL || full != NULL;
    if (!*is_found)
        return ST_OK;
    if (!text_format(service.url, sizeof service.url, "%s%s", relative != NULL ? CONTAINER_URL : "",
                     relative != NULL ? relative : full) ||
        !is_container_host(service.url))
        return FAIL(ST_BAD_SETTING,
                    "AWS_CONTAINER_CREDENTIALS_%s_URI is not an https address, nor one of this "
                    "machine or of a service of ECS or EKS",
                    relative != NULL ? "RELATIVE" : "FULL");
    TRY(write_container_token(c));
    service.header = c->keys->service_token[0] != '\0' ? c->keys->service_token : NULL;
    enum status st = send_request(c, &service);
    if (st == ST_OK && service.code != 200)
        st = fail_service(&service, "",
                          "check AWS_CONTAINER_CREDENTIALS_FULL_URI and "
                          "AWS_CONTAINER_AUTHORIZATION_TOKEN");
    if (st == ST_OK)
        st = accept_json(c, &service);
    close_service(&service);
    return st;
}

/* Requests a path of the metadata service; *text_out is borrowed from the service. */
static enum status read_metadata(const struct aws_credentials *c, struct service *service,
                                 const char *base, const char *path)
{
    if (!text_format(service->url, sizeof service->url, "%s%s", base, path))
        return FAIL(ST_BAD_SETTING, "the address in AWS_EC2_METADATA_SERVICE_ENDPOINT is too long");
    return send_request(c, service);
}

/* Gets the credentials of an EC2 instance's role (IMDSv2). A machine without that service, or
 * without a role, has none. */
static enum status find_metadata(struct aws_credentials *c, bool *is_found)
{
    static const char roles[] = "/latest/meta-data/iam/security-credentials/";
    const char *disabled = find_variable(c, "AWS_EC2_METADATA_DISABLED"),
               *base = find_variable(c, "AWS_EC2_METADATA_SERVICE_ENDPOINT");
    struct service service = {.name = "the metadata service of EC2",
                              .method = "PUT",
                              .header = "X-aws-ec2-metadata-token-ttl-seconds: 21600",
                              .is_metadata = true,
                              .connect_ms = METADATA_CONNECT_MS,
                              .total_ms = METADATA_TOTAL_MS,
                              .tries = base != NULL ? 2 : 1};
    char url[AWS_CREDENTIALS_URL_MAX], role[128];
    *is_found = false;
    if (disabled != NULL && strcasecmp(disabled, "true") == 0)
        return ST_OK;
    text_copy(url, sizeof url, base != NULL ? base : METADATA_URL);
    while (text_ends(url, "/"))
        url[strlen(url) - 1] = '\0';
    enum status st = read_metadata(c, &service, url, "/latest/api/token");
    if (st == ST_OK && service.code == 200) {
        char *token = service.answer.data != NULL ? service.answer.data : "";
        if (strpbrk(token, "\r\n") == NULL &&
            text_format(c->keys->service_token, sizeof c->keys->service_token,
                        "X-aws-ec2-metadata-token: %s", token)) {
            service.method = NULL;
            service.header = c->keys->service_token;
            service.tries = CREDENTIALS_TRIES;
            st = read_metadata(c, &service, url, roles);
        } else
            service.code = 0;
    }
    if (st == ST_OK && service.code == 200 && service.answer.len > 0) {
        char path[256];
        service.answer.data[strcspn(service.answer.data, "\r\n")] = '\0';
        if (copy_whole(role, sizeof role, service.answer.data) && role[0] != '\0' &&
            strpbrk(role, "/?#% ") == NULL) {
            *is_found = true;
            text_format(path, sizeof path, "%s%s", roles, role);
            st = read_metadata(c, &service, url, path);
            if (st == ST_OK && service.code != 200)
                st = fail_service(&service, "", "check the role of this instance");
            if (st == ST_OK)
                st = accept_json(c, &service);
        }
    }
    close_service(&service);
    return st;
}

/* ---- the search ---- */

/* Reads the credentials of the environment. */
static enum status find_environment(struct aws_credentials *c, bool *is_found)
{
    const char *access_key = find_variable(c, "AWS_ACCESS_KEY_ID"),
               *secret_key = find_variable(c, "AWS_SECRET_ACCESS_KEY"),
               *token = find_variable(c, "AWS_SESSION_TOKEN");
    struct keys *keys = c->keys;
    *is_found = access_key != NULL || secret_key != NULL;
    if (!*is_found)
        return ST_OK;
    if (access_key == NULL || secret_key == NULL)
        return FAIL(ST_BAD_SETTING, "%s is set, but %s is not; set both, or none",
                    access_key != NULL ? "AWS_ACCESS_KEY_ID" : "AWS_SECRET_ACCESS_KEY",
                    access_key != NULL ? "AWS_SECRET_ACCESS_KEY" : "AWS_ACCESS_KEY_ID");
    if (!copy_whole(keys->access_key, sizeof keys->access_key, access_key) ||
        !copy_whole(keys->secret_key, sizeof keys->secret_key, secret_key) ||
        (token != NULL && !copy_whole(keys->token, sizeof keys->token, token)))
        return FAIL(ST_BAD_SETTING, "AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY or AWS_SESSION_TOKEN "
                                    "is too long to be one");
    return ST_OK;
}

/* Finds the first credentials in the usual order. */
static enum status find_credentials(struct aws_credentials *c)
{
    static enum status (*const find[])(struct aws_credentials *, bool *) = {
        [SOURCE_ENVIRONMENT] = find_environment,   [SOURCE_PROFILE] = find_profile,
        [SOURCE_WEB_IDENTITY] = find_web_identity, [SOURCE_CONTAINER] = find_container,
        [SOURCE_METADATA] = find_metadata,
    };
    const int first = c->source == SOURCE_UNKNOWN ? SOURCE_ENVIRONMENT : (int)c->source,
              last = c->source == SOURCE_UNKNOWN ? SOURCE_METADATA : (int)c->source;
    for (int i = first; i <= last; i++) {
        bool is_found;
        explicit_bzero(c->keys, sizeof *c->keys);
        c->expires_ms = 0;
        TRY(find[i](c, &is_found));
        if (is_found) {
            c->source = (enum source)i;
            return ST_OK;
        }
    }
    c->source = SOURCE_NONE;
    return ST_OK;
}

/* Finds the credentials, or renews them if they expire soon. */
static enum status renew_credentials(struct aws_credentials *c)
{
    const int64_t now_ms = clock_wall_ms();
    if (c->source != SOURCE_UNKNOWN && (c->expires_ms == 0 || now_ms < c->expires_ms - RENEW_MS))
        return ST_OK;
    const int64_t expires_ms = c->expires_ms;
    struct keys *old = secure_alloc(sizeof *old);
    if (old == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot renew credentials");
    *old = *c->keys;
    const enum status st = find_credentials(c);
    if (st != ST_OK && expires_ms > now_ms) {
        LOG_WARN("%s; the old credentials are used until they expire", status_message());
        status_clear();
        *c->keys = *old;
        c->expires_ms = expires_ms;
        secure_free(old);
        return ST_OK;
    }
    secure_free(old);
    return st;
}

/* ---- the interface ---- */

/* Finds the region: a variable, or the profile's. */
static void find_region(struct aws_credentials *c)
{
    const char *region = find_variable(c, "AWS_REGION");
    char section[CREDENTIALS_KEY_MAX + 8], *text;
    if (region == NULL)
        region = find_variable(c, "AWS_DEFAULT_REGION");
    if (region != NULL) {
        text_copy(c->region, sizeof c->region, region);
        return;
    }
    text_copy(c->region, sizeof c->region, "us-east-1");
    read_file(c->config_file, &text);
    name_section(c->profile, section, sizeof section);
    if (text != NULL)
        aws_credentials_profile(text, section, "region", c->region, sizeof c->region);
    free_text(text);
}

enum status aws_credentials_open(const struct aws_credentials_config *config,
                                 struct aws_credentials **out)
{
    struct keys *keys = secure_alloc(sizeof *keys);
    if (keys == NULL)
        return FAIL(ST_RETRY, "out of memory: cannot keep credentials");
    struct aws_credentials *c = memory_new(1, sizeof *c);
    c->config = *config;
    c->keys = keys;
    c->profile = find_variable(c, "AWS_PROFILE");
    if (c->profile == NULL)
        c->profile = "default";
    name_file(c, "AWS_SHARED_CREDENTIALS_FILE", "credentials", c->credentials_file);
    name_file(c, "AWS_CONFIG_FILE", "config", c->config_file);
    find_region(c);
    pthread_mutex_init(&c->lock, NULL);
    for (const char *r = c->region; *r != '\0'; r++)
        if (!((*r >= 'a' && *r <= 'z') || (*r >= '0' && *r <= '9') || *r == '-')) {
            char text[AWS_SIGN_REGION_MAX];
            text_printable(text, sizeof text, c->region);
            aws_credentials_close(c);
            return FAIL(ST_BAD_SETTING, "AWS_REGION=%s is not a region such as us-east-1", text);
        }
    *out = c;
    return ST_OK;
}

void aws_credentials_close(struct aws_credentials *c)
{
    if (c == NULL)
        return;
    pthread_mutex_destroy(&c->lock);
    secure_free(c->keys);
    free(c);
}

const char *aws_credentials_region(const struct aws_credentials *c) { return c->region; }

enum status aws_credentials_sign(struct aws_credentials *c, struct aws_sign_request *request,
                                 struct text *authorization, struct text *token,
                                 bool (*goes_on)(void *arg), void *arg)
{
    pthread_mutex_lock(&c->lock);
    c->goes_on = goes_on;
    c->goes_on_arg = arg;
    enum status st = renew_credentials(c);
    if (st == ST_OK && c->source != SOURCE_NONE) {
        request->access_key = c->keys->access_key;
        request->secret_key = c->keys->secret_key;
        if (c->keys->token[0] != '\0') {
            text_add(token, "%s", c->keys->token);
            request->header[request->headers_n++] =
                (struct aws_sign_header){"x-amz-security-token", token->data};
        }
        st = aws_sign(request, authorization);
        request->access_key = request->secret_key = NULL;
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

bool aws_credentials_expire(struct aws_credentials *c)
{
    pthread_mutex_lock(&c->lock);
    /* files and services may have newer ones; the environment of a process does not change */
    const bool is_renewable = c->source >= SOURCE_PROFILE && c->source <= SOURCE_METADATA;
    if (is_renewable)
        c->expires_ms = 1;
    pthread_mutex_unlock(&c->lock);
    return is_renewable;
}

const char *aws_credentials_source(struct aws_credentials *c, char *out, size_t cap)
{
    static const char *const names[] = {
        [SOURCE_UNKNOWN] = "none",
        [SOURCE_ENVIRONMENT] = "AWS_ACCESS_KEY_ID",
        [SOURCE_WEB_IDENTITY] = "AWS_WEB_IDENTITY_TOKEN_FILE",
        [SOURCE_CONTAINER] = "the container's credentials service",
        [SOURCE_METADATA] = "the metadata service of EC2",
        [SOURCE_NONE] = "none",
    };
    pthread_mutex_lock(&c->lock);
    if (c->source == SOURCE_PROFILE)
        text_format(out, cap, "AWS_PROFILE=%s", c->profile);
    else
        text_copy(out, cap, names[c->source]);
    pthread_mutex_unlock(&c->lock);
    return out;
}
