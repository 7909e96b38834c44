/* tls_client — see tls_client.h. */
#include "net/tls_client.h"

#include <string.h>
#include <sys/socket.h>

#include "base/text.h"
#include "net/curl_client.h"
#include "net/keepalive.h"

#define CONNECT_MS 4000

enum status tls_client_check(void)
{
    const curl_version_info_data *info = curl_version_info(CURLVERSION_NOW);
    if (curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return FAIL(ST_RETRY, "libcurl cannot be initialised; out of memory?");
    if (info->ssl_version == NULL || !text_starts(info->ssl_version, "OpenSSL/"))
        return FAIL(ST_NO_DEVICE,
                    "libcurl is built with %s here, which cannot use a pre-shared key; install the "
                    "one with OpenSSL (Debian: libcurl4)",
                    info->ssl_version != NULL ? info->ssl_version : "no TLS");
    return ST_OK;
}

bool tls_client_url(const struct psk *psk, const char *host, int port, char *out, size_t cap)
{
    bool is_v6 = strchr(host, ':') != NULL && host[0] != '[';
    return text_format(out, cap, "%s://%s%s%s:%d", psk->is_none ? "http" : "https",
                       is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

static int on_open(void *arg, curl_socket_t fd, curlsocktype purpose)
{
    struct tls_client *tls = arg;
    (void)purpose;
    tls->fd = fd;
    tls->plain[0] = 0;
    keepalive_set(fd);
    return CURL_SOCKOPT_OK;
}

static void on_tls(const SSL *ssl, int where, int alert)
{
    struct tls_client *tls = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    if ((where & SSL_CB_READ_ALERT) == SSL_CB_READ_ALERT && alert >> 8 == SSL3_AL_FATAL)
        tls->alert = alert & 0xFF; /* in the form of SSL_alert_desc_string_long */
}

/* Keeps the answer of a server that does not use TLS. OpenSSL shows the first bytes as the header
 * of a record and reads no more than these, so the rest is still in the socket. */
static void on_record(int is_write, int version, int kind, const void *bytes, size_t n, SSL *ssl,
                      void *arg)
{
    struct tls_client *tls = arg;
    const unsigned char *header = bytes;
    (void)version, (void)ssl;
    if (is_write || kind != SSL3_RT_HEADER || n >= sizeof(tls->plain) || tls->plain[0] != 0 ||
        (header[0] >= SSL3_RT_CHANGE_CIPHER_SPEC && header[0] <= SSL3_RT_APPLICATION_DATA))
        return;
    memcpy(tls->plain, bytes, n);
    const ssize_t more =
        recv(tls->fd, tls->plain + n, sizeof(tls->plain) - 1 - n, MSG_PEEK | MSG_DONTWAIT);
    tls->plain[n + (more > 0 ? (size_t)more : 0)] = 0;
}

static CURLcode on_ctx(CURL *easy, void *ctx, void *arg)
{
    struct tls_client *tls = arg;
    (void)easy;
    if (!psk_set_client_ctx(ctx, tls->psk))
        return CURLE_OUT_OF_MEMORY;
    SSL_CTX_set_app_data((SSL_CTX *)ctx, tls);
    SSL_CTX_set_info_callback(ctx, on_tls);
    SSL_CTX_set_msg_callback(ctx, on_record);
    SSL_CTX_set_msg_callback_arg((SSL_CTX *)ctx, tls);
    return CURLE_OK;
}

enum status tls_client_open(struct tls_client *tls, const struct psk *psk,
                            struct curl_slist *headers, CURL **out)
{
    const struct curl_client_config config = {
        .server = "node 0", .connect_ms = CONNECT_MS, .error = tls->error};
    CURL *easy;
    *tls = (struct tls_client){.psk = psk};
    TRY(curl_client_open(&config, &easy));
    curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* closing does not wait for a name look-up */
    /* node 0 may come back with another address */
    curl_easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, 1L);
    curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTFUNCTION, on_open);
    curl_easy_setopt(easy, CURLOPT_SOCKOPTDATA, tls);
    if (!psk->is_none) {
        curl_easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_3);
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYPEER, 0L); /* no certificates: see psk.h */
        curl_easy_setopt(easy, CURLOPT_SSL_VERIFYHOST, 0L);
        /* and no store of them that would be read with each connection */
        curl_easy_setopt(easy, CURLOPT_CAINFO, NULL);
        curl_easy_setopt(easy, CURLOPT_CAPATH, NULL);
        curl_easy_setopt(easy, CURLOPT_SSL_ENABLE_ALPN, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_SESSIONID_CACHE, 0L);
        curl_easy_setopt(easy, CURLOPT_SSL_CTX_FUNCTION, on_ctx);
        curl_easy_setopt(easy, CURLOPT_SSL_CTX_DATA, tls);
    }
    *out = easy;
    return ST_OK;
}

/* Copies the line of the answer that begins with `name`, without terminal controls. */
static void copy_line(const char *answer, const char *name, char *out, size_t cap)
{
    const char *at = strstr(answer, name);
    text_format(out, cap, "%.*s", at != NULL ? (int)strcspn(at, "\r\n") : 0, at != NULL ? at : "");
    text_strip_controls(out);
}

/* Returns true if the server lacks the key: both sides must use it, so any other answer to the
 * handshake is not from node 0. */
bool tls_client_is_refused(const struct tls_client *tls, char *why, size_t cap)
{
    bool is_plain = tls->plain[0] != 0 || strstr(tls->error, "wrong version number") != NULL;
    bool is_certified = strstr(tls->error, "certificate verify failed") != NULL;
    bool is_other_key = tls->alert != 0 && psk_is_refusal(tls->alert);
    if (is_other_key && psk_is_unknown(tls->alert))
        text_format(why, cap,
                    "node 0 is Convoy of another version, or not Convoy: it has no key of this "
                    "version, %s (%s); run the same version on all nodes",
                    PSK_IDENTITY, SSL_alert_desc_string_long(tls->alert));
    else if (is_other_key)
        text_format(why, cap,
                    "node 0 has another JOB_TOKEN (%s); set the same JOB_TOKEN on all nodes and "
                    "run the same version",
                    SSL_alert_desc_string_long(tls->alert));
    else if (is_plain) {
        /* Describes a server that answered without TLS. */
        const char *answer = tls->plain;
        char first[64], server[96];
        copy_line(answer, answer, first, sizeof(first));
        copy_line(answer, "Server:", server, sizeof(server));
        const bool is_http = text_starts(answer, "HTTP/") || answer[0] == '<';
        text_format(why, cap,
                    "it answers without TLS (%s%s%s), so it is %s, or a node 0 with "
                    "JOB_TOKEN=none; check that MASTER_ADDR and MASTER_PORT lead to node 0",
                    first[0] != 0 ? first : "no readable text", server[0] != 0 ? ", " : "", server,
                    is_http ? "a web server" : "another program");
    } else if (is_certified)
        text_copy(
            why, cap,
            "the server there does not have the JOB_TOKEN; set the same JOB_TOKEN on all nodes");
    else
        text_copy(why, cap, tls->error);
    return is_other_key || is_plain || is_certified;
}
