/* What a run would take in the store, from its shapes. */
#ifndef CALM_RUN_FORECAST_STORE_H
#define CALM_RUN_FORECAST_STORE_H

#include "ptq/run/run_impl.h"

/* Bytes of the blob of an entry's candidate on a job, unless it fails or a starved expert has the fallback's. */
double calm_forecast_blob_bytes(const calm_run *p, size_t job, size_t entry);

/* Does the guard of a run go on beside its blocks?  Where it may, and its rows take less than the losers that can go
 * for them. */
bool calm_forecast_follows(const calm_run *p);

/* Bytes of blobs and of the guard's rows beside them: the most while the run goes on, and at most when it has ended.
 * Of a uniform result that has to be computed again those of every job are another's than the hybrid's. */
void calm_forecast_store(const calm_run *p, double *running, double *kept);

#endif
