/* Functions that build config.json from a GGUF file, part by part.  Only files of this folder include it. */
#pragma once

#include <string.h>

#include "ptq/gguf/gguf_config.h"

typedef struct calm_gguf_config_builder {
    calm_ctx *ctx;
    const calm_gguf_list *list;
    calm_gguf_report_fn *report;    /* NULL: the first fault is a failure */
    void *user;
    calm_json *config;
    calm_status status;    /* failure of the first fault */
} calm_gguf_config_builder;

/* Reports a fault of the file, or keeps it as the failure. */
void calm_gguf_complain(calm_gguf_config_builder *b, const char *key, const char *text);

/* Does the same for the architecture's key `rest`. */
void calm_gguf_complain_of(calm_gguf_config_builder *b, const char *rest, const char *text);

/* Finds a key of the architecture and makes its name: "qwen3.block_count". */
const calm_gguf_key *calm_gguf_find_of(const calm_gguf_config_builder *b, const char *rest, char name[128]);

/* Returns a key's whole number above 0, `fallback` when it is absent; `fallback` 0: absence is a fault. */
int64_t calm_gguf_take_size(calm_gguf_config_builder *b, const char *rest, int64_t fallback);

/* Sets config.MEMBER to the result of calm_gguf_take_size. */
void calm_gguf_set_size(calm_gguf_config_builder *b, const char *member, const char *rest, int64_t fallback);

/* Returns a key's whole number >= 0; 0 when it is absent. */
int64_t calm_gguf_take_count(calm_gguf_config_builder *b, const char *rest);

/* Returns a key's finite number above 0, `fallback` when it is absent; `fallback` 0: absence is a fault. */
double calm_gguf_take_number(calm_gguf_config_builder *b, const char *rest, double fallback);

/* Sets a number to the shortest decimal that rounds to the same float32: keys are float32, and config.json had such
 * decimals. */
void calm_gguf_set_number(calm_json *object, const char *name, double value);

/* Returns a key's boolean, `usual` when it is absent. */
bool calm_gguf_take_bool(calm_gguf_config_builder *b, const char *rest, bool usual);

/* Returns a block's number from a key that has one for all blocks, or one for each; 0 where it is no whole number or
 * above 2^24. */
int64_t calm_gguf_of_block(const calm_gguf_key *key, int64_t block);

/* Returns the first number above 0 of such a key, else `fallback`; with `fallback` 0 that is a fault. */
int64_t calm_gguf_take_first(calm_gguf_config_builder *b, const char *rest, int64_t fallback);

/* Adds the settings of encoders (gguf_config_encoders.c). */
void calm_gguf_add_encoder(calm_gguf_config_builder *b, int64_t n_blocks, int64_t context);

/* Adds the settings of Mamba-2 and the list of the blocks' sublayers (gguf_config_mamba.c). */
void calm_gguf_add_scans(calm_gguf_config_builder *b, int64_t n_blocks, int64_t hidden);

/* Adds Gemma 3n's and 4's widths, rotary embeddings, experts, and shared keys and values (gguf_config_gemma4.c). */
void calm_gguf_add_sharing(calm_gguf_config_builder *b, int64_t n_blocks, int64_t inner);

/* Is the file's family the one that calm calls `name`? */
static inline bool calm_gguf_is_family(const calm_gguf_config_builder *b, const char *name)
{
    return strcmp(b->list->arch->name, name) == 0;
}

/* Does the file have a tensor of this name? */
static inline bool calm_gguf_has_tensor(const calm_gguf_config_builder *b, const char *name)
{
    return calm_gguf_find_tensor(b->list->file, name) != NULL;
}
