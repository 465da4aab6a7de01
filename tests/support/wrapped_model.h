/* A model's checkpoint under other names, next to tensors that it does not have. */
#ifndef CALM_TESTS_WRAPPED_MODEL_H
#define CALM_TESTS_WRAPPED_MODEL_H

#include "ptq/model/model.h"

/* Write the tensors of `inner` with `prefix` in place of `strip`, which their names begin with or not, and
 * lm_head.weight as that of `head`; then `more` [n], and `config` as config.json.  The directory lives until the end of
 * the test. */
const char *wrap_model(const calm_model *inner, const char *strip, const char *prefix, const char *head,
                       const calm_tensor *more, size_t n, const char *config);

/* config.json of a directory, until the end of the test. */
const char *config_text(const char *dir);

#endif
