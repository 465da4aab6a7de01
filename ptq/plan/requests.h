/* Requests: what a user asks of a choice in addition to the rule - forbidden entries, pinned units, a budget of bits,
 * an engine - and the entries that remain for each unit of a pool.
 *
 * A word names entries: an algorithm ("gptq"), its chain, one at a scheme ("gptq w3a16_g128"), a pattern of any of
 * these ("mkq*"), or one candidate by its number ("#123").  A unit is named in full ("model.layers.0.qkv"), without
 * what all units share ("0.qkv"), or by a pattern ("*.down"). */
#pragma once

#include "ptq/plan/engines.h"
#include "ptq/plan/limits.h"
#include "ptq/plan/pool.h"

typedef struct calm_word {
    const char *said;                  /* as typed, for messages and the store                          */
    const char *means;                 /* the same with a chain in its canonical text; may be `said`    */
} calm_word;

typedef struct calm_pin {
    const char *unit;                  /* name or pattern                                               */
    calm_word candidate;               /* entries that the unit may take                                */
    int round;                         /* 0: of the recipe; 1, 2 ...: of later selections.  Of two rounds
                                        * with a pin for a unit the later one counts                    */
} calm_pin;

typedef struct calm_requests {
    const calm_word *forbid;           /* [n_forbid]                                                    */
    size_t n_forbid;
    const calm_pin *pins;              /* [n_pins] rounds rise                                          */
    size_t n_pins;
    double budget;                     /* bits per weight; NaN: none, infinity: limited by the next alone */
    double act_budget;                 /* mean bits of activations; 0: none                             */
    const calm_engine *engine;         /* engine whose kernels must take the plan; NULL: any            */
    const char *format;                /* the one it reads; NULL: its first                             */
    calm_tie tie;                      /* jobs that share a scheme in what is written                   */
} calm_requests;

/* What requests leave of a pool, unit by unit; everything in ctx->out. */
typedef struct calm_scope {
    bool *allowed;                     /* [n_units][n_entries] neither forbidden nor pinned away         */
    const calm_pin **pin;              /* [n_units] the pin that counts; NULL: none                      */
    calm_limits limits;                /* schemes that the engine takes, by unit                         */
} calm_scope;

/* Open the scope of requests over an indexed pool.  Where the pool is not numbered, numbers of candidates are not
 * judged.
 * CALM_EARG: a word that names nothing (with the nearest name); a pin of a unit that is not there; two pins of one
 * round and one kind (exact name or pattern) that disagree; a unit to which nothing is left, by forbidding or by the
 * engine. CALM_ENUMERIC: the candidates that a pin names failed. */
calm_status calm_scope_open(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_scope *out);

/* The only entry that a pin leaves to a unit; false: there is no pin, or it leaves several. */
bool calm_scope_settles(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t *entry);

/* May the unit take this entry as far as its pin goes, and is there a pin? */
bool calm_scope_pins(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t entry);

/* Mark the entries [n] that a word names: marks[i] = true for those, false for the others.  `key` is what asks, for the
 * message.  CALM_EARG: none, with the nearest name and all there are.  Not for "#123", which is of one unit. */
calm_status calm_word_entries(calm_ctx *ctx, const calm_pool_entry *entries, size_t n, const char *key,
                              const calm_word *word, bool *marks);

/* Is a pin's unit, a name or a pattern, about this one?  By its name, which counts more than by a pattern. */
typedef enum calm_pin_fit { CALM_FITS_NOT, CALM_FITS_PATTERN, CALM_FITS_NAME } calm_pin_fit;
calm_pin_fit calm_pin_fits(const char *pin, const char *unit);

/* Is it "#123"? */
bool calm_word_is_number(const calm_word *word);

/* "model.layers.0.qkv" without what all units share: "0.qkv". */
const char *calm_unit_short_name(const char *unit);
