/* fault_injection — the two failures of FAULT that end this process's progress; the trainer decides
 * when. It must not know steps or settings. */
#ifndef CONVOY_TRAIN_FAULT_INJECTION_H
#define CONVOY_TRAIN_FAULT_INJECTION_H

/* fault_injection_kill — FAULT=kill: SIGKILL to this process, as the kernel's out-of-memory killer
 * sends it. */
_Noreturn void fault_injection_kill(void);
/* fault_injection_stall — FAULT=stall: the process stays alive and makes no progress. */
_Noreturn void fault_injection_stall(void);

#endif
