/* A small store for tests: one model with one block and two jobs, a calibration, a run. */
#ifndef CALM_TESTS_STORE_SAMPLE_H
#define CALM_TESTS_STORE_SAMPLE_H

#include "store/store.h"

/* Options to open a store for writing: command "calm test", without waiting. */
extern const calm_store_how sample_writing;

/* Rows that sample_fill writes. */
extern const calm_store_model sample_model;
extern const calm_store_calibration sample_calibration;

/* Ids of these rows. */
typedef struct sample {
    int64_t model, calibration, block, qkv, down, run;
} sample;

/* Returns a path for a store in a new directory. */
const char *sample_path(void);

/* Opens a store; this must succeed. */
calm_store *sample_open(const char *path, calm_store_mode mode);

/* Writes the rows. */
sample sample_fill(calm_store *store);

/* Returns the single value of a query, as a number or as text (NULL for other types). */
int64_t sample_number(calm_store *store, const char *sql);
const char *sample_text(calm_store *store, const char *sql);

#endif
