/* The backward pass of single operations is the transpose of their derivative (tests/support/adjoint.h): activation
 * functions, norms, rotary embeddings, linears, routing, the head with the KL divergence, sentence embeddings. */
#include "ptq/base/rng.h"
#include "ptq/eval/encode_back.h"
#include "ptq/eval/predict_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/layers/router.h"
#include "ptq/tensor/vector.h"
#include "ptq/tensor/vector_back.h"
#include "tests/support/adjoint.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"

enum { TOKENS = 19, ROWS = 40 };

/* Positions with gaps, where padding was dropped. */
static const uint32_t positions[TOKENS] = {0, 1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 17, 18, 19, 20, 21, 22};

/* ---- element by element ---- */

typedef struct elements {
    void (*forward)(size_t n, double *x);
    double x[ROWS], v[ROWS];
} elements;

static double elements_value(void *state)
{
    const elements *e = state;
    double y[ROWS];
    memcpy(y, e->x, sizeof y);
    e->forward(ROWS, y);
    return adjoint_dot(ROWS, y, e->v);
}

static void capped(size_t n, double *x)
{
    calm_vec_soft_cap(n, 0.7, 3, x);
}

static void capped_back(size_t n, const double *x, double *dy)
{
    calm_vec_soft_cap_back(n, 0.7, 3, x, dy);
}

static void capped_plain(size_t n, double *x)
{
    calm_vec_soft_cap(n, 1, 3, x);
}

static void capped_plain_back(size_t n, const double *x, double *dy)
{
    double y[ROWS];
    memcpy(y, x, n * sizeof *y);
    capped_plain(n, y);
    calm_vec_soft_capped_back(n, 3, y, dy);
}

static void softmax(size_t n, double *x)
{
    calm_vec_scale(n, 1 / calm_vec_softmax_numerators(n, 1, x), x);
}

static void softmax_back(size_t n, const double *x, double *dy)
{
    double p[ROWS];
    memcpy(p, x, n * sizeof *p);
    softmax(n, p);
    calm_vec_softmax_back(n, p, dy);
}

TEST(activations_and_softmax)
{
    static const struct {
        const char *name;
        void (*forward)(size_t n, double *x);
        void (*back)(size_t n, const double *x, double *dy);
    } all[] = {{"silu", calm_vec_silu, calm_vec_silu_back},
               {"gelu", calm_vec_gelu, calm_vec_gelu_back},
               {"gelu_tanh", calm_vec_gelu_tanh, calm_vec_gelu_tanh_back},
               {"gelu_quick", calm_vec_gelu_quick, calm_vec_gelu_quick_back},
               {"relu", calm_vec_relu, calm_vec_relu_back},
               {"soft cap", capped, capped_back},
               {"soft cap from its result", capped_plain, capped_plain_back},
               {"softmax", softmax, softmax_back}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        elements e = {.forward = all[i].forward};
        double d[ROWS];
        adjoint_fill(e.x, ROWS, 2, 1);
        adjoint_fill(e.v, ROWS, 1, 2);
        /* Values away from relu's corner, which differences must not cross. */
        for (size_t j = 0; j < ROWS; j++)
            e.x[j] += e.x[j] < 0 ? -0.1 : 0.1;
        memcpy(d, e.v, sizeof d);
        all[i].back(ROWS, e.x, d);
        adjoint_check(all[i].name, elements_value, &e, e.x, d, ROWS);
    }
}
END_OF_TEST

/* ---- norms ---- */

enum { WIDTH = 24 };

typedef struct norm_case {
    calm_norm norm;
    double x[ROWS * WIDTH], w[WIDTH], b[WIDTH], v[ROWS * WIDTH];
} norm_case;

static double norm_value(void *state)
{
    const norm_case *n = state;
    double y[ROWS * WIDTH];
    calm_norm_rows(&n->norm, n->x, ROWS, y);
    return adjoint_dot(ROWS * WIDTH, y, n->v);
}

