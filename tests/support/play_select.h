/* Choosing anew from the store of a run. */
#ifndef CALM_TESTS_PLAY_SELECT_H
#define CALM_TESTS_PLAY_SELECT_H

#include "ptq/stored/stored.h"
#include "tests/support/play.h"

/* All options as in run `of`. */
calm_reselect_options play_selecting(const play *run, int64_t of);

/* The id of the run that holds the selection. */
int64_t play_select(const calm_reselect_options *options);

/* It fails so, with a message that contains `message`. */
void play_select_fails(const calm_reselect_options *options, calm_status status, const char *message);

#endif
