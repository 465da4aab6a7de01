/* An observer that copies the values at every hook point of a block for one window, number 4.  The test that includes
 * it defines TOKENS, the window's length, and WIDEST, the largest width of a hook point. */
#ifndef CALM_TESTS_SEEN_HOOKS_H
#define CALM_TESTS_SEEN_HOOKS_H

#include <string.h>

#include "ptq/layers/observer.h"
#include "tests/support/harness.h"

typedef struct seen {
    float x[CALM_N_HOOKS][TOKENS * WIDEST];
    size_t width[CALM_N_HOOKS], n[CALM_N_HOOKS];
} seen;

static calm_status keep(void *user, calm_ctx *task, const calm_observation *what)
{
    seen *all = user;
    (void)task;
    ck_assert(what->n_rows == TOKENS && what->window == 4 && what->expert == CALM_NO_EXPERT && !what->rows);
    ck_assert(what->width <= WIDEST);
    memcpy(all->x[what->hook], what->x, TOKENS * what->width * sizeof(float));
    all->width[what->hook] = what->width;
    all->n[what->hook]++;
    return CALM_OK;
}

#endif
