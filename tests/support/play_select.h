/* Chooses again from the store of a run. */
#ifndef CALM_TESTS_PLAY_SELECT_H
#define CALM_TESTS_PLAY_SELECT_H

#include "ptq/stored/stored.h"
#include "tests/support/play.h"

/* Returns options that keep all of run `of`. */
calm_reselect_options play_selecting(const play *run, int64_t of);

/* Selects, and returns the id of the new run. */
int64_t play_select(const calm_reselect_options *options);

/* Checks that the selection fails with `status` and a message that contains `message`. */
void play_select_fails(const calm_reselect_options *options, calm_status status, const char *message);

#endif
