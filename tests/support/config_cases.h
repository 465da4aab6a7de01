/* config.json of a tiny model with one key changed: what calm_config_read makes of it. */
#ifndef CALM_TESTS_CONFIG_CASES_H
#define CALM_TESTS_CONFIG_CASES_H

#include "ptq/model/config.h"

/* The settings of tiny_of(family) with `key` set to the JSON text `value` (NULL takes it away) are accepted. */
calm_config config_with(const char *family, const char *key, const char *value);

/* They are refused with this status, naming the file and `words`. */
void config_refuses(const char *family, const char *key, const char *value, calm_status expected, const char *words);

#endif
