/* fake_hub — a Hugging Face hub on two ports of 127.0.0.1, whose repositories are folders: the hub
 * itself, and the host to which it redirects for large files ("CDN").
 *
 *   ROOT/models/ORG/NAME/refs/REVISION   holds the commit of a branch
 *   ROOT/models/ORG/NAME/COMMIT/…        its files; datasets/… likewise
 *
 * Files of LARGE bytes or more are large. Files in ROOT change what it does:
 *
 *   token       a token; files need it: 401 without one, 403 with another one
 *   answer      is sent in place of the list of a repository's files
 *   sum         is sent as the SHA-256 of large files
 *   busy        a number: as many requests more are answered 429 with Retry-After: 1
 *   cut         a number: as many bodies more of large files end in the middle
 *   slow        large files are sent over some seconds
 *   gone        a code: every request to the hub is answered with it
 *
 * ROOT/log gets a line for each request: "hub GET /path token=WORD range=from". */
#ifndef CONVOY_TESTS_REMOTE_FAKE_HUB_H
#define CONVOY_TESTS_REMOTE_FAKE_HUB_H

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/evp.h>

#define FAKE_HUB_LARGE 2000

struct fake_hub {
    char root[400];
    int hub_port, cdn_port;
    pid_t hub, cdn;
};

/* One request, and where it is answered. */
struct fake_request {
    const struct fake_hub *hub;
    int fd;
    char path[2000], token[600];
    long from; /* of Range; 0: all */
    char if_range[200];
};

static inline void fake_send(int fd, const char *format, ...)
{
    char text[8192];
    va_list args;
    va_start(args, format);
    const int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (write(fd, text, (size_t)n) < 0)
        return; /* the client has gone */
}

static inline bool fake_path(const struct fake_hub *hub, const char *name, char out[3000])
{
    snprintf(out, 3000, "%s/%s", hub->root, name);
    return access(out, F_OK) == 0;
}

/* The first line of a file in ROOT; false: there is no such file. */
static inline bool fake_line(const struct fake_hub *hub, const char *name, char *out, size_t cap)
{
    char path[3000];
    FILE *file = fake_path(hub, name, path) ? fopen(path, "r") : NULL;
    if (file == NULL)
        return false;
    if (fgets(out, (int)cap, file) == NULL)
        out[0] = '\0';
    out[strcspn(out, "\r\n")] = '\0';
    fclose(file);
    return true;
}

/* Writes a file in ROOT; NULL: removes it. */
static inline void fake_set(const struct fake_hub *hub, const char *name, const char *text)
{
    char path[3000], temp[3010];
    fake_path(hub, name, path);
    if (text == NULL) {
        unlink(path);
        return;
    }
    snprintf(temp, sizeof temp, "%s.new", path);
    FILE *file = fopen(temp, "w");
    if (file == NULL)
        return;
    fputs(text, file);
    fclose(file);
    rename(temp, path);
}

/* Returns true, and counts down, while the number in the file is above 0. */
static inline bool fake_count(const struct fake_hub *hub, const char *name)
{
    char text[32];
    if (!fake_line(hub, name, text, sizeof text) || atoi(text) <= 0)
        return false;
    snprintf(text, sizeof text, "%d", atoi(text) - 1);
    fake_set(hub, name, text);
    return true;
}

