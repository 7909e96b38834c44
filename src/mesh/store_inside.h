/* store_inside — what the files of the store share. Inside room mesh only. */
#ifndef CONVOY_MESH_STORE_INSIDE_H
#define CONVOY_MESH_STORE_INSIDE_H

#include "mesh/rows.h"
#include "mesh/store.h"

/* What is under way with a piece. */
struct store_piece {
    struct comm_ticket gather, reduce;
    bool is_gathering; /* `gather` has to be waited for */
    bool is_due;       /* its update waits for `gather`, which brings the gradient */
    bool is_here;      /* a view: what passes read of it is that of the masters, or on its way */
    bool is_begun;     /* its reduction, in this step */
    bool is_reducing;  /* `reduce` has to be waited for */
    bool is_finished;  /* reduced, and its squares are added up */
};

#define STORE_PIECES_OF_MEMORY 9
#define STORE_EXTRAS_MAX 8

struct store {
    struct store_config c;
    struct layout layout;
    bool is_apart;            /* the device's memory is not the host's */
    bool is_alone, has_parts; /* one rank; moments are in parts */
    /* gradients are gathered beside the next forward pass, and updates due until then */
    bool is_late;
    bool params_window, grads_window; /* passes see a window; else all of it */
    bool params_packed;               /* masters: own parts only, packed; else whole */
    bool has_view;                    /* passes do not read the masters where these lie */
    struct tensor params;             /* masters, f32 */
    /* what passes read, whole or window, in their dtype; without has_view: params */
    struct tensor view;
    struct tensor grads, grads_own;
    struct tensor moment[2]; /* whole or packed */
    struct tensor norms;     /* (pieces) f64, on the device */
    double *sums;            /* the same on the host, and extras */
    struct store_piece *piece;
    int grad_in_slot[2];            /* the piece whose gradient lies there; -1 none */
    struct rows *rows;              /* NULL: token rows are reduced with the rest */
    struct comm_ticket rows_ticket; /* of their numbers, then of the rows themselves */
    struct param_table embed_table; /* gradients while the embedding's backward runs */
    struct param *embed_row;
    struct squeeze *squeeze; /* NULL: not compressed */
    struct {
        void *data;
        size_t bytes;
        bool is_comm;
    } memory[STORE_PIECES_OF_MEMORY];
    int memory_n;
    struct store_memory taken;
    struct comm_ticket newest; /* of what was begun */
    bool is_under_way;         /* it is not waited for */
    int64_t wait_ns;
};

/* store_begun — what a comm call that begins something returned; its ticket is the newest.
 * store_come_after: what is begun next comes after what the device has been given. Compression
 * copies by streams of its own: it begins when all that is done. */
enum status store_begun(struct store *s, enum status st, struct comm_ticket ticket);
enum status store_come_after(struct store *s);

/* Parameters (store_params.c). own: the masters that this rank updates of a piece. forget: masters
 * changed, nothing of the view is theirs any more. wait: nothing of the piece is on its way, no
 * update due. begin: where it has to be gathered it is here or on its way. need: it is here.
 * updated: its owners have done so just now. */
struct tensor store_params_own(const struct store *s, int piece);
void store_params_forget(struct store *s);
enum status store_params_wait(struct store *s, int piece);
enum status store_params_begin(struct store *s, int piece);
enum status store_params_need(struct store *s, int piece);
enum status store_params_updated(struct store *s, int piece);

#endif
