/* Choices from a pool. */
#include "ptq/plan/solve.h"

#include <math.h>
#include <string.h>

#include "ptq/base/message.h"
#include "ptq/base/scope.h"

#define BUDGET     "`choice.budget`"
#define ACT_BUDGET "`choice.act_budget`"

/* More bits per weight than any scheme has, with one scale per weight: a budget that limits nothing. */
#define WIDEST 64.0

/* ---- one unit ---- */

/* The entries from which one is chosen for a unit. */
typedef struct contest {
    calm_contender *contenders;        /* [n]                                                        */
    size_t *entries;                   /* [n] entry of the pool                                      */
    size_t n;
    size_t alive, scored;              /* number that did not fail; of these, number with the score  */
} contest;

/* Fails if a candidate lacks the score because the run did not measure it: it must not lose for that reason. */
static calm_status check_scored(calm_ctx *ctx, const calm_pool *pool, size_t unit, const contest *c)
{
    /* Except experts: without a routed scoring token an expert has no score. */
    for (size_t i = 0; i < c->n && pool->every && c->n > 1 && !calm_pool_is_expert(pool, unit); i++)
        if (!c->contenders[i].failure && isnan(c->contenders[i].metric))
            return calm_fail(ctx, CALM_EARG, "%s: %s has no %s of a %s in the store; %s", calm_pool_unit(pool, unit),
                             c->contenders[i].entry_name, pool->metric, calm_unit_name(pool->unit), pool->remedy);
    return CALM_OK;
}

static calm_status open_contest(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit,
                                size_t scheme, contest *out)
{
    /* The score of a unit is stored with each of its jobs, and read from the first. */
    *out = (contest){0};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->contenders, pool->n_entries));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->entries, pool->n_entries));
    for (size_t i = 0; i < pool->n_entries; i++) {
        if (!scope->allowed[unit * pool->n_entries + i] ||
            (scheme != CALM_ANY_SCHEME && pool->entries[i].of_scheme != scheme))
            continue;
        const calm_pool_cell *cell = calm_pool_cell_at(pool, pool->unit_begin[unit], i);
        const char *failure = calm_pool_failure(pool, unit, i);
        out->contenders[out->n] =
            (calm_contender){pool->entries[i].name, failure, cell->metric, cell->tie};
        out->entries[out->n++] = i;
        out->alive += !failure;
        out->scored += !failure && !isnan(cell->metric);
    }
    return check_scored(ctx, pool, unit, out);
}

/* Finds the winner among the contenders. */
static calm_status judge(calm_ctx *ctx, const calm_pool *pool, size_t unit, const contest *c, size_t *winner,
                         char **reason)
{
    *winner = 0;
    if (c->alive && c->n == 1)
        return calm_strf(ctx, ctx->out, reason, "the only candidate");
    /* Without scores the recipe's order decides, the user's preference. */
    if (c->alive && !c->scored && calm_pool_is_expert(pool, unit)) {
        while (c->contenders[*winner].failure)
            ++*winner;
        return calm_strf(ctx, ctx->out, reason,
                         "too few scoring tokens were routed to this expert to compare: the first of the list");
    }
    if (c->alive && !c->scored)
        return calm_fail(ctx, CALM_EARG, "%s: no candidate has a %s; %s", calm_pool_unit(pool, unit), pool->metric,
                         pool->remedy);
    return calm_choose(ctx, pool->rule, pool->shortlist, pool->metric, c->contenders, c->n, winner, reason);
}

calm_status calm_solve_unit(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit, size_t scheme,
                            size_t *entry, const char **reason)
{
    /* `text` is in ctx->out, so the scratch memory can be freed: a pool has thousands of units. */
    CALM_SCOPED_SCRATCH(ctx);
    contest c;
    size_t winner;
    char *text;
    if (calm_scope_only_entry(pool, scope, unit, entry) && !calm_pool_failure(pool, unit, *entry) &&
        (scheme == CALM_ANY_SCHEME || pool->entries[*entry].of_scheme == scheme)) {
        *reason = scope->pin[unit]->round ? "pinned" : "pinned by the recipe";
        return CALM_OK;
    }
    CALM_TRY(open_contest(ctx, pool, scope, unit, scheme, &c));
    CALM_TRY(judge(ctx, pool, unit, &c, &winner, &text));
    *entry = c.entries[winner];
    *reason = text;
    return CALM_OK;
}

