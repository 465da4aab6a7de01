/* Routing against the rules in double, in every combination; and refusals. */
#include "ptq/layers/router.h"

#include "ptq/base/rng.h"
#include "tests/support/harness.h"

enum { EXPERTS = 12, ROWS = 200, MOST = 5 };

typedef struct fixture {
    calm_config config;
    calm_block block;
    float bias[EXPERTS], logits[ROWS * EXPERTS];
} fixture;

static void fill(fixture *f)
{
    *f = (fixture){.config.moe = {.n_experts = EXPERTS, .top_k = 3, .scale = 1, .jitter = 0.1f}};
    f->block = (calm_block){.index = 7, .config = &f->config};
    for (size_t e = 0; e < EXPERTS; e++)
        f->bias[e] = (float)(0.2 * calm_rng_normal(1, 0, e));
    for (size_t i = 0; i < ROWS * EXPERTS; i++)
        f->logits[i] = (float)calm_rng_normal(2, 0, i);
}

/* ---- the slow implementation ---- */

/* Every value below is positive, so relative errors add up in products and do not grow in sums.  They are counted in
 * units of 2^-24: one for a rounding, four for an exponential (vector.h), n for a sum of n terms, which has n - 1. */
#define UNIT 0x1p-24

/* Returns the units of exp(r - top): the difference is rounded, which changes the result by as many units as it is. */
static double units_of_exp(double top, double r)
{
    return fabs(top - r) + 4;
}

/* Computes scores and their errors.  A sigmoid is an exponential that is rounded twice more, a softmax a numerator
 * times a rounded 1 / sum. */
static void slow_scores(const calm_moe_config *moe, const float *r, double *s, double *units)
{
    double sum = 0, top = (double)r[0], of_sum = 0;
    for (size_t e = 0; e < EXPERTS; e++)
        top = fmax(top, (double)r[e]);
    for (size_t e = 0; e < EXPERTS; e++) {
        sum += exp((double)r[e]);
        of_sum += exp((double)r[e]) * units_of_exp(top, (double)r[e]);
    }
    for (size_t e = 0; e < EXPERTS; e++) {
        const bool sigmoid = moe->score == CALM_ROUTER_SIGMOID;
        s[e] = sigmoid ? 1 / (1 + exp(-(double)r[e])) : exp((double)r[e]) / sum;
        units[e] = sigmoid ? 4 + 2 : units_of_exp(top, (double)r[e]) + of_sum / sum + EXPERTS + 2;
    }
}

/* Returns the largest that is not taken; of equal ones the first. */
static size_t largest(const double *c, const bool *taken, size_t n)
{
    size_t best = n;
    for (size_t i = 0; i < n; i++)
        if (!taken[i] && (best == n || c[i] > c[best]))
            best = i;
    return best;
}

/* Marks experts of groups that are not among the best as taken. */
static void slow_groups(const calm_moe_config *moe, const double *c, bool *taken)
{
    const size_t size = EXPERTS / moe->n_groups;
    double scores[EXPERTS];
    bool kept[EXPERTS] = {false};
    for (size_t g = 0; g < moe->n_groups; g++) {
        bool seen[EXPERTS] = {false};
        const size_t first = largest(c + g * size, seen, size);
        seen[first] = true;
        const size_t second = largest(c + g * size, seen, size);
        scores[g] = c[g * size + first] + (moe->group_by_max || second == size ? 0 : c[g * size + second]);
    }
    for (size_t k = 0; k < moe->top_groups; k++)
        kept[largest(scores, kept, moe->n_groups)] = true;
    for (size_t e = 0; e < EXPERTS; e++)
        taken[e] = !kept[e / size];
}

/* The division by the sum of k scores adds their errors, k + 1 roundings of the sum and one; the scale adds one. */
static void slow_choose(const fixture *f, const float *r, size_t *experts, double *weights, double *errors)
{
    const calm_moe_config *moe = &f->config.moe;
    double s[EXPERTS], c[EXPERTS], units[EXPERTS], sum = 0, of_sum = 0;
    bool taken[EXPERTS] = {false};
    slow_scores(moe, r, s, units);
    for (size_t e = 0; e < EXPERTS; e++)
        c[e] = s[e] + (moe->choice_bias ? (double)f->bias[e] : 0);
    if (moe->n_groups > 1)
        slow_groups(moe, c, taken);
    for (size_t k = 0; k < moe->top_k; k++) {
        experts[k] = largest(c, taken, EXPERTS);
        taken[experts[k]] = true;
        weights[k] = s[experts[k]];
        sum += weights[k];
        of_sum += weights[k] * units[experts[k]];
    }
    for (size_t k = 0; k < moe->top_k; k++) {
        weights[k] *= (double)moe->scale
                      / (moe->norm_top_k ? fmax(sum + (double)moe->sum_plus, (double)moe->sum_min) : 1);
        errors[k] = units[experts[k]] + 1 + (moe->norm_top_k ? of_sum / sum + (double)moe->top_k + 2 : 0);
        errors[k] *= UNIT * weights[k];
    }
}

