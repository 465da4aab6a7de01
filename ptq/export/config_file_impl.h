/* Private function of config_file.c, shared with its test. */
#pragma once

#include "ptq/export/config_file.h"

/* Appends the JSON object `text` [n] to `out` with its own member `key` set to `value`, which is JSON; a new member
 * becomes the last. */
void calm_export_set_member(const char *text, size_t n, const char *key, const char *value, calm_text *out);