/* Adds the unit's name to a numerical failure. */
static calm_status name_unit(calm_ctx *ctx, const calm_pool *pool, size_t unit, calm_status status)
{
    return status == CALM_ENUMERIC ? calm_fail_prefix(ctx, "%s", calm_pool_unit(pool, unit)) : status;
}

/* Returns the reason of a choice with its pin: a pin to one entry is the reason; a pin to several is added to it. */
static calm_status add_pin(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit, const char *rule,
                           const char **out)
{
    const calm_pin *pin = scope->pin[unit];
    size_t entry;
    char *text;
    const bool settled = calm_scope_only_entry(pool, scope, unit, &entry);
    *out = settled && pin->round ? "pinned" : rule;
    if (!pin || settled)
        return CALM_OK;
    CALM_TRY(calm_strf(ctx, ctx->out, &text, "pinned%s; %s", pin->round ? "" : " by the recipe", rule));
    *out = text;
    return CALM_OK;
}

/* ---- a solution ---- */

static calm_status new_solution(calm_ctx *ctx, const calm_pool *pool, calm_solution *out)
{
    *out = (calm_solution){.bits_per_weight = NAN};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->choice, pool->n_units));
    return CALM_NEW(ctx, ctx->out, out->reasons, pool->n_units);
}

/* Returns the bits of a unit in the pool's file, at a scheme of the pool. */
static uint64_t file_bits(const calm_pool *pool, size_t unit, size_t scheme)
{
    uint64_t bits = 0;
    for (size_t job = pool->unit_begin[unit]; job < pool->unit_begin[unit + 1]; job++)
        bits += pool->file->bits[job * pool->n_schemes + scheme];
    return bits;
}

/* Returns the whole bits of a unit, which a budget counts. */
static uint64_t unit_bits(const calm_pool *pool, size_t unit, size_t of_scheme)
{
    const calm_scheme *scheme = &pool->schemes[of_scheme];
    /* Formats store more bits than schemes have: rows of whole words, repeated scales, a wider type. */
    if (pool->file)
        return file_bits(pool, unit, of_scheme);
    return (uint64_t)llround(calm_pool_bits(pool, pool->unit_begin[unit], pool->unit_begin[unit + 1], scheme));
}

/* Returns a unit's bits of activations, summed over weights, because each weight is multiplied by one activation. */
static uint64_t unit_act_bits(const calm_pool *pool, size_t unit, size_t of_scheme)
{
    return (uint64_t)calm_scheme_input_bits(&pool->schemes[of_scheme]) *
           (uint64_t)calm_pool_weights(pool, pool->unit_begin[unit], pool->unit_begin[unit + 1]);
}

/* Sets bits per weight from exact sums; a budget counts whole bits of each unit, so both differ by the rounding per
 * unit. */
static void add_bits(const calm_pool *pool, calm_solution *out)
{
    double bits = 0;
    for (size_t u = 0; u < pool->n_units; u++) {
        const calm_pool_entry *entry = &pool->entries[out->choice[u]];
        bits += calm_pool_bits(pool, pool->unit_begin[u], pool->unit_begin[u + 1], &entry->scheme);
        out->bits += unit_bits(pool, u, entry->of_scheme);
        out->act_bits += unit_act_bits(pool, u, entry->of_scheme);
    }
    out->mean_act_bits = (double)out->act_bits / calm_pool_weights(pool, 0, pool->n_jobs);
    out->bits_per_weight = bits / calm_pool_weights(pool, 0, pool->n_jobs);
}

