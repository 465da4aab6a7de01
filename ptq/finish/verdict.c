/* A result in one sentence, for the first and the last lines of a report: scheme, bits, loss, what was chosen, and what
 * GPTQ alone, or plain rounding, has on the same windows. */
#include <string.h>

#include "ptq/choose/choose.h"
#include "ptq/finish/finish.h"

/* Names of the recipe's schemes. */
void calm_summary_schemes(const calm_result *r, calm_text *out)
{
    for (size_t i = 0; i < r->recipe->n_schemes; i++)
        calm_text_printf(out, "%s%s", i ? ", " : "", CALM_SCHEME_NAME(&r->recipe->schemes[i]));
}

void calm_summary_choice(const calm_result *r, calm_text *out)
{
    size_t n_units = 0, n_jobs = 0, listed = 0;
    /* Units, not jobs, were decided: one with a job that is quantized counts once. */
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

/* What the result loses on the test text. */
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

/* The run that people would have made without calm: GPTQ, else plain rounding; NULL: neither was measured, or it is the
 * result. */
static const calm_trial *baseline(const calm_result *r)
{
    static const char *const names[] = {"gptq", "rtn"};
    for (size_t n = 0; n < 2; n++)
        for (size_t i = 1; i < r->n_trials; i++)
            if (r->trials[i].id && strcmp(r->trials[i].name, names[n]) == 0)
                return strcmp(r->trials[i].key, r->trial->key) != 0 ? &r->trials[i] : NULL;
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
    calm_summary_choice(r, out);
    const calm_trial *simple = r->guard.n && r->trial && r->trial->id ? baseline(r) : NULL;
    if (simple)
        calm_text_printf(out, "; guard windows: %s %.4f, %s alone %.4f", loss, calm_measure_loss(&r->trial->measure),
                         simple->name, calm_measure_loss(&simple->measure));
    calm_text_printf(out, "\n");
}
