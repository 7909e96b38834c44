/* wait_policy — how a thread waits for other ranks while nothing arrives. Must not know the event
 * that it waits for. */
#ifndef CONVOY_COMM_WAIT_POLICY_H
#define CONVOY_COMM_WAIT_POLICY_H

enum wait_policy {
    WAIT_POLICY_YIELD, /* ranks share cores: yield immediately, then sleep */
    WAIT_POLICY_SPIN,  /* this thread has a core to itself: poll first, then yield, then sleep */
    WAIT_POLICY_SLEEP  /* the cores are busy computing (queue thread): sleep early */
};

#endif