static calm_status solve_units(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, calm_solution *out)
{
    for (size_t u = 0; u < pool->n_units; u++) {
        const char *reason;
        CALM_TRY(name_unit(ctx, pool, u,
                           calm_solve_unit(ctx, pool, scope, u, CALM_ANY_SCHEME, &out->choice[u], &reason)));
        CALM_TRY(add_pin(ctx, pool, scope, u, reason, &out->reasons[u]));
    }
    return CALM_OK;
}

/* ---- a budget ---- */

/* Returns true if the unit has a score; an expert without a routed scoring token has none of any entry. */
static bool has_scores(const calm_pool *pool, const calm_scope *scope, size_t unit)
{
    bool any = false;
    for (size_t i = 0; i < pool->n_entries; i++)
        any |= scope->allowed[unit * pool->n_entries + i] &&
               isfinite(calm_pool_cell_at(pool, pool->unit_begin[unit], i)->metric);
    return any;
}

/* Returns true if a plan may have the entry for the unit.  An infinite score means a constant output, which no saved
 * bits justify.  NaN loses if others have scores, as without a budget.  A pin's only entry is allowed whatever its
 * score. */
static bool can_be_had(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t entry, bool scored)
{
    const double metric = calm_pool_cell_at(pool, pool->unit_begin[unit], entry)->metric;
    size_t only;
    if (calm_pool_failure(pool, unit, entry))
        return false;
    return isfinite(metric) || (isnan(metric) && !scored) || calm_scope_only_entry(pool, scope, unit, &only);
}

/* Lists the best entry of each scheme that the unit may have. */
static calm_status list_options(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit,
                                calm_unit_options *out)
{
    const bool scored = has_scores(pool, scope, unit);
    CALM_TRY(calm_unit_options_new(ctx, pool->n_schemes, out));
    out->set = scope->limits.set ? scope->limits.set[unit] : unit;
    for (size_t s = 0; s < pool->n_schemes; s++) {
        bool any = false;
        calm_unit_option option = {.scheme = s, .held = !calm_limits_allow(&scope->limits, unit, s),
                                   .weight = {.cost = unit_bits(pool, unit, s),
                                              .second = unit_act_bits(pool, unit, s)}};
        for (size_t i = 0; i < pool->n_entries; i++)
            any |= pool->entries[i].of_scheme == s && scope->allowed[unit * pool->n_entries + i];
        if (!any)
            continue;
        /* Within a scheme the rule chooses the algorithm, as without a budget. */
        const calm_status status = calm_solve_unit(ctx, pool, scope, unit, s, &option.entry, &option.reason);
        if (status == CALM_ENUMERIC) {    /* every candidate of this scheme failed; other schemes remain */
            calm_ctx_clear_failure(ctx);
            continue;
        }
        CALM_TRY(status);
        /* The rule accepts a scheme's only candidate whatever its score. */
        if (can_be_had(pool, scope, unit, option.entry, scored))
            calm_unit_options_add(out, option);
    }
    return out->n ? CALM_OK : calm_fail(ctx, CALM_ENUMERIC, "%s: every candidate of every width failed",
                                        calm_pool_unit(pool, unit));
}

static calm_status list_all_options(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope,
                                    calm_unit_options **out)
{
    CALM_TRY(CALM_NEW(ctx, ctx->out, *out, pool->n_units));
    for (size_t u = 0; u < pool->n_units; u++)
        CALM_TRY(list_options(ctx, pool, scope, u, &(*out)[u]));
    return CALM_OK;
}

calm_status calm_solve_narrowest(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t **entries)
{
    calm_unit_options *units;
    CALM_TRY(list_all_options(ctx, pool, scope, &units));
    CALM_TRY(CALM_NEW(ctx, ctx->out, *entries, pool->n_units));
    for (size_t u = 0; u < pool->n_units; u++)
        (*entries)[u] = units[u].of[0].entry;
    return CALM_OK;
}