TEST(norms)
{
    static const char *const names[] = {"RMSNorm", "Gemma's RMSNorm", "LayerNorm"};
    for (calm_norm_kind kind = CALM_NORM_RMS; kind <= CALM_NORM_LAYER; kind++) {
        static norm_case n;
        double dx[ROWS * WIDTH], dw[WIDTH] = {0}, db[WIDTH] = {0};
        const bool layer = kind == CALM_NORM_LAYER;
        n.norm = (calm_norm){kind, 1e-2, WIDTH, n.w, layer ? n.b : NULL};
        adjoint_fill(n.x, ROWS * WIDTH, 1, 1);
        adjoint_fill(n.w, WIDTH, 1, 2);
        adjoint_fill(n.b, WIDTH, 1, 3);
        adjoint_fill(n.v, ROWS * WIDTH, 1, 4);
        ck_ok(calm_norm_back(ctx, &n.norm, (calm_norm_rows_of){ROWS, 1, WIDTH}, n.x, n.v, dw, layer ? db : NULL, dx));
        adjoint_check(names[kind], norm_value, &n, n.x, dx, ROWS * WIDTH);
        adjoint_check(test_format("%s: weight", names[kind]), norm_value, &n, n.w, dw, WIDTH);
        if (layer)
            adjoint_check("LayerNorm: bias", norm_value, &n, n.b, db, WIDTH);
    }
}
END_OF_TEST

/* ---- rotary embeddings ---- */

enum { HEADS = 3, HEAD_DIM = 12, ROTARY = 8, HALF = ROTARY / 2 };

typedef struct rope_case {
    calm_rope_table table;
    double x[TOKENS * HEADS * HEAD_DIM], v[TOKENS * HEADS * HEAD_DIM];
} rope_case;

static double rope_value(void *state)
{
    const rope_case *r = state;
    double y[TOKENS * HEADS * HEAD_DIM];
    memcpy(y, r->x, sizeof y);
    calm_rope_rotate(&r->table, y, HEADS * HEAD_DIM, TOKENS, HEADS, HEAD_DIM, positions);
    return adjoint_dot(TOKENS * HEADS * HEAD_DIM, y, r->v);
}

/* Every kind, within the original length and beyond it; the last channels of a head are not rotated. */
TEST(rotations)
{
    static const double long_factor[HALF] = {1, 3, 6, 9}, short_factor[HALF] = {1, 1.1, 1.2, 1.5};
    enum { N = TOKENS * HEADS * HEAD_DIM };
    for (calm_rope_kind kind = CALM_ROPE_DEFAULT; kind <= CALM_ROPE_LONGROPE; kind++)
        for (int beyond = 0; beyond < 2; beyond++) {
            static rope_case r;
            static bool local[1];
            const double reach = positions[TOKENS - 1] + 1, original = beyond ? reach / 2 : 2 * reach;
            const calm_config config = {.max_positions = (size_t)original,
                                        .local_rope = local,
                                        .rope[CALM_ROPE_GLOBAL] = {.kind = kind,
                                                                   .theta = 100,
                                                                   .factor = 4,
                                                                   .rotary = ROTARY,
                                                                   .original = original,
                                                                   .low_freq = 1,
                                                                   .high_freq = 4,
                                                                   .beta_fast = 32,
                                                                   .beta_slow = 1,
                                                                   .truncate = true,
                                                                   .long_factor = long_factor,
                                                                   .short_factor = short_factor,
                                                                   .m = 1.25,
                                                                   .m_long = 1.25}};
            calm_rope rope;
            double d[N];
            ck_ok(calm_rope_init(ctx, &config, (size_t)reach, &rope));
            ck_ok(calm_rope_find(ctx, &rope, &config, 0, (size_t)reach, &r.table));
            adjoint_fill(r.x, N, 1, 1);
            adjoint_fill(r.v, N, 1, 2);
            memcpy(d, r.v, sizeof d);
            calm_rope_rotate_back(&r.table, d, HEADS * HEAD_DIM, TOKENS, HEADS, HEAD_DIM, positions);
            ck_assert(d[0] == 1.25 * r.v[0] && d[N - 1] == r.v[N - 1]);
            adjoint_check(test_format("rotation %d, %d", (int)kind, beyond), rope_value, &r, r.x, d, N);
        }
}
END_OF_TEST

/* ---- linears ---- */

/* More than one tile of a product. */
enum { IN = 270, OUT = 20, N_ROWS = 23 };

typedef struct linear_case {
    calm_weight weight;
    double *w, *bias, *x, *v;
} linear_case;

static double linear_value(void *state)
{
    const linear_case *l = state;
    double y[N_ROWS * OUT];
    ck_ok(calm_weight_apply_tiled(ctx, &l->weight, l->x, N_ROWS, y));
    return adjoint_dot(N_ROWS * OUT, y, l->v);
}