/* Chooses round by round among the rest.  The weight is exp(0) = 1 divided by the sum. */
static void slow_mix(const fixture *f, const float *r, size_t *experts, double *weights, double *errors)
{
    const calm_moe_config *moe = &f->config.moe;
    double c[EXPERTS];
    bool taken[EXPERTS] = {false};
    for (size_t e = 0; e < EXPERTS; e++)
        c[e] = (double)r[e];
    for (size_t k = 0; k < moe->top_k; k++) {
        const size_t best = largest(c, taken, EXPERTS);
        double sum = 0, of_sum = 0;
        for (size_t e = 0; e < EXPERTS; e++)
            if (!taken[e] && !((c[best] - c[e]) / fmax(fabs(c[e]), c[best]) > 2 * (double)moe->jitter)) {
                sum += exp(c[e] - c[best]);
                of_sum += exp(c[e] - c[best]) * units_of_exp(c[best], c[e]);
            }
        experts[k] = best;
        weights[k] = 1 / sum;
        errors[k] = (of_sum / sum + EXPERTS + 1) * UNIT * weights[k];
        taken[best] = true;
    }
}

/* ---- tests ---- */

static void check(fixture *f)
{
    const calm_moe_config *moe = &f->config.moe;
    calm_route routes[ROWS * MOST];
    f->block.moe.choice_bias = moe->choice_bias ? f->bias : NULL;
    ck_ok(calm_router_choose(ctx, &f->block, f->logits, ROWS, routes));
    for (size_t t = 0; t < ROWS; t++) {
        size_t experts[MOST];
        double weights[MOST], errors[MOST];
        (moe->score == CALM_ROUTER_SPARSEMIXER ? slow_mix : slow_choose)(f, f->logits + t * EXPERTS, experts, weights,
                                                                         errors);
        for (size_t k = 0; k < moe->top_k; k++) {
            const calm_route *found = &routes[t * moe->top_k + k];
            ck_assert_uint_eq(found->expert, experts[k]);
            ck_assert_msg(fabs((double)found->weight - weights[k]) <= errors[k],
                          "row %zu, choice %zu: weight %.9g, expected %.9g", t, k, (double)found->weight, weights[k]);
        }
    }
}

TEST(every_rule)
{
    static const size_t groups[][2] = {{0, 0}, {1, 1}, {4, 2}, {12, 5}, {3, 3}};
    fixture f;
    fill(&f);
    for (calm_router_score score = 0; score <= CALM_ROUTER_SIGMOID; score++)
        for (int flags = 0; flags < 16; flags++)
            for (size_t g = 0; g < sizeof groups / sizeof *groups; g++) {
                calm_moe_config *moe = &f.config.moe;
                moe->score = score;
                moe->choice_bias = flags & 1;
                moe->norm_top_k = flags & 2;
                moe->group_by_max = flags & 4;
                moe->scale = flags & 8 ? 2.5f : 1;
                moe->sum_min = flags & 8 ? 0.7f : 0;
                moe->sum_plus = flags & 8 ? 0 : 1e-6f;
                moe->n_groups = groups[g][0];
                moe->top_groups = groups[g][1];
                check(&f);
            }
}
END_OF_TEST

/* Logits that differ although their sigmoids are all 1 in float32. */
TEST(choice_by_logit)
{
    const float large[EXPERTS] = {20, 31, 25, 40, 39};
    fixture f;
    calm_route routes[3];
    fill(&f);
    f.config.moe = (calm_moe_config){.n_experts = EXPERTS, .top_k = 3, .scale = 1, .score = CALM_ROUTER_SIGMOID};
    for (int by_logit = 0; by_logit < 2; by_logit++) {
        f.config.moe.by_logit = by_logit;
        ck_ok(calm_router_choose(ctx, &f.block, large, 1, routes));
        ck_assert_uint_eq(routes[0].expert, by_logit ? 3 : 0);
        ck_assert(routes[0].weight == 1 && routes[2].weight == 1);
    }
    ck_assert(routes[1].expert == 4 && routes[2].expert == 1);
}
END_OF_TEST

TEST(sparsemixer)
{
    fixture f;
    fill(&f);
    f.config.moe.score = CALM_ROUTER_SPARSEMIXER;
    for (size_t k = 1; k <= MOST; k++)
        for (int i = 0; i < 3; i++) {
            f.config.moe.top_k = k;
            f.config.moe.jitter = (float)i * 0.2f;
            check(&f);
        }
}
END_OF_TEST

/* Equal choices go to the lower number, in groups too. */
TEST(ties)
{
    fixture f;
    calm_route routes[3];
    fill(&f);
    for (int rule = 0; rule < 3; rule++) {
        f.config.moe.score = rule == 2 ? CALM_ROUTER_SPARSEMIXER : rule ? CALM_ROUTER_SIGMOID : CALM_ROUTER_SOFTMAX;
        f.config.moe.n_groups = rule == 1 ? 4 : 0;
        f.config.moe.top_groups = 2;
        memset(f.logits, 0, sizeof f.logits);
        ck_ok(calm_router_choose(ctx, &f.block, f.logits, 1, routes));
        for (size_t k = 0; k < 3; k++)
            ck_assert_uint_eq(routes[k].expert, k);
    }
}
END_OF_TEST

TEST(not_finite)
{
    fixture f;
    calm_route routes[3];
    for (calm_router_score score = 0; score <= CALM_ROUTER_SPARSEMIXER; score++) {
        fill(&f);
        f.config.moe.score = score;
        f.logits[4] = NAN;
        ck_fails(calm_router_choose(ctx, &f.block, f.logits, 1, routes), CALM_ENUMERIC, "block 7");
    }
}
END_OF_TEST

int main(void)
{
    return run_tests("router", (const TTest *[]){every_rule, choice_by_logit, sparsemixer, ties, not_finite, NULL});
}
