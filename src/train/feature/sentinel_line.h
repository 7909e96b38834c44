/* sentinel_line — log lines of SENTINEL_EVERY that `rehearse` reads: what a worker compares and
 * where it lies in its memory, and the rank that was found. One place for the writer and the
 * reader. */
#ifndef CONVOY_TRAIN_SENTINEL_LINE_H
#define CONVOY_TRAIN_SENTINEL_LINE_H

/* of each worker, level debug, in decimal: other workers, elements (fp32), address, process */
#define SENTINEL_LINE_MODULE "trainer_sentinel"
#define SENTINEL_LINE_OTHERS "compared with that of other workers: "
#define SENTINEL_LINE_ELEMS "parameters: "
#define SENTINEL_LINE_ADDRESS "address: "
#define SENTINEL_LINE_PROCESS "process: "

/* of a supervisor, within its sentence about the worker that has ended: a rank behind the first,
 * and then one of the others */
#define SENTINEL_LINE_OF_RANK " of rank "
#define SENTINEL_LINE_DIFFER " differ from those of most of "
#define SENTINEL_LINE_CHANGED " changed by themselves "

#endif
