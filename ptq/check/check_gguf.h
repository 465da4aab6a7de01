/* A GGUF file during the check. */
#pragma once

#include "ptq/check/check_state.h"
#include "ptq/gguf/gguf_names.h"

typedef struct calm_check_gguf_state {
    calm_checking *c;
    calm_gguf *file;
    calm_gguf_list list;     /* n = 0: unknown architecture */
    calm_config config;
    bool config_known;
    bool keys_bad;           /* a key is missing or wrong: sizes are not compared */
    calm_status status;      /* status of a callback that reports findings */
} calm_check_gguf_state;

/* Checks the tokenizer's keys. */
calm_status calm_check_gguf_keys(calm_check_gguf_state *g);

/* Checks scales of blocks, and float tensors, in pieces. */
calm_status calm_check_gguf_values(calm_check_gguf_state *g);
