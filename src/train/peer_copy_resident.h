/* peer_copy_resident — the state that stays in a rank's own memory from one generation to the next,
 * where each rank holds all of it. Beside copies (peer_copy.h), of which it is a better one: newer,
 * and where it is needed. Must not know how a state is chosen (peer_copy_choice.h).
 *
 * Order of life: peer_copy_find frees what is not the state that was found. Then the next step is
 * opened with _memory, and _settle follows. When the generation has failed, _take. All are local.
 */
#ifndef CONVOY_TRAIN_PEER_COPY_RESIDENT_H
#define CONVOY_TRAIN_PEER_COPY_RESIDENT_H

#include "mesh/store_resident.h"
#include "train/peer_copy.h"

/* Zero-initialised: nothing stays. */
struct peer_copy_resident {
    struct store_resident memory;
    struct peer_copy_stamp stamp; /* is_complete where memory holds something */
    uint64_t fingerprint;         /* of peer_copy_config */
    /* of the bits of each part, as the last update left them; has_sums: updates check (step.h) */
    uint32_t sums[STORE_RESIDENT_PARTS];
    bool has_sums;
};

/* peer_copy_resident_free — accepts NULL, and one that holds nothing.
 * peer_copy_resident_is_found — this rank has the state that was found.
 * peer_copy_resident_count — for tests: how many ranks have it; 0: it comes from copies.
 * peer_copy_resident_memory — step_config.resident of the next step; NULL: it starts empty.
 * peer_copy_resident_settle — before all else that uses the step: what stayed is its state.
 *   ST_FAULT: it has changed by itself since the generation before; then nothing stays.
 * peer_copy_resident_take — the state of the step, after so much progress, stays if it is all here
 *   and nothing speaks against it. The step can only be closed then. Accepts copy NULL. */
void peer_copy_resident_free(struct peer_copy_resident *resident, struct dev *dev);
bool peer_copy_resident_is_found(const struct peer_copy *copy);
int peer_copy_resident_count(const struct peer_copy *copy);
struct store_resident *peer_copy_resident_memory(const struct peer_copy *copy);
enum status peer_copy_resident_settle(struct peer_copy *copy, struct step *step, struct dev *dev);
void peer_copy_resident_take(struct peer_copy *copy, struct step *step,
                             const struct checkpoint_progress *progress);

#endif
