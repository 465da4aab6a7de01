/* Checks calm_config_read on config.json of a tiny model with one key changed. */
#ifndef CALM_TESTS_CONFIG_CASES_H
#define CALM_TESTS_CONFIG_CASES_H

#include "ptq/arch/config.h"

/* Returns the configuration of tiny_of(family) with `key` set to the JSON text `value` (NULL: removed), which must be
 * accepted. */
calm_config config_with(const char *family, const char *key, const char *value);

/* Checks that the same settings fail with this status and a message that contains the file and `words`. */
void config_refuses(const char *family, const char *key, const char *value, calm_status expected, const char *words);

#endif
