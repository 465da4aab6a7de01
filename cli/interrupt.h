/* Interruption: when Ctrl-C or a batch system ends a run, it says how to continue the run. */
#pragma once

/* From here on SIGINT and SIGTERM, where nobody handles or ignores them, print that the same command continues from
 * this store; the process then dies of the signal, so that its caller sees that. */
void calm_interrupt_resumes(const char *store);
