/* What config_file.c shares with its test. */
#pragma once

#include "ptq/export/config_file.h"

/* Append a JSON object's `text` [n] to `out` with the member `key`, of the object itself, set to `value`, which is
 * JSON; a member that is not there becomes the last. */
void calm_export_set_member(const char *text, size_t n, const char *key, const char *value, calm_text *out);
