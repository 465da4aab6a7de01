/* A result in two lines, for the beginning and the end of a report: scheme, bits, loss, the choice, and the loss of
 * GPTQ alone, or of rounding to nearest, on the same windows. */
#include <string.h>

#include "ptq/choose/choose.h"
#include "ptq/finish/finish.h"

static bool has_entry(const calm_plan *plan, const char *name)
{
    bool found = false;
    for (size_t i = 0; i < plan->n_jobs; i++)
        found |= plan->jobs[i].entry_name && strcmp(plan->jobs[i].entry_name, name) == 0;
    return found;
}

/* Lists the schemes that the plan uses: under a budget more schemes compete. */
void calm_summary_schemes(const calm_result *r, calm_text *out)
{
    size_t n = 0;
    for (size_t i = 0; i < r->recipe->n_schemes; i++) {
        bool used = r->recipe->n_schemes == 1;
        for (size_t a = 0; a < r->recipe->n_pool && !used; a++)
            used = r->recipe->pool[a].of_scheme == i && has_entry(&r->plan, r->recipe->pool[a].name);
        if (used)
            calm_text_printf(out, "%s%s", n++ ? ", " : "", CALM_SCHEME_NAME(&r->recipe->schemes[i]));
    }
}

static void write_choice(const calm_result *r, calm_text *out)
{
    size_t n_units = 0, n_jobs = 0, listed = 0;
    /* Counts units instead of jobs: a unit with a quantized job counts once. */
    for (size_t job = 0, end; job < r->plan.n_jobs; job = end) {
        size_t begin;
        calm_layout_unit(r->layout, r->recipe->selection.unit, job, &begin, &end);
        bool quantized = false;
        for (size_t j = begin; j < end; j++)
            quantized |= r->plan.jobs[j].quantized;
        n_units += quantized;
    }
    for (size_t i = 0; i < r->plan.n_jobs; i++)
        n_jobs += r->plan.jobs[i].entry_name != NULL;
    for (size_t a = 0; a < r->recipe->n_pool; a++) {
        const char *name = r->recipe->pool[a].name;
        size_t n = 0;
        for (size_t i = 0; i < r->plan.n_jobs; i++)
            n += r->plan.jobs[i].entry_name && strcmp(r->plan.jobs[i].entry_name, name) == 0;
        if (n == n_jobs && n)
            calm_text_printf(out, "%s in all %zu units", name, n_units);
        else if (n)
            calm_text_printf(out, "%s%s %zu", listed++ ? ", " : "", name, n);
    }
    if (listed)
        calm_text_printf(out, " (%zu units)", n_units);
}

void calm_summary_result(const calm_result *r, calm_text *out)
{
    /* "learned: mkq-full in all 24 units": the choice is that of the plan before learning. */
    const char *learned = calm_trial_after(r->name);
    if (learned)
        calm_text_printf(out, "%s: ", learned + strlen(", "));
    write_choice(r, out);
}

/* Appends the loss on the evaluation's text. */
static void print_loss(const calm_result *r, calm_text *out)
{
    const calm_eval_result *result = &r->eval_result.predictions;
    if (!r->evaluates)
        return;
    if (r->encoder)
        calm_text_printf(out, ", cosine to float %.5f", r->eval_result.embeddings.cosine);
    else
        calm_text_printf(out, ", KL %.4f, perplexity %.2f -> %.2f", result->kl, r->eval_float.predictions.ppl,
                         result->ppl);
}

/* Returns the result's trial on the guard's windows; a learned result has a separate trial. */
static const calm_trial *measured(const calm_result *r)
{
    for (size_t i = 0; r->trial && i < r->n_trials; i++)
        if (strcmp(r->trials[i].name, r->name) == 0)
            return &r->trials[i];
    return r->trial;
}

/* Returns the run that users make without calm: GPTQ, else rounding to nearest; NULL: neither was measured, or it is
 * the result. */
static const calm_trial *baseline(const calm_result *r, bool learned)
{
    static const char *const names[] = {"gptq", "rtn"};
    for (size_t n = 0; n < 2; n++)
        for (size_t i = 1; i < r->n_trials; i++)
            if (r->trials[i].id && strcmp(r->trials[i].name, names[n]) == 0)
                return learned || strcmp(r->trials[i].key, r->trial->key) != 0 ? &r->trials[i] : NULL;
    return NULL;
}

void calm_summary_verdict(const calm_result *r, calm_text *out)
{
    const char *loss = r->encoder ? "1 - cosine" : "KL";
    calm_text_printf(out, "  ");
    calm_summary_schemes(r, out);
    calm_text_printf(out, ", %.3f bits per weight", r->bits_per_weight);
    print_loss(r, out);
    calm_text_printf(out, "\n  ");
    calm_summary_result(r, out);
    const calm_trial *result = measured(r), *simple = r->guard.n && result && result->id
                                               ? baseline(r, calm_trial_after(r->name)) : NULL;
    if (simple)
        calm_text_printf(out, "; guard windows: %s %.4f, %s alone %.4f", loss, calm_measure_loss(&result->measure),
                         simple->name, calm_measure_loss(&simple->measure));
    calm_text_printf(out, "\n");
}
