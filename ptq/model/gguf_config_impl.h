/* Parts of config.json from a GGUF file, one function a kind of model.  Only files of this folder include it. */
#pragma once

#include <string.h>

#include "ptq/model/gguf_config.h"

typedef struct calm_gguf_config_builder {
    calm_ctx *ctx;
    const calm_gguf_list *list;
    calm_gguf_report_fn *report;    /* NULL: the first fault is a failure */
    void *user;
    calm_json *config;
    calm_status status;    /* of the first fault; later ones are not reported */
} calm_gguf_config_builder;

/* One fault of the file: passed on, or kept as the failure. */
void calm_gguf_complain(calm_gguf_config_builder *b, const char *key, const char *text);

/* The same of the architecture's key `rest`. */
void calm_gguf_complain_of(calm_gguf_config_builder *b, const char *rest, const char *text);

/* A key of the architecture: "qwen3.block_count". */
const calm_gguf_key *calm_gguf_find_of(const calm_gguf_config_builder *b, const char *rest, char name[128]);

/* A whole number above 0; `fallback` 0: it must be there. */
int64_t calm_gguf_take_size(calm_gguf_config_builder *b, const char *rest, int64_t fallback);

/* config.MEMBER = the whole number under the architecture's key `rest`. */
void calm_gguf_set_size(calm_gguf_config_builder *b, const char *member, const char *rest, int64_t fallback);

/* A whole number from 0; 0 where it is missing. */
int64_t calm_gguf_take_count(calm_gguf_config_builder *b, const char *rest);

/* A finite number above 0; `fallback` 0: it must be there. */
double calm_gguf_take_number(calm_gguf_config_builder *b, const char *rest, double fallback);

/* Keys are float32: the shortest decimal that is the same one, as config.json had it. */
void calm_gguf_set_number(calm_json *object, const char *name, double value);

/* A switch; `usual` where it is missing. */
bool calm_gguf_take_bool(calm_gguf_config_builder *b, const char *rest, bool usual);

/* The number of a key that has one for all blocks, or one for each; 0 where it is none, or beyond 2^24. */
int64_t calm_gguf_of_block(const calm_gguf_key *key, int64_t block);

/* The first number above 0 of such a key; where there is none `fallback`, or with 0 for it a fault. */
int64_t calm_gguf_take_first(calm_gguf_config_builder *b, const char *rest, int64_t fallback);

/* Settings of encoders whose files say that they are none of a decoder's (gguf_config_encoders.c). */
void calm_gguf_add_encoder(calm_gguf_config_builder *b, int64_t n_blocks, int64_t context);

/* Mamba-2's settings, and which block holds what (gguf_config_mamba.c). */
void calm_gguf_add_scans(calm_gguf_config_builder *b, int64_t n_blocks, int64_t hidden);

/* Gemma 3n's and 4's widths, rotary embeddings and experts, and what blocks share (gguf_config_gemma4.c). */
void calm_gguf_add_sharing(calm_gguf_config_builder *b, int64_t n_blocks, int64_t inner);

/* Is it calm's family of this name? */
static inline bool calm_gguf_is_family(const calm_gguf_config_builder *b, const char *name)
{
    return strcmp(b->list->arch->name, name) == 0;
}

/* Has the file a tensor of this name? */
static inline bool calm_gguf_has_tensor(const calm_gguf_config_builder *b, const char *name)
{
    return calm_gguf_find_tensor(b->list->file, name) != NULL;
}
