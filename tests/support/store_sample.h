/* A small store for tests: one model with one block and two jobs, a calibration, a run. */
#ifndef CALM_TESTS_STORE_SAMPLE_H
#define CALM_TESTS_STORE_SAMPLE_H

#include "store/store.h"

/* How tests open a store for writing: "calm test", without waiting. */
extern const calm_store_how sample_writing;

/* The rows that sample_fill puts. */
extern const calm_store_model sample_model;
extern const calm_store_calibration sample_calibration;

/* Their ids. */
typedef struct sample {
    int64_t model, calibration, block, qkv, down, run;
} sample;

/* A path for a store in a fresh directory. */
const char *sample_path(void);

/* Open a store, which must succeed. */
calm_store *sample_open(const char *path, calm_store_mode mode);

/* Put the rows. */
sample sample_fill(calm_store *store);

/* The one value of a query, as a number or as text (NULL for other types). */
int64_t sample_number(calm_store *store, const char *sql);
const char *sample_text(calm_store *store, const char *sql);

#endif