/* Returns a score as a loss that can be added and scaled. */
static double loss_of(const calm_pool *pool, size_t unit, size_t entry)
{
    return calm_score_loss(pool->metric, calm_pool_cell_at(pool, pool->unit_begin[unit], entry)->metric);
}

/* Returns probe / score of the unit's narrowest probed option, else of any entry; NaN: nothing was probed. */
static double kappa_of(const calm_pool *pool, size_t unit, const calm_unit_options *options)
{
    /* Options are sorted by bits, so the first probed one is the narrowest, with the largest KL and the least relative
     * noise. */
    const size_t job = pool->unit_begin[unit];
    for (size_t i = 0; i < options->n; i++) {
        const calm_pool_cell *cell = calm_pool_cell_at(pool, job, options->of[i].entry);
        if (isfinite(cell->probe) && isfinite(cell->metric))
            return calm_unit_kappa(cell->probe, loss_of(pool, unit, options->of[i].entry));
    }
    for (size_t i = 0; i < pool->n_entries; i++) {
        const calm_pool_cell *cell = calm_pool_cell_at(pool, job, i);
        const double loss = loss_of(pool, unit, i);
        if (cell->id && isfinite(cell->probe) && isfinite(loss) && loss > 0)
            return calm_unit_kappa(cell->probe, loss);
    }
    return NAN;
}

/* Sets the losses of all options.  Predicted KL is used only if every unit with scores has a probe, because KL and
 * scores cannot be added; otherwise a score is weighted by its unit's share of the weights.  A unit without scores (an
 * expert without a scoring token) has loss 0, and so gets its narrowest option. */
static void set_losses(const calm_pool *pool, calm_unit_options *units, calm_solution *out)
{
    const double weights = calm_pool_weights(pool, 0, pool->n_jobs);
    for (size_t u = 0; u < pool->n_units; u++)
        out->unprobed += isnan(kappa_of(pool, u, &units[u])) &&
                         isfinite(calm_pool_cell_at(pool, pool->unit_begin[u], units[u].of[0].entry)->metric);
    for (size_t u = 0; u < pool->n_units; u++) {
        const double kappa = kappa_of(pool, u, &units[u]);
        const double share = calm_pool_weights(pool, pool->unit_begin[u], pool->unit_begin[u + 1]) / weights;
        /* If all units are probed, a unit without kappa is an expert without a scoring token. */
        const double factor = out->unprobed ? share : isnan(kappa) ? 0 : kappa;
        for (size_t i = 0; i < units[u].n; i++) {
            calm_unit_option *option = &units[u].of[i];
            const double loss = factor * loss_of(pool, u, option->entry);
            /* Not finite: a unit without scores, or a pin's only entry, which every plan has. */
            option->weight.loss = isfinite(loss) ? loss : 0;
        }
    }
}

/* Returns the bits that a table leaves for the jobs in the pool's file. */
static uint64_t left_by(const calm_pool_file *file, size_t table)
{
    const uint64_t bits = file->tables[table].bits;
    return file->limit > bits ? file->limit - bits : 0;
}

uint64_t calm_budget_bits(const calm_pool *pool, double budget)
{
    if (isinf(budget))
        return pool->file ? left_by(pool->file, pool->file->table % pool->file->n_tables) : CALM_NO_LIMIT;
    /* Rounded to the nearest bit: 4.125 bits times a number of weights may be slightly below a whole number. */
    return (uint64_t)floor(budget * calm_pool_weights(pool, 0, pool->n_jobs) + 0.5);
}

/* Returns the bits of a unit that a budget counts: of its weights, or of its activations. */
typedef uint64_t counted(const calm_pool *pool, size_t unit, size_t scheme);

