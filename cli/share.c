/* Units that share bits: options, losses, the best plan - and the best legal one, where units of a set go together. */
#include <math.h>

#include "cli/solve.h"

calm_status calm_share_new(calm_ctx *ctx, size_t room, calm_share *out)
{
    *out = (calm_share){0};
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->entries, room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->reasons, room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->schemes, room));
    CALM_TRY(CALM_NEW(ctx, ctx->out, out->held, room));
    return CALM_NEW(ctx, ctx->out, out->options, room);
}

void calm_share_add(calm_share *share, size_t entry, size_t scheme, bool held, char *reason, double bits)
{
    const uint64_t cost = (uint64_t)llround(bits);
    size_t at = share->n++;
    for (; at && share->options[at - 1].cost > cost; at--) {
        share->options[at] = share->options[at - 1];
        share->entries[at] = share->entries[at - 1];
        share->reasons[at] = share->reasons[at - 1];
        share->schemes[at] = share->schemes[at - 1];
        share->held[at] = share->held[at - 1];
    }
    share->options[at].cost = cost;
    share->entries[at] = entry;
    share->reasons[at] = reason;
    share->schemes[at] = scheme;
    share->held[at] = held;
}

double calm_share_kappa(double probe, double score)
{
    return score > 0 && isfinite(probe) ? fmax(probe, 0) / score : 0;
}

void calm_share_lose(calm_share *share, double factor, const double *scores)
{
    for (size_t i = 0; i < share->n; i++) {
        const double loss = factor * scores[i];
        share->options[i].loss = isfinite(loss) ? loss : 0;
    }
}

/* ---- the best plan ---- */

static calm_status fill_free(calm_ctx *ctx, const calm_share *shares, size_t n, uint64_t bits, size_t *picked,
                             double *loss)
{
    calm_knapsack_unit *units;
    calm_knapsack_total total;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, units, n));
    for (size_t u = 0; u < n; u++)
        units[u] = (calm_knapsack_unit){shares[u].n, shares[u].options};
    CALM_TRY(calm_knapsack(ctx, units, n, bits, picked, &total));
    *loss = total.loss;
    return CALM_OK;
}

/* Does the target change anything? */
static bool is_constrained(const calm_share *shares, size_t n)
{
    bool any = false;
    for (size_t u = 0; u < n; u++) {
        any |= shares[u].set != u;
        for (size_t i = 0; i < shares[u].n; i++)
            any |= shares[u].held[i];
    }
    return any;
}

/* The option of a scheme that can be had, or n. */
static size_t option_of(const calm_share *share, size_t scheme)
{
    size_t i = 0;
    while (i < share->n && (share->held[i] || share->schemes[i] != scheme))
        i++;
    return i;
}

/* Sets as units of the knapsack: an option is a scheme that each of the set's units has, at what it costs and loses in all
 * of them. */
typedef struct sets {
    const calm_share *shares;
    size_t n_shares;
    calm_knapsack_unit *units;    /* [n]                                        */
    calm_knapsack_option **sums;  /* [n] the same, to write                     */
    size_t **schemes;             /* [n][] of each option                       */
    size_t *of_share;             /* [n_shares] number of its set               */
    size_t n;
} sets;

/* Add a unit to a set that exists: what the unit lacks leaves the set. */
static void add_share(sets *s, size_t u, size_t set)
{
    const calm_share *share = &s->shares[u];
    size_t kept = 0;
    for (size_t i = 0; i < s->units[set].n; i++) {
        const size_t scheme = s->schemes[set][i], option = option_of(share, scheme);
        if (option == share->n)
            continue;
        s->schemes[set][kept] = scheme;
        s->sums[set][kept] = (calm_knapsack_option){s->sums[set][i].cost + share->options[option].cost,
                                                    s->sums[set][i].loss + share->options[option].loss};
        kept++;
    }
    s->units[set].n = kept;
}

static calm_status open_set(calm_ctx *ctx, sets *s, size_t u)
{
    const calm_share *share = &s->shares[u];
    const size_t set = s->n++;
    calm_knapsack_option *sums;
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, sums, share->n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, s->schemes[set], share->n));
    s->sums[set] = sums;
    s->units[set] = (calm_knapsack_unit){0, sums};
    for (size_t i = 0; i < share->n; i++)
        if (!share->held[i]) {
            s->schemes[set][s->units[set].n] = share->schemes[i];
            sums[s->units[set].n++] = share->options[i];
        }
    s->of_share[u] = set;
    return CALM_OK;
}

static calm_status make_sets(calm_ctx *ctx, const calm_share *shares, size_t n, sets *out)
{
    *out = (sets){.shares = shares, .n_shares = n};
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->units, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->sums, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->schemes, n));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, out->of_share, n));
    for (size_t u = 0; u < n; u++) {
        if (shares[u].set == u) {
            CALM_TRY(open_set(ctx, out, u));
        } else {
            out->of_share[u] = out->of_share[shares[u].set];
            add_share(out, u, out->of_share[u]);
        }
        if (!out->units[out->of_share[u]].n)
            return calm_fail(ctx, CALM_ENUMERIC, "units that share a scheme for the target have none in common: "
                                                 "candidates of every width failed in some of them");
    }
    return CALM_OK;
}

static calm_status fill_sets(calm_ctx *ctx, const calm_share *shares, size_t n, uint64_t bits, size_t *picked,
                             double *loss)
{
    calm_knapsack_total total;
    size_t *of_set;
    sets s;
    CALM_TRY(make_sets(ctx, shares, n, &s));
    CALM_TRY(CALM_NEW(ctx, ctx->scratch, of_set, s.n));
    CALM_TRY(calm_knapsack(ctx, s.units, s.n, bits, of_set, &total));
    for (size_t u = 0; u < n; u++)
        picked[u] = option_of(&shares[u], s.schemes[s.of_share[u]][of_set[s.of_share[u]]]);
    *loss = total.loss;
    return CALM_OK;
}

calm_status calm_share_fill(calm_ctx *ctx, const calm_share *shares, size_t n, double bits, size_t *picked,
                            calm_share_total *total)
{
    const uint64_t capacity = (uint64_t)floor(bits + 0.5);
    calm_share_total found = {0};
    size_t *freely;
    if (!is_constrained(shares, n)) {
        CALM_TRY(fill_free(ctx, shares, n, capacity, picked, &found.loss));
        found.unconstrained = found.loss;
    } else {
        CALM_TRY(CALM_NEW(ctx, ctx->scratch, freely, n));
        CALM_TRY(fill_sets(ctx, shares, n, capacity, picked, &found.loss));
        CALM_TRY(fill_free(ctx, shares, n, capacity, freely, &found.unconstrained));
        for (size_t u = 0; u < n && found.loss > found.unconstrained; u++)
            found.held += picked[u] != freely[u];
    }
    if (total)
        *total = found;
    return CALM_OK;
}

calm_status calm_share_reason(calm_ctx *ctx, const calm_share *share, size_t option, const char *loss, char **out)
{
    return calm_strf(ctx, ctx->out, out, "%s %.2e of %.2e at the narrowest width; there: %s", loss,
                     share->options[option].loss, share->options[0].loss, share->reasons[option]);
}
