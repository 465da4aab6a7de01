/* Makes config.json from a GGUF file's keys and tensors, for the families that calm knows. */
#pragma once

#include "ptq/gguf/gguf_names.h"
#include "ptq/io/json.h"

/* Receives each fault: the key that is missing or wrong, and what is wrong with it. */
typedef void calm_gguf_report_fn(void *user, const char *key, const char *text);

/* Builds it from the keys of `list`; the caller frees it.  Every key that is missing or has a wrong value is passed to
 * `report`, and the rest is built.  `report` NULL: the first fault is a failure, CALM_EFORMAT; CALM_EUNSUPPORTED:
 * rotary embeddings with separate factors (rope_freqs.weight, longrope), which keys do not describe. */
calm_status calm_gguf_config(calm_ctx *ctx, const calm_gguf_list *list, calm_gguf_report_fn *report, void *user,
                             calm_json **out);