/* Computes the least bits of a unit's usable entries, and the most bits of its allowed entries, failed or not. */
static void unit_reach(const calm_pool *pool, const calm_scope *scope, size_t unit, counted *count, uint64_t *least,
                       uint64_t *most)
{
    const bool scored = has_scores(pool, scope, unit);
    /* All entries of a scheme have the same bits. */
    *least = UINT64_MAX;
    *most = 0;
    for (size_t i = 0; i < pool->n_entries; i++) {
        const calm_pool_entry *entry = &pool->entries[i];
        const uint64_t bits = count(pool, unit, entry->of_scheme);
        if (!scope->allowed[unit * pool->n_entries + i] || !calm_limits_allow(&scope->limits, unit, entry->of_scheme))
            continue;
        *most = bits > *most ? bits : *most;
        /* Failed entries count for the maximum: a budget that they would have used up is not out of reach. */
        if (bits < *least && can_be_had(pool, scope, unit, i, scored))
            *least = bits;
    }
}

/* Computes the least and the most bits of all plans. */
static void pool_reach(const calm_pool *pool, const calm_scope *scope, counted *count, uint64_t *least, uint64_t *most)
{
    *least = *most = 0;
    for (size_t u = 0; u < pool->n_units; u++) {
        uint64_t low, high;
        unit_reach(pool, scope, u, count, &low, &high);
        *least += low == UINT64_MAX ? 0 : low;    /* all failed: the allocation reports it */
        *most += high;
    }
}

/* Fails if a budget is below the smallest or above the largest plan; `key` and `what` are for the message. */
static calm_status check_reach(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget,
                               counted *count, const char *key, const char *what)
{
    const double weights = calm_pool_weights(pool, 0, pool->n_jobs);
    const uint64_t bits = calm_budget_bits(pool, budget);
    uint64_t least, most;
    pool_reach(pool, scope, count, &least, &most);
    if (bits >= least && bits <= most)
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "%s %g: the given schemes take from %.4f to %.4f bits per %s%s%s", key,
                     budget, (double)least / weights, (double)most / weights, what, scope->limits.takes ? " for " : "",
                     scope->limits.takes ? scope->limits.asks : "");
}

/* Does the same for the size of the pool's file, with the smallest and the largest of its tables. */
static calm_status check_file(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope)
{
    const calm_pool_file *file = pool->file;
    uint64_t least, most, small = UINT64_MAX, large = 0;
    /* If the table is fixed, only its size counts. */
    pool_reach(pool, scope, unit_bits, &least, &most);
    for (size_t t = 0; t < file->n_tables; t++)
        if (file->table == file->n_tables || file->table == t) {
            small = file->tables[t].bits < small ? file->tables[t].bits : small;
            large = file->tables[t].bits > large ? file->tables[t].bits : large;
        }
    if (file->limit >= least + small && (file->taken || file->limit <= most + large))
        return CALM_OK;
    return calm_fail(ctx, CALM_EARG, "%s: files of the given schemes take from %.*f to %.*f %s%s%s; "
                     "give a size between them, or other schemes", file->asked,
                     file->unit < 16 ? 0 : 4, (double)(least + small) / file->unit, file->unit < 16 ? 0 : 4,
                     (double)(most + large) / file->unit, file->what, scope->limits.takes ? " for " : "",
                     scope->limits.takes ? scope->limits.asks : "");
}

calm_status calm_budget_check(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget)
{
    if (isinf(budget))
        return pool->file ? check_file(ctx, pool, scope) : CALM_OK;
    return check_reach(ctx, pool, scope, budget, unit_bits, BUDGET, "weight");
}

calm_status calm_act_budget_check(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, double budget)
{
    return budget > 0 ? check_reach(ctx, pool, scope, budget, unit_act_bits, ACT_BUDGET, "activation") : CALM_OK;
}

/* Computes the best plan within the bits.  If a file's size is the limit, each table leaves other bits for the jobs;
 * the table with the least sum of both losses is chosen. */
