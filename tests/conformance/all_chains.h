/* Lists every preset, and every part in the shortest chain that contains it, for tests that loop over the
 * registries. */
#ifndef CALM_TESTS_ALL_CHAINS_H
#define CALM_TESTS_ALL_CHAINS_H

#include <stdio.h>
#include <string.h>

#include "algorithms/part.h"
#include "ptq/quant/scheme.h"
#include "tests/support/harness.h"

#define MAX_CHAINS 128

/* Returns the shortest chain that contains the part. */
static inline const char *chain_with(const calm_part *part)
{
    static const char *const forms[] = {"%s+absmax+nearest", "%s+nearest", "absmax+%s", "absmax+nearest+%s"};
    size_t before = strcspn(forms[part->kind], "%");
    return test_format("%.*s%s%s", (int)before, forms[part->kind], part->name, forms[part->kind] + before + 2);
}

/* Returns all presets and parts as chains; the list ends with NULL. */
static inline const char **all_chains(void)
{
    static const char *chains[MAX_CHAINS + 1];
    size_t n_presets, n_parts, n = 0;
    const calm_preset *presets = calm_presets(&n_presets);
    const calm_part *const *parts = calm_parts(&n_parts);
    ck_assert_uint_le(n_presets + n_parts, MAX_CHAINS);
    for (size_t i = 0; i < n_presets; i++)
        chains[n++] = presets[i].name;
    for (size_t i = 0; i < n_parts && parts[i]->kind != CALM_KIND_BLOCK; i++)    /* block learners are last */
        chains[n++] = chain_with(parts[i]);
    chains[n] = NULL;
    return chains;
}

static inline calm_status try(const char *chain, const calm_job *job, calm_qjob *qjob)
{
    calm_algorithm *algorithm;
    CALM_TRY(calm_algorithm_parse(ctx, chain, &algorithm));
    return calm_algorithm_run(ctx, algorithm, job, qjob);
}

static inline unsigned caps_of(const char *chain)
{
    calm_algorithm *algorithm;
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    return calm_algorithm_caps(algorithm);
}

static inline bool reaches(const char *chain, const char *scheme)
{
    calm_algorithm *algorithm;
    calm_scheme parsed;
    ck_ok(calm_scheme_parse(ctx, scheme, &parsed));
    ck_ok(calm_algorithm_parse(ctx, chain, &algorithm));
    calm_status status = calm_algorithm_reaches(ctx, algorithm, &parsed);
    calm_ctx_clear_failure(ctx);
    return status == CALM_OK;
}

/* Returns `rows`, or the number of rows that a fit to kept rows needs if that is larger. */
static inline size_t enough_rows(const char *chain, size_t rows, size_t in)
{
    const size_t crosses = caps_of(chain) & CALM_NEEDS_CROSS ? CALM_CROSS_ROWS_PER_INPUT : 0;
    return calm_size_max(rows, (caps_of(chain) & CALM_NEEDS_SAMPLES ? 8 : crosses) * in);
}

/* Checks that two results have the same bytes: codes, scales, minima, zeros, channel scales and bias corrections. */
static inline void check_equal(const char *what, const calm_qjob *a, const calm_qjob *b)
{
    const size_t n_scales = a->out * a->n_groups;
    ck_assert_msg(memcmp(a->codes, b->codes, a->out * a->in) == 0, "%s: codes differ", what);
    ck_assert_msg(memcmp(a->scales, b->scales, n_scales * sizeof *a->scales) == 0, "%s: scales differ", what);
    ck_assert(!a->zeros == !b->zeros && !a->in_scale == !b->in_scale && !a->bias_delta == !b->bias_delta);
    ck_assert(!a->mins == !b->mins);
    ck_assert_msg(!a->mins || memcmp(a->mins, b->mins, n_scales * sizeof *a->mins) == 0, "%s: minima differ", what);
    ck_assert_msg(!a->zeros || memcmp(a->zeros, b->zeros, n_scales) == 0, "%s: zeros differ", what);
    ck_assert(!a->in_scale || memcmp(a->in_scale, b->in_scale, a->in * sizeof *a->in_scale) == 0);
    ck_assert(!a->bias_delta || memcmp(a->bias_delta, b->bias_delta, a->out * sizeof *a->bias_delta) == 0);
    ck_assert(a->damp == b->damp);
}

/* Writes a scheme name of a row of schemes.def; `index` counts them from 0.  The first row of the table has no name
 * and is skipped.  A row with quantized activations counts twice: with them and for weights alone (a16).  Returns
 * false when `index` is past the last name. */
static inline bool name_of_row(size_t index, char name[CALM_SCHEME_NAME_MAX])
{
    for (int family = 1; family < CALM_N_FAMILIES; family++)
        for (int alone = !calm_families[family].act_bits; alone < 2; alone++)
            if (index-- == 0) {
                snprintf(name, CALM_SCHEME_NAME_MAX, "%s%s", calm_families[family].name,
                         alone && calm_families[family].act_bits ? "a16" : "");
                return true;
            }
    return false;
}

#endif