TEST(linears)
{
    for (int scaled = 0; scaled < 2; scaled++) {
        linear_case l = {.w = adjoint_filled(OUT * IN, 0.1, 1),
                         .bias = adjoint_filled(OUT, 1, 2),
                         .x = adjoint_filled(N_ROWS * IN, 1, 3),
                         .v = adjoint_filled(N_ROWS * OUT, 1, 4)};
        double *scale = adjoint_filled(IN, 0.1, 5), dw[OUT * IN] = {0}, dbias[OUT] = {0}, dx[N_ROWS * IN];
        for (size_t i = 0; i < IN; i++)
            scale[i] += 1;
        l.weight = (calm_weight){.name = "w", .out = OUT, .in = IN, .w = l.w, .bias = l.bias,
                                 .in_scale = scaled ? scale : NULL};
        ck_ok(calm_weight_back(ctx, &l.weight, l.x, N_ROWS, l.v, dw, dbias, false, dx));
        adjoint_check("linear: x", linear_value, &l, l.x, dx, N_ROWS * IN);
        adjoint_check("linear: weight", linear_value, &l, l.w, dw, OUT * IN);
        adjoint_check("linear: bias", linear_value, &l, l.bias, dbias, OUT);
    }
}
END_OF_TEST

/* ---- the end of the model ---- */

enum { HIDDEN = 32 };

typedef struct head_case {
    calm_predictors set;
    calm_row_store hidden[2];
    uint32_t targets[ROWS];
    double x[2][ROWS * HIDDEN];
} head_case;

static double head_value(void *state)
{
    head_case *h = state;
    double sum = 0;
    for (size_t m = 0; m < 2; m++)
        memset(h->set.models[m].rows, 0, ROWS * sizeof *h->set.models[m].rows);
    ck_ok(calm_predict(ctx, &h->set, h->targets, ROWS));
    for (size_t t = 0; t < ROWS; t++)
        sum += calm_prediction_kl(&h->set.models[0].rows[t], &h->set.models[1].rows[t]);
    return sum / ROWS;
}

/* The gradient of the divergence by the head's input, with a logit cap (gemma2) and without. */
TEST(the_head_and_the_divergence)
{
    static const char *const families[] = {"llama", "gemma2"};
    for (int i = 0; i < 2; i++) {
        static head_case h;
        tiny_model spec = tiny_of(families[i]);
        calm_model *model;
        double d[ROWS * HIDDEN];
        spec.dtype = CALM_F32;
        ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
        const calm_subject subject = {.model = model};
        ck_ok(calm_predictors_open(ctx, &subject, &subject, 1, ROWS, &h.set));
        for (size_t m = 0; m < 2; m++) {
            adjoint_fill(h.x[m], ROWS * HIDDEN, 1, m);
            h.hidden[m] = (calm_row_store){ROWS, HIDDEN, h.x[m], -1};
            h.set.models[m].hidden = &h.hidden[m];
            ck_ok(CALM_NEW(ctx, ctx->out, h.set.models[m].rows, ROWS));
        }
        ck_assert(head_value(&h) > 0.01);
        ck_ok(calm_predict_back(ctx, &h.set, h.targets, ROWS, 1.0 / ROWS, d));
        adjoint_check(test_format("divergence of %s", families[i]), head_value, &h, h.x[1], d, ROWS * HIDDEN);
        calm_model_close(model);
    }
}
END_OF_TEST

enum { EXPERTS = 6, CHOSEN = 3 };

/* One row's logits, far from a change of the choice, and what its weights are multiplied by. */
typedef struct routed {
    calm_config config;
    calm_block block;
    double r[EXPERTS], v[CHOSEN];
    calm_route routes[CHOSEN];    /* chosen in the first pass */
} routed;

static double routed_value(void *state)
{
    routed *f = state;
    calm_route routes[CHOSEN];
    double sum = 0;
    ck_ok(calm_router_choose(ctx, &f->block, f->r, 1, routes));
    for (size_t k = 0; k < CHOSEN; k++) {
        ck_assert_uint_eq(routes[k].expert, f->routes[k].expert);
        sum += f->v[k] * routes[k].weight;
    }
    return sum;
}