static calm_status allocate_beside(calm_ctx *ctx, const calm_pool *pool, const calm_unit_options *units,
                                   const uint64_t bits[2], size_t *picked, calm_solution *out)
{
    const calm_pool_file *file = pool->file;
    double best = INFINITY;
    size_t *trial;
    if (!file || bits[0] == CALM_NO_LIMIT || file->table < file->n_tables) {
        out->table = file ? file->table : 0;
        return calm_allocate(ctx, units, pool->n_units, bits, picked, &out->total);
    }
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, trial, pool->n_units));
    for (size_t t = 0; t < file->n_tables; t++) {
        const uint64_t within[2] = {left_by(file, t), bits[1]};
        calm_allocation total;
        const calm_status status = calm_allocate(ctx, units, pool->n_units, within, trial, &total);
        /* A table that is too large leaves the others; if none is left, the last failure is reported. */
        if (status == CALM_EARG && (t + 1 < file->n_tables || isfinite(best))) {
            calm_ctx_clear_failure(ctx);
            continue;
        }
        CALM_TRY(status);
        /* Without probes losses are not KL: the first table, the usual one, is chosen. */
        const double loss = out->unprobed ? (double)t : total.loss + file->tables[t].loss;
        if (loss >= best)
            continue;
        best = loss;
        out->table = t;
        out->total = total;
        memcpy(picked, trial, pool->n_units * sizeof *picked);
    }
    return CALM_OK;
}

static calm_status allocate(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests,
                            const calm_scope *scope, calm_solution *out)
{
    const double budget = isnan(requests->budget) ? WIDEST : requests->budget;
    const uint64_t bits[2] = {calm_budget_bits(pool, budget), requests->act_budget > 0
                                  ? calm_budget_bits(pool, requests->act_budget) : CALM_NO_LIMIT};
    calm_unit_options *units;
    size_t *picked;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, picked, pool->n_units));
    CALM_TRY(list_all_options(ctx, pool, scope, &units));
    if (!isnan(requests->budget))
        CALM_TRY(calm_budget_check(ctx, pool, scope, budget));
    CALM_TRY(calm_act_budget_check(ctx, pool, scope, requests->act_budget));
    set_losses(pool, units, out);
    const calm_status status = allocate_beside(ctx, pool, units, bits, picked, out);
    if (status == CALM_EARG && requests->act_budget > 0)
        return calm_fail_prefix(ctx, BUDGET " %g and " ACT_BUDGET " %g", budget, requests->act_budget);
    CALM_TRY(status);
    /* Without a budget the capacity exceeds every plan, and the knapsack only gives tied units one scheme. */
    const char *loss = out->unprobed ? "score by share of weights"
                       : pool->gradient ? "predicted KL (gradients)" : "predicted KL";
    for (size_t u = 0; u < pool->n_units; u++) {
        const calm_unit_option *options = units[u].of, *taken = &options[picked[u]];
        char *reason;
        out->choice[u] = taken->entry;
        CALM_TRY(calm_strf(ctx, ctx->out, &reason, "%s %.2e of %.2e at the narrowest width; there: %s", loss,
                           taken->weight.loss, options[0].weight.loss, taken->reason));
        CALM_TRY(add_pin(ctx, pool, scope, u, reason, &out->reasons[u]));
    }
    if (!scope->limits.takes)
        return CALM_OK;
    return calm_limits_cost(ctx, &scope->limits, out->total.held, loss, out->total.loss, out->total.unconstrained,
                            &out->cost);
}

/* ---- the solution ---- */

calm_status calm_solve(calm_ctx *ctx, const calm_pool *pool, const calm_requests *requests, calm_solution *out)
{
    calm_scope scope;
    CALM_TRY(new_solution(ctx, pool, out));
    CALM_TRY(calm_scope_open(ctx, pool, requests, &scope));
    /* A set of units needs losses that can be added. */
    if (!isnan(requests->budget) || requests->act_budget > 0 || (scope.limits.takes && pool->n_schemes > 1)) {
        CALM_TRY(allocate(ctx, pool, requests, &scope, out));
    } else {
        CALM_TRY(solve_units(ctx, pool, &scope, out));
        if (scope.limits.takes)
            CALM_TRY(calm_limits_cost(ctx, &scope.limits, 0, "", 0, 0, &out->cost));
    }
    add_bits(pool, out);
    return CALM_OK;
}

