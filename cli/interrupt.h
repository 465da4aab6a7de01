/* Interruption: when Ctrl-C or a batch system ends a run, it says how to continue the run. */
#pragma once

/* Installs handlers for SIGINT and SIGTERM, except for a signal that is handled or ignored already: they print that the
 * same command continues from this store, the store's run becomes `interrupted`, and the process then dies of the
 * signal, so that its caller sees it. */
void calm_interrupt_resumes(const char *store);
