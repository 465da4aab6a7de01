/* Mixes of types, from mixes.def. */
#include "ptq/quant/mix.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum {
    CALM_MIX_NONE, CALM_MIX_ALL, CALM_MIX_FIRST_2, CALM_MIX_FIRST_4, CALM_MIX_SIXTEENTH, CALM_MIX_EIGHTH, CALM_MIX_MORE,
    CALM_MIX_SHARED
};

/* The type of a matrix in certain blocks. */
typedef struct mix_rule {
    int blocks, type;
} mix_rule;

#define RULES 2    /* maximum rules per matrix */

typedef struct row {
    const char *name;
    int type;
    mix_rule v[RULES], o[RULES], down[RULES];
    int head, experts;
} row;

static const row rows[] = {
#define CALM_MIX(id, name, ...) {CALM_MIX_PREFIX name, __VA_ARGS__},
#include "ptq/quant/mixes.def"
#undef CALM_MIX
};
#define N_ROWS (sizeof rows / sizeof *rows)

/* Returns whether the most sensitive matrices of a block have more bits. */
static bool has_more(size_t block, size_t n)
{
    return block < n / 8 || block >= 7 * n / 8 || (block - n / 8) % 3 == 2;
}

static bool applies(const mix_rule *rule, const calm_place *place)
{
    const size_t block = place->block, n = place->n_blocks;
    const bool all[] = {[CALM_MIX_NONE] = false,          [CALM_MIX_ALL] = true,
                        [CALM_MIX_FIRST_2] = block < 2,   [CALM_MIX_FIRST_4] = block < 4,
                        [CALM_MIX_SIXTEENTH] = block < n / 16, [CALM_MIX_EIGHTH] = block < n / 8,
                        [CALM_MIX_MORE] = has_more(block, n), [CALM_MIX_SHARED] = place->sharing >= 4};
    return all[rule->blocks];
}

const char *calm_mix_at(size_t number)
{
    assert(number < N_ROWS);
    return rows[number].name;
}

const char *calm_mix_names(void)
{
    static const char names[] =
#define CALM_MIX(id, ...) "|" #id
#include "ptq/quant/mixes.def"
#undef CALM_MIX
        ;
    return names + 1;
}

const char *calm_mix_called(const char *type)
{
    for (size_t i = 0; i < N_ROWS; i++)
        if (strcasecmp(rows[i].name + strlen(CALM_MIX_PREFIX), type) == 0)
            return rows[i].name;
    return NULL;
}

static const row *row_of(const calm_scheme *scheme)
{
    assert(scheme->mix > 0 && (size_t)scheme->mix <= N_ROWS);
    return &rows[scheme->mix - 1];
}

#define LARGE_BLOCKS 80    /* blocks of the models whose v is small relative to the other matrices */

static int type_of(const row *mix, const calm_place *place)
{
    if (place->expert && mix->experts)
        return mix->experts;
    const mix_rule *rules = place->role == CALM_PLACE_V      ? mix->v
                        : place->role == CALM_PLACE_O    ? mix->o
                        : place->role == CALM_PLACE_DOWN ? mix->down
                                                         : NULL;
    int type = place->role == CALM_PLACE_HEAD ? mix->head : mix->type;
    for (size_t i = 0; rules && i < RULES; i++)
        if (applies(&rules[i], place)) {
            type = rules[i].type;
            break;
        }
    const bool raised = place->role == CALM_PLACE_V && place->n_blocks == LARGE_BLOCKS;
    return raised && (type == CALM_FAMILY_Q3_K || type == CALM_FAMILY_Q4_K) ? CALM_FAMILY_Q5_K : type;
}

calm_scheme calm_scheme_at(const calm_scheme *scheme, const calm_place *place)
{
    return scheme->mix ? calm_scheme_of_type(type_of(row_of(scheme), place)) : *scheme;
}

bool calm_mix_splits(const calm_scheme *scheme)
{
    return scheme->mix && row_of(scheme)->v[0].blocks != CALM_MIX_NONE;
}

calm_scheme calm_mix_largest(const calm_scheme *scheme)
{
    calm_scheme out = *scheme;
    if (!scheme->mix)
        return out;
    const row *mix = row_of(scheme);
    out = calm_scheme_of_type(mix->type);
    const mix_rule experts = {mix->experts ? CALM_MIX_ALL : CALM_MIX_NONE, mix->experts};
    for (size_t i = 0; i <= 3 * RULES; i++) {
        const mix_rule *rule = i < RULES       ? &mix->v[i]
                               : i < 2 * RULES ? &mix->o[i - RULES]
                               : i < 3 * RULES ? &mix->down[i - 2 * RULES]
                                               : &experts;
        const calm_scheme type = rule->blocks ? calm_scheme_of_type(rule->type) : out;
        /* A minimum takes as many bits as a scale. */
        if (type.group << !calm_scheme_has_mins(&type) < out.group << !calm_scheme_has_mins(&out))
            out = type;
    }
    return out;
}

bool calm_mix_find(const char *name, calm_scheme *out)
{
    for (size_t i = 0; i < N_ROWS; i++) {
        if (strcmp(name, rows[i].name) != 0)
            continue;
        *out = calm_scheme_of_type(rows[i].type);
        out->mix = (int)i + 1;
        return true;
    }
    return false;
}

bool calm_mix_name(const calm_scheme *scheme, char name[CALM_SCHEME_NAME_MAX])
{
    if (scheme->mix)
        snprintf(name, CALM_SCHEME_NAME_MAX, "%s", row_of(scheme)->name);
    return scheme->mix;
}
