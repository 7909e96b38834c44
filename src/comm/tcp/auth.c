/* tcp_auth — the four messages, their MACs, and the keys that follow from them. */
#include "comm/tcp/auth.h"

#include <string.h>

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#define NONCE_BYTES 32

/* The layout on the wire and in memory: little-endian. */
struct hello {
    char magic[8];
    uint32_t client, server, ranks, unused;
    int64_t generation;
    uint8_t nonce[NONCE_BYTES];
};
static const char magic[8] = "convoyD1";

_Static_assert(sizeof(struct hello) + TCP_AUTH_MAC_BYTES == TCP_AUTH_HELLO_BYTES, "as it travels");
_Static_assert(NONCE_BYTES + TCP_AUTH_MAC_BYTES == TCP_AUTH_ANSWER_BYTES, "as it travels");

/* Computes the MAC over the message's name, the transcript, and the message's own body. */
static bool compute_mac(const struct tcp_auth *auth, const char *name, const uint8_t *body,
                        size_t body_n, uint8_t out[TCP_AUTH_MAC_BYTES])
{
    uint8_t all[8 + sizeof(auth->transcript) + TCP_AUTH_HELLO_BYTES] = {0};
    unsigned n = TCP_AUTH_MAC_BYTES;
    memcpy(all, name, strnlen(name, 8));
    memcpy(all + 8, auth->transcript, auth->transcript_n);
    if (body_n > 0)
        memcpy(all + 8 + auth->transcript_n, body, body_n);
    return HMAC(EVP_sha256(), auth->secret, sizeof(auth->secret), all,
                8 + auth->transcript_n + body_n, out, &n) != NULL;
}

static void append_transcript(struct tcp_auth *auth, const uint8_t *message, size_t n)
{
    memcpy(auth->transcript + auth->transcript_n, message, n);
    auth->transcript_n += n;
}

static bool make_message(struct tcp_auth *auth, const char *name, uint8_t *out, size_t n)
{
    size_t body_n = n - TCP_AUTH_MAC_BYTES;
    if (!compute_mac(auth, name, out, body_n, out + body_n))
        return false;
    append_transcript(auth, out, n);
    return true;
}

static bool read_message(struct tcp_auth *auth, const char *name, const uint8_t *in, size_t n)
{
    uint8_t right[TCP_AUTH_MAC_BYTES];
    size_t body_n = n - TCP_AUTH_MAC_BYTES;
    if (!compute_mac(auth, name, in, body_n, right) ||
        CRYPTO_memcmp(right, in + body_n, sizeof(right)) != 0)
        return false;
    append_transcript(auth, in, n);
    return true;
}

static bool fill_nonce(uint8_t *out) { return getrandom(out, NONCE_BYTES, 0) == NONCE_BYTES; }

bool tcp_auth_make_hello(struct tcp_auth *auth, const struct tcp_auth_ids *ids,
                         uint8_t out[TCP_AUTH_HELLO_BYTES])
{
    struct hello hello = {.client = (uint32_t)ids->client,
                          .server = (uint32_t)ids->server,
                          .ranks = (uint32_t)ids->ranks,
                          .generation = ids->generation};
    memcpy(hello.magic, magic, sizeof(magic));
    if (!fill_nonce(hello.nonce))
        return false;
    memcpy(out, &hello, sizeof(hello));
    return make_message(auth, "hello", out, TCP_AUTH_HELLO_BYTES);
}

/* Reads a hello. Cheap checks come first: an unauthenticated client costs no MAC. */
bool tcp_auth_read_hello(struct tcp_auth *auth, struct tcp_auth_ids *expected,
                         const uint8_t in[TCP_AUTH_HELLO_BYTES])
{
    struct hello hello;
    memcpy(&hello, in, sizeof(hello));
    if (memcmp(hello.magic, magic, sizeof(magic)) != 0 || hello.unused != 0 ||
        hello.generation != expected->generation || hello.ranks != (uint32_t)expected->ranks ||
        hello.server != (uint32_t)expected->server || hello.client >= hello.ranks ||
        hello.client == hello.server ||
        (expected->client >= 0 && hello.client != (uint32_t)expected->client))
        return false;
    if (!read_message(auth, "hello", in, TCP_AUTH_HELLO_BYTES))
        return false;
    expected->client = (int32_t)hello.client;
    return true;
}

bool tcp_auth_make_answer(struct tcp_auth *auth, uint8_t out[TCP_AUTH_ANSWER_BYTES])
{
    return fill_nonce(out) && make_message(auth, "answer", out, TCP_AUTH_ANSWER_BYTES);
}

bool tcp_auth_read_answer(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_ANSWER_BYTES])
{
    return read_message(auth, "answer", in, TCP_AUTH_ANSWER_BYTES);
}

bool tcp_auth_make_proof(struct tcp_auth *auth, uint8_t out[TCP_AUTH_PROOF_BYTES])
{
    return make_message(auth, "proof", out, TCP_AUTH_PROOF_BYTES);
}

bool tcp_auth_read_proof(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_PROOF_BYTES])
{
    return read_message(auth, "proof", in, TCP_AUTH_PROOF_BYTES);
}

bool tcp_auth_make_welcome(struct tcp_auth *auth, uint8_t out[TCP_AUTH_WELCOME_BYTES])
{
    return make_message(auth, "welcome", out, TCP_AUTH_WELCOME_BYTES);
}

bool tcp_auth_read_welcome(struct tcp_auth *auth, const uint8_t in[TCP_AUTH_WELCOME_BYTES])
{
    return read_message(auth, "welcome", in, TCP_AUTH_WELCOME_BYTES);
}

bool tcp_auth_keys(const struct tcp_auth *auth, bool of_client, struct message_seal_keys *out)
{
    return message_seal_derive(
        auth->secret, sizeof(auth->secret), auth->transcript, auth->transcript_n,
        of_client ? "convoy data, of the client" : "convoy data, of the server", out);
}

#ifdef FUZZ
#include "base/assert.h"

/* Sends four messages without the secret to a server and to a client: none is accepted, after any
 * earlier ones. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t in[TCP_AUTH_HELLO_BYTES] = {0}, out[TCP_AUTH_HELLO_BYTES];
    struct tcp_auth server = {.secret = {1, 2, 3}}, client = server;
    struct tcp_auth_ids ids = {.generation = 1, .client = -1, .server = 0, .ranks = 2};
    const struct tcp_auth_ids mine = {.generation = 1, .client = 1, .server = 0, .ranks = 2};
    memcpy(in, data, size < sizeof(in) ? size : sizeof(in));
    ASSERT(!tcp_auth_read_hello(&server, &ids, in) && !tcp_auth_read_answer(&client, in));
    ASSERT(tcp_auth_make_hello(&client, &mine, out) && tcp_auth_read_hello(&server, &ids, out) &&
           ids.client == 1);
    ASSERT(!tcp_auth_read_answer(&client, in) && tcp_auth_make_answer(&server, out) &&
           !tcp_auth_read_proof(&server, in));
    ASSERT(tcp_auth_read_answer(&client, out) && !tcp_auth_read_welcome(&client, in));
    return 0;
}
#endif
