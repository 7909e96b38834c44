/* aws_credentials — finds AWS credentials in the usual order, renews them, and signs requests with
 * them:
 *
 *   1. AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN
 *   2. the profile AWS_PROFILE ("default") of AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials),
 *      then of AWS_CONFIG_FILE (~/.aws/config)
 *   3. a web identity, as in Kubernetes: AWS_WEB_IDENTITY_TOKEN_FILE and AWS_ROLE_ARN, exchanged at
 *      AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL or https://sts.REGION.amazonaws.com
 *   4. a container's service: AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or _FULL_URI
 *   5. the metadata service of an EC2 instance (IMDSv2), unless AWS_EC2_METADATA_DISABLED
 *
 * Without any of them, requests are anonymous. Secrets are kept in memory of secure.h and leave
 * this file only as a signature and a session token. The services of 4 and 5 have link-local
 * addresses, which are exempt from the rule "public addresses only"; other local addresses are not.
 *
 * All functions may be called by several threads, except open and close. It must not know the
 * requests that it signs. */
#ifndef CONVOY_REMOTE_AWS_CREDENTIALS_H
#define CONVOY_REMOTE_AWS_CREDENTIALS_H

#include <stdbool.h>

#include "base/status.h"
#include "base/text.h"
#include "remote/aws_sign.h"

#define AWS_CREDENTIALS_URL_MAX 1024

struct aws_credentials_config {
    char *const *environment; /* "NAME=value" …, NULL; borrowed until close */
    bool allows_local;        /* ALLOW_LOCAL_URLS */
};
struct aws_credentials;

/* aws_credentials_open — prepares the search, without a request. */
enum status aws_credentials_open(const struct aws_credentials_config *config,
                                 struct aws_credentials **out);
/* aws_credentials_close — wipes the secrets. Accepts NULL. */
void aws_credentials_close(struct aws_credentials *credentials);
/* aws_credentials_region — returns AWS_REGION, AWS_DEFAULT_REGION, the profile's region, or
 * "us-east-1". */
const char *aws_credentials_region(const struct aws_credentials *credentials);
/* aws_credentials_sign — sets the request's keys, adds the header x-amz-security-token if there is
 * a token, and signs. Without credentials, authorization stays empty. The first call searches the
 * credentials; they are renewed before they expire. Blocks for these requests; goes_on (NULL
 * allowed) returns false to stop waiting for them: then ST_RETRY. The token lives as
 * long as the text. ST_BAD_SETTING: the environment's credentials are incomplete or refused;
 * ST_RETRY: their service does not answer. */
enum status aws_credentials_sign(struct aws_credentials *credentials,
                                 struct aws_sign_request *request, struct text *authorization,
                                 struct text *token, bool (*goes_on)(void *arg), void *arg);
/* aws_credentials_expire — drops credentials that the store called expired. Returns false if they
 * cannot be renewed. */
bool aws_credentials_expire(struct aws_credentials *credentials);
/* aws_credentials_source — writes the origin of the credentials, for messages: "AWS_ACCESS_KEY_ID",
 * "AWS_PROFILE=default"; "none" if requests are anonymous. Returns out. */
const char *aws_credentials_source(struct aws_credentials *credentials, char *out, size_t cap);
/* aws_credentials_profile — for tests: finds the value of a key in the section of a file such as
 * ~/.aws/credentials. false: there is none, or it has cap bytes or more. Pure. */
bool aws_credentials_profile(const char *text, const char *section, const char *key, char *out,
                             size_t cap);

#endif
