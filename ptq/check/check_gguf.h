/* A GGUF file under check. */
#pragma once

#include "ptq/check/check_state.h"
#include "ptq/model/gguf_names.h"

typedef struct calm_check_gguf_state {
    calm_checking *c;
    calm_gguf *file;
    calm_gguf_list list; /* n = 0: the architecture is not known */
    calm_config config;
    bool config_known;
    bool keys_bad;           /* some key was found missing or wrong: sizes are not compared */
    calm_status status; /* of saying a finding in a callback */
} calm_check_gguf_state;

/* The tokenizer's keys. */
calm_status calm_check_gguf_keys(calm_check_gguf_state *g);

/* Scales of blocks, and floats; streamed. */
calm_status calm_check_gguf_values(calm_check_gguf_state *g);