/* Returns a pinned unit's entry in a uniform plan: the plan's entry if the pin allows it, else an allowed entry of the
 * same scheme, else the first allowed entry. */
static size_t pinned_uniform(const calm_pool *pool, const calm_scope *scope, size_t unit, size_t entry)
{
    const bool *allowed = scope->allowed + unit * pool->n_entries;
    size_t of_scheme = SIZE_MAX, first = SIZE_MAX;
    /* Backwards, so that the first matching entry of the pool remains. */
    for (size_t i = pool->n_entries; i-- > 0;)
        if (allowed[i]) {
            first = i;
            of_scheme = pool->entries[i].of_scheme == pool->entries[entry].of_scheme ? i : of_scheme;
        }
    return allowed[entry] ? entry : of_scheme != SIZE_MAX ? of_scheme : first;
}

/* Finds the entry of a unit in which the uniform plan's entry failed: the rule's choice at that scheme, else the failed
 * entry. */
static calm_status find_substitute(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t unit,
                                   size_t entry, size_t *out)
{
    const char *reason;
    const calm_status status =
        calm_solve_unit(ctx, pool, scope, unit, pool->entries[entry].of_scheme, out, &reason);
    if (status == CALM_ENUMERIC) {
        calm_ctx_clear_failure(ctx);
        *out = entry;
    }
    return status == CALM_ENUMERIC ? CALM_OK : status;
}

/* Replaces failed entries of a uniform plan, because the guard needs the plan as a baseline, and one matrix that is not
 * positive definite should not remove it. */
static calm_status substitute(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t entry,
                              calm_solution *out)
{
    size_t n = 0, n_own = 0, first = SIZE_MAX;
    for (size_t u = 0; u < pool->n_units; u++)
        n_own += !scope->pin[u] && !calm_pool_failure(pool, u, entry);
    /* If the entry failed in every unit, another plan would have its name. */
    for (size_t u = 0; u < pool->n_units && n_own; u++) {
        if (scope->pin[u] || !calm_pool_failure(pool, u, entry))
            continue;
        CALM_TRY(find_substitute(ctx, pool, scope, u, entry, &out->choice[u]));
        if (out->choice[u] == entry)
            continue;
        out->reasons[u] = calm_pool_failure(pool, u, entry);
        first = n++ ? first : u;
    }
    if (!n)
        return CALM_OK;
    return calm_strf(ctx, ctx->out, &out->substituted, "no candidate in %zu of %zu units%s %s (%s), there %s", n,
                     pool->n_units, n > 1 ? ", first" : ":", calm_pool_unit(pool, first), out->reasons[first],
                     pool->entries[out->choice[first]].name);
}

calm_status calm_solve_uniform(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t entry,
                               calm_solution *out)
{
    CALM_TRY(new_solution(ctx, pool, out));
    for (size_t u = 0; u < pool->n_units; u++) {
        out->choice[u] = scope->pin[u] ? pinned_uniform(pool, scope, u, entry) : entry;
        out->reasons[u] = "the same everywhere";
    }
    CALM_TRY(substitute(ctx, pool, scope, entry, out));
    add_bits(pool, out);
    return CALM_OK;
}

calm_status calm_solve_scheme(calm_ctx *ctx, const calm_pool *pool, const calm_scope *scope, size_t scheme,
                              calm_solution *out)
{
    CALM_TRY(new_solution(ctx, pool, out));
    for (size_t u = 0; u < pool->n_units; u++)
        CALM_TRY(name_unit(ctx, pool, u, calm_solve_unit(ctx, pool, scope, u, scope->pin[u] ? CALM_ANY_SCHEME : scheme,
                                                         &out->choice[u], &out->reasons[u])));
    add_bits(pool, out);
    return CALM_OK;
}
