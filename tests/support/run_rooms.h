/* All rooms of a run, for tests that look inside one. */
#ifndef TESTS_SUPPORT_RUN_ROOMS_H
#define TESTS_SUPPORT_RUN_ROOMS_H

#include "ptq/choose/choose_impl.h"
#include "ptq/finish/finish.h"
#include "ptq/learn/learn.h"
#include "ptq/measure/measure.h"
#include "ptq/run/run.h"
#include "ptq/search/search.h"
#include "ptq/state/state.h"

#endif
