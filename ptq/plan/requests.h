/* Requests: what a user asks of a choice in addition to the rule (forbidden entries, pinned units, a bit budget, an
 * engine), and the entries that remain for each unit of a pool.
 *
 * A word names entries: an algorithm ("gptq"), its chain, an algorithm at a scheme ("gptq w3a16_g128"), a pattern of
 * these ("mkq*"), or one candidate by its number ("#123").  A unit is named in full ("model.layers.0.qkv"), without the
 * prefix that all units share ("0.qkv"), or by a pattern ("*.down"). */
#pragma once

#include "ptq/plan/engines.h"
#include "ptq/plan/limits.h"
#include "ptq/plan/pool.h"

typedef struct calm_word {
    const char *said;                  /* as the user typed it, for messages and the store              */
    const char *means;                 /* with a chain in its canonical text; may be `said`             */
} calm_word;

typedef struct calm_pin {
    const char *unit;                  /* name or pattern of units                                      */
    calm_word candidate;               /* names the entries that these units may have                   */
    int round;                         /* 0: from the recipe; 1, 2 ...: from later selections.  If several rounds pin
                                        * one unit, the last round wins                                 */
} calm_pin;

typedef struct calm_requests {
    const calm_word *forbid;           /* [n_forbid]                                                    */
    size_t n_forbid;
    const calm_pin *pins;              /* [n_pins] sorted by round                                      */
    size_t n_pins;
    double budget;                     /* bits per weight; NaN: no budget; infinity: the size of the pool's file */
    double act_budget;                 /* mean bits of activations; 0: no budget                        */
    const calm_engine *engine;         /* engine that must run the plan; NULL: any                      */
    const char *format;                /* format that the engine reads; NULL: its first                 */
    calm_tie tie;                      /* jobs that the written format ties to one scheme               */
} calm_requests;

/* The entries that requests leave for each unit; all memory is in ctx->out. */
typedef struct calm_scope {
    bool *allowed;                     /* [n_units][n_entries] neither forbidden nor excluded by a pin   */
    const calm_pin **pin;              /* [n_units] the pin in force; NULL: none                         */
    calm_limits limits;                /* schemes that the engine runs, by unit                          */
} calm_scope;

/* Computes the scope of requests over an indexed pool.  If the pool is not numbered, words like "#123" are not checked.
 * CALM_EARG: a word names no entry (the message has the nearest name); a pin names no unit; two pins of one round and
 * one kind (exact name or pattern) disagree; forbidden entries or the engine leave nothing for a unit.  CALM_ENUMERIC:
 * the candidates that a pin names failed. */
calm_status calm_scope_open(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_scope *out);

/* Returns true and sets *entry if the unit's pin leaves exactly one entry. */
bool calm_scope_only_entry(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t *entry);

/* Returns true if the unit is pinned and its pin allows this entry. */
bool calm_scope_pins(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t entry);

/* Sets marks[i] for each of the entries [n] to whether the word names it; not for "#123", which belongs to one unit.
 * `key` is the option's name for the message.  CALM_EARG: no entry; the message has the nearest name and all names. */
calm_status calm_word_entries(calm_ctx *ctx, const calm_pool_entry *entries, size_t n, const char *key,
                              const calm_word *word, bool *marks);

/* How a pin's unit, a name or a pattern, matches a unit; a match by name wins over a match by pattern. */
typedef enum calm_pin_fit { CALM_FITS_NOT, CALM_FITS_PATTERN, CALM_FITS_NAME } calm_pin_fit;
calm_pin_fit calm_pin_fits(const char *pin, const char *unit);

/* Returns true if the word is like "#123". */
bool calm_word_is_number(const calm_word *word);

/* Returns a unit's name without the prefix that all units share: "0.qkv" for "model.layers.0.qkv". */
const char *calm_unit_short_name(const char *unit);