static void check_routing(const char *name, const calm_moe_config *moe)
{
    static const double bias[EXPERTS] = {0.1, 0.02, -0.05, 0.04, 0, -0.02};
    routed f = {.config.moe = *moe, .r = {1.1, -0.4, 0.7, 0.2, -1.3, 0.9}, .v = {0.8, -1.3, 0.5}};
    double row[EXPERTS], d[EXPERTS];
    f.block = (calm_block){.config = &f.config, .moe.choice_bias = moe->choice_bias ? bias : NULL};
    ck_ok(calm_router_choose(ctx, &f.block, f.r, 1, f.routes));
    memcpy(row, f.r, sizeof row);
    calm_router_back(moe, f.routes, f.v, row, d);
    adjoint_check(name, routed_value, &f, f.r, d, EXPERTS);
}

/* Scores of each kind, divided or not by their sum or by a constant above it; sparsemixer with one expert out of
 * reach. */
TEST(routing)
{
    for (calm_router_score score = 0; score <= CALM_ROUTER_SIGMOID; score++)
        for (int flags = 0; flags < 16; flags++) {
            const bool by_constant = flags & 8;
            check_routing(test_format("score %d, settings %d", (int)score, flags),
                          &(calm_moe_config){.n_experts = EXPERTS, .top_k = CHOSEN, .score = score,
                                             .norm_top_k = flags & 1, .choice_bias = flags & 2,
                                             .n_groups = flags & 4 ? 3 : 0, .top_groups = 2, .scale = 2.5,
                                             .sum_plus = by_constant ? 0 : 0.1, .sum_min = by_constant ? 9 : 0});
        }
    check_routing("sparsemixer", &(calm_moe_config){.n_experts = EXPERTS, .top_k = CHOSEN, .scale = 1, .jitter = 0.3,
                                                    .score = CALM_ROUTER_SPARSEMIXER});
}
END_OF_TEST

/* Without this scale the sigmoids' embeddings would hardly differ, and the gradient would be nearly zero. */
#define SENTENCE_SCALE 100

typedef struct sentence {
    calm_pooling pooling;
    double x[TOKENS * WIDTH], y[TOKENS * WIDTH];
} sentence;

static double sentence_value(void *state)
{
    const sentence *s = state;
    double loss;
    ck_ok(calm_embedding_back(ctx, &s->pooling, s->x, s->y, TOKENS, 1, &loss, NULL));
    return SENTENCE_SCALE * loss;
}

TEST(the_embedding_of_a_sentence)
{
    static sentence s;
    static double w[2][WIDTH * WIDTH], b[WIDTH];
    double d[TOKENS * WIDTH], loss;
    adjoint_fill(s.x, TOKENS * WIDTH, 1, 1);
    adjoint_fill(s.y, TOKENS * WIDTH, 1, 2);
    adjoint_fill(w[0], WIDTH * WIDTH, 0.3, 3);
    adjoint_fill(w[1], WIDTH * WIDTH, 0.3, 4);
    adjoint_fill(b, WIDTH, 0.3, 5);
    for (calm_pooling_mode mode = CALM_POOLING_MEAN; mode <= CALM_POOLING_WEIGHTED; mode++)
        for (calm_dense_function f = CALM_DENSE_IDENTITY; f <= CALM_DENSE_SIGMOID; f++) {
            /* A layer that narrows, a division by the length, a layer that widens. */
            s.pooling = (calm_pooling){.mode = mode, .hidden = WIDTH, .width = WIDTH, .n_steps = 3,
                                       .steps = {{true, WIDTH, WIDTH - 1, f, true, NULL, w[0], b},
                                                 {false, WIDTH - 1, WIDTH - 1, f, false, NULL, NULL, NULL},
                                                 {true, WIDTH - 1, WIDTH, f, false, NULL, w[1], NULL}}};
            ck_ok(calm_embedding_back(ctx, &s.pooling, s.x, s.y, TOKENS, SENTENCE_SCALE, &loss, d));
            adjoint_check("1 - cosine", sentence_value, &s, s.x, d, TOKENS * WIDTH);
        }
    s.pooling = (calm_pooling){.hidden = WIDTH, .width = WIDTH};
    ck_ok(calm_embedding_back(ctx, &s.pooling, s.x, s.y, TOKENS, SENTENCE_SCALE, &loss, d));
    adjoint_check("1 - cosine", sentence_value, &s, s.x, d, TOKENS * WIDTH);
}
END_OF_TEST

int main(void)
{
    return run_tests("adjoint", (const TTest *[]){activations_and_softmax, norms, rotations, linears, routing,
                                                  the_head_and_the_divergence, the_embedding_of_a_sentence, NULL});
}