static inline void fake_sha256(const char *path, char out[65])
{
    unsigned char bytes[65536], digest[32];
    unsigned int digest_n;
    const int fd = open(path, O_RDONLY);
    EVP_MD_CTX *sum = EVP_MD_CTX_new();
    EVP_DigestInit_ex(sum, EVP_sha256(), NULL);
    for (ssize_t n; (n = read(fd, bytes, sizeof bytes)) > 0;)
        EVP_DigestUpdate(sum, bytes, (size_t)n);
    EVP_DigestFinal_ex(sum, digest, &digest_n);
    EVP_MD_CTX_free(sum);
    close(fd);
    for (int i = 0; i < 32; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* Sends a file from a byte on, with an ETag. */
static inline void fake_file(const struct fake_request *r, const char *path, bool is_large)
{
    char bytes[65536], etag[80], slow[8], sum[65];
    struct stat info;
    const int file = open(path, O_RDONLY);
    if (file < 0 || fstat(file, &info) != 0)
        return;
    fake_sha256(path, sum);
    snprintf(etag, sizeof etag, "\"%.40s\"", sum);
    long from = strcmp(r->if_range, etag) == 0 ? r->from : 0, left = info.st_size - from;
    if (r->from > 0 && left <= 0) {
        fake_send(r->fd, "HTTP/1.1 416 x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        close(file);
        return;
    }
    fake_send(r->fd, "HTTP/1.1 %d x\r\nConnection: close\r\nContent-Length: %ld\r\nETag: %s\r\n",
              from > 0 ? 206 : 200, left, etag);
    if (from > 0)
        fake_send(r->fd, "Content-Range: bytes %ld-%ld/%ld\r\n", from, (long)info.st_size - 1,
                  (long)info.st_size);
    fake_send(r->fd, "\r\n");
    if (is_large && fake_count(r->hub, "cut"))
        left /= 2;
    const bool is_slow = is_large && fake_line(r->hub, "slow", slow, sizeof slow);
    const size_t chunk = is_slow ? (size_t)info.st_size / 20 + 1 : sizeof bytes;
    lseek(file, from, SEEK_SET);
    for (ssize_t n; left > 0; left -= n) {
        n = read(file, bytes, left < (long)chunk ? (size_t)left : chunk);
        if (n <= 0 || write(r->fd, bytes, (size_t)n) != n)
            break;
        if (is_slow)
            usleep(100000);
    }
    close(file);
}

static inline void fake_walk(FILE *out, const char *dir, const char *below, int *n)
{
    struct dirent **entries;
    const int entries_n = scandir(dir, &entries, NULL, alphasort);
    for (int i = 0; i < entries_n; i++) {
        char path[3000], name[1000];
        struct stat info;
        const char *entry = entries[i]->d_name;
        snprintf(path, sizeof path, "%s/%s", dir, entry);
        snprintf(name, sizeof name, "%s%s", below, entry);
        if (strcmp(entry, ".") != 0 && strcmp(entry, "..") != 0 && stat(path, &info) == 0) {
            if (S_ISDIR(info.st_mode)) {
                strcat(name, "/");
                fake_walk(out, path, name, n);
            } else
                fprintf(out, "%s{\"rfilename\":\"%s\",\"size\":%ld}", (*n)++ > 0 ? "," : "", name,
                        (long)info.st_size);
        }
        free(entries[i]);
    }
    if (entries_n >= 0)
        free(entries);
}

static inline void fake_json(const struct fake_request *r, const char *json, size_t n)
{
    fake_send(r->fd,
              "HTTP/1.1 200 x\r\nConnection: close\r\nContent-Type: application/json\r\n"
              "Content-Length: %zu\r\n\r\n",
              n);
    if (write(r->fd, json, n) < 0)
        return;
}

static inline void fake_code(const struct fake_request *r, int code, const char *error_code)
{
    fake_send(r->fd,
              "HTTP/1.1 %d x\r\nConnection: close\r\nX-Error-Code: %s\r\nContent-Length: 3\r\n\r\n"
              "no\n",
              code, error_code);
}

/* /api/models/ORG/NAME/revision/REVISION */
static inline void fake_api(struct fake_request *r)
{
    char name[3000], path[3000], commit[100], *json = NULL;
    size_t json_n = 0;
    char *revision = strstr(r->path, "/revision/");
    if (fake_path(r->hub, "answer", path)) {
        const int fd = open(path, O_RDONLY);
        json = calloc(1, 40 << 20);
        json_n = (size_t)read(fd, json, 40 << 20);
        fake_json(r, json, json_n);
        free(json);
        close(fd);
        return;
    }
    if (revision == NULL) {
        fake_code(r, 404, "");
        return;
    }
    *revision = '\0';
    revision += strlen("/revision/");
    revision[strcspn(revision, "?")] = '\0';
    if (!fake_path(r->hub, r->path + strlen("/api/"), path)) {
        fake_code(r, r->token[0] != '\0' ? 404 : 401, "RepoNotFound");
        return;
    }
    snprintf(name, sizeof name, "%s/refs/%s", r->path + strlen("/api/"), revision);
    if (!fake_line(r->hub, name, commit, sizeof commit))
        snprintf(commit, sizeof commit, "%s", revision);
    snprintf(name, sizeof name, "%s/%s", r->path + strlen("/api/"), commit);
    if (!fake_path(r->hub, name, path)) {
        fake_code(r, 404, "RevisionNotFound");
        return;
    }
    FILE *out = open_memstream(&json, &json_n);
    int n = 0;
    fprintf(out, "{\"id\":\"%s\",\"sha\":\"%s\",\"downloads\":7,\"siblings\":[",
            r->path + strlen("/api/models/"), commit);
    fake_walk(out, path, "", &n);
    fprintf(out, "]}");
    fclose(out);
    fake_json(r, json, json_n);
    free(json);
}

static inline void fake_unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0'; at++) {
        unsigned int c = (unsigned char)*at;
        if (*at == '%' && sscanf(at + 1, "%2x", &c) == 1)
            at += 2;
        *to++ = (char)c;
    }
    *to = '\0';
}

/* /ORG/NAME/resolve/COMMIT/FILE, or /datasets/… */
static inline void fake_resolve(struct fake_request *r)
{
    char name[3000], path[3000], token[600], sum[80];
    struct stat info;
    char *file = strstr(r->path, "/resolve/");
    if (fake_line(r->hub, "token", token, sizeof token) && strcmp(token, r->token) != 0) {
        fake_code(r, r->token[0] != '\0' ? 403 : 401, "GatedRepo");
        return;
    }
    *file = '\0';
    file += strlen("/resolve/");
    fake_unescape(file);
    const bool is_dataset = strncmp(r->path, "/datasets/", 10) == 0;
    snprintf(name, sizeof name, "%s%s/%s", is_dataset ? "" : "models/", r->path + 1, file);
    if (!fake_path(r->hub, name, path) || stat(path, &info) != 0) {
        fake_code(r, 404, "EntryNotFound");
        return;
    }
    if (info.st_size < FAKE_HUB_LARGE) {
        fake_file(r, path, false);
        return;
    }
    if (!fake_line(r->hub, "sum", sum, sizeof sum))
        fake_sha256(path, sum);
    fake_send(r->fd,
              "HTTP/1.1 302 x\r\nConnection: close\r\nX-Linked-Etag: \"%s\"\r\nX-Linked-Size: %ld"
              "\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:%d/%s?Signature=secret\r\n\r\n",
              sum, (long)info.st_size, r->hub->cdn_port, name);
}

static inline void fake_header(const char *request, const char *name, char *out, size_t cap)
{
    const char *at = strcasestr(request, name);
    out[0] = '\0';
    if (at != NULL)
        snprintf(out, cap, "%.*s", (int)strcspn(at + strlen(name), "\r"), at + strlen(name));
}

static inline void fake_answer(struct fake_request *r, bool is_cdn)
{
    char path[3000], code[16];
    if (is_cdn) {
        r->path[strcspn(r->path, "?")] = '\0';
        if (fake_path(r->hub, r->path + 1, path))
            fake_file(r, path, true);
        else
            fake_code(r, 404, "");
    } else if (fake_line(r->hub, "gone", code, sizeof code))
        fake_code(r, atoi(code), "");
    else if (fake_count(r->hub, "busy"))
        fake_send(r->fd, "HTTP/1.1 429 x\r\nConnection: close\r\nRetry-After: 1\r\n"
                         "Content-Length: 0\r\n\r\n");
    else if (strncmp(r->path, "/api/", 5) == 0)
        fake_api(r);
    else if (strstr(r->path, "/resolve/") != NULL)
        fake_resolve(r);
    else
        fake_code(r, 404, "");
}

static inline void fake_serve(const struct fake_hub *hub, int listener, bool is_cdn)
{
    char log_path[3000];
    fake_path(hub, "log", log_path);
    const int log = open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    signal(SIGPIPE, SIG_IGN);
    for (;;) {
        char request[8192] = "", range[64];
        struct fake_request r = {.hub = hub, .fd = accept(listener, NULL, NULL)};
        size_t n = 0;
        for (ssize_t k; n < sizeof request - 1 && strstr(request, "\r\n\r\n") == NULL;
             n += (size_t)k)
            if ((k = read(r.fd, request + n, sizeof request - 1 - n)) <= 0)
                break;
        if (sscanf(request, "GET %1999s", r.path) == 1) {
            fake_header(request, "\r\nAuthorization: Bearer ", r.token, sizeof r.token);
            fake_header(request, "\r\nRange: bytes=", range, sizeof range);
            fake_header(request, "\r\nIf-Range: ", r.if_range, sizeof r.if_range);
            r.from = atol(range);
            dprintf(log, "%s GET %s token=%s range=%ld\n", is_cdn ? "cdn" : "hub", r.path, r.token,
                    r.from);
            fake_answer(&r, is_cdn);
        }
        close(r.fd);
    }
}

static inline int fake_listen(int *port)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n = sizeof at;
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&at, n) != 0 ||
        listen(listener, 64) != 0 || getsockname(listener, (struct sockaddr *)&at, &n) != 0) {
        perror("fake_hub: cannot listen");
        exit(99);
    }
    *port = ntohs(at.sin_port);
    return listener;
}

/* fake_hub_start — starts both servers as processes that end with this one. */
static inline void fake_hub_start(struct fake_hub *hub, const char *root)
{
    const int listener[2] = {fake_listen(&hub->hub_port), fake_listen(&hub->cdn_port)};
    snprintf(hub->root, sizeof hub->root, "%s", root);
    for (int i = 0; i < 2; i++) {
        const pid_t pid = fork();
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            close(listener[1 - i]);
            fake_serve(hub, listener[i], i == 1);
        }
        *(i == 0 ? &hub->hub : &hub->cdn) = pid;
    }
    close(listener[0]);
    close(listener[1]);
}

#endif
