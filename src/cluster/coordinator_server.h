/* desk — node 0's correspondence: reads what comes through the door, asks the coordinator, answers;
 * holds a beat until something has changed. Must not decide anything about the job. */
#ifndef CONVOY_CLUSTER_COORDINATOR_SERVER_H
#define CONVOY_CLUSTER_COORDINATOR_SERVER_H

#include "dataset_share/file_list.h"
#include "cluster/coordinator.h"
#include "net/https_server.h"
#include "net/psk.h"

struct event_base;
struct coordinator_server;
struct coordinator_server_config {
    struct event_base *loop;
    struct coordinator *coordinator;
    int nodes_n, workers_n; /* workers_n: of each node */
    const char *addr;
    int port;
    const struct psk *psk;
    const uint8_t *seed;          /* of the generations' secrets */
    void (*on_change)(void *arg); /* something was heard: look at the coordinator */
    void *arg;
};

enum status coordinator_server_open(const struct coordinator_server_config *config,
                                    struct coordinator_server **out);
void coordinator_server_close(struct coordinator_server *s);
/* coordinator_server_flush — answer what was held, where there is something new or the time is
 * over. Call it after every change and several times a second. */
void coordinator_server_flush(struct coordinator_server *s);
void coordinator_server_strangers(const struct coordinator_server *s,
                                  struct https_server_strangers *out);
/* coordinator_server_offer_data — what this node has for those without data of their own: see
 * dataset_server_set. */
enum status coordinator_server_offer_data(struct coordinator_server *s, enum file_list_kind kind,
                                          const char *bytes, size_t n);

#endif
