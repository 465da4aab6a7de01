/* Gradients of every model fixture against gradients.safetensors, computed by torch in float64.  Two losses: the inner
 * product of the outputs with a stored direction, with gradients of every parameter and of block 0's input; and a KL
 * divergence, with the gradient of block 0's input.  Gradients have the same bytes for any number of threads, and a
 * step along the negative gradient lowers the loss.
 *
 * Tolerance: 1e-4 of a tensor's largest value.  Sums of some hundred float32 products, whose factors went through two
 * or three blocks, agree with float64 to about 1e-6; a missing term changes 1e-2 and more.  The KL divergence
 * propagates the difference of two distributions, about .3 of either, and so keeps fewer digits of the float32 forward
 * pass: torch in float32 is off by up to 1e-4 of these tensors (in float64 by 5e-8), and by 1.8e-4 for qwen2_yarn,
 * whose logits are the least exact; calm by as much, and up to twice that with other BLAS kernels.
 * test_gradient_fixtures_doubled is this test compiled with double arithmetic (tests/support/doubled.h) and within 1e-4
 * too; what remains are the angles of rotary embeddings, which torch computes in float32 there.
 *
 * Other fixture sets may have less exact logits, a token's off by e of its largest one.  Then each row that enters a
 * gradient is off by about e (an expert's may be a single one): the parameter's input, the derivative of the logits,
 * the rows at which the final norm and, in each block, two norms, a softmax and an activation are differentiated.  In a
 * product such errors add up, so the tolerance is (3 + 4 blocks) e if that is more than 1e-4, which with two blocks
 * needs an e of 9e-6; the shipped set has up to 5.5e-6, most models 2e-6.  A router's softmax is one row more.  A delta
 * net has, instead of attention's softmax, the activation behind the convolution, the lengths of q and k, decays, the
 * state, a norm and its gate: five more.  The loss is the sum of T tokens' errors |d| in random directions of length
 * 1 / sqrt(T): three standard deviations are 3 sqrt(mean |d|^2).
 *
 * The reference logits of the divergence are the model's with .3 of noise, so q - p is about .3 q.  If the logits of
 * a token are off by a row d, q moves by up to 2 |d| q.  All of d comes from one hidden row, so its terms add up in
 * the backward pass where those of the noise do not: therefore 2 |d| / .3 is added to the 1e-4 of the backward pass,
 * with |d| as measured.  It is 7e-5 for most fixtures and 1.1e-4 for another set's wrapper_qwen3_5_moe, whose
 * gradient is off by 5.9e-4; torch computes the delta rule in float32, too, so that double arithmetic still leaves
 * 2e-4 there. */
#include "tests/support/model_fixture.h"

#include <stdio.h>

#include "ptq/arch/arch.h"
#include "ptq/eval/predict_back.h"
#include "ptq/layers/norm_back.h"
#include "ptq/tensor/linalg.h"
#include "ptq/tensor/vector.h"
#include "tests/support/block_params.h"
#include "tests/support/harness.h"

#define RELATIVE 1e-4
#define DOUBLED (sizeof(float) == sizeof(double))
#define KL_NOISE .3

/* Up to this many rows and columns a product is one tile (product.c); in several, float32 sums of some hundred products
 * have other orders. */
#define ONE_TILE 256
#define ANOTHER_ORDER 1e-5

enum { MOST_BLOCKS = 8 };

/* A fixture, its model, and memory for all gradients. */
typedef struct run {
    model_fixture fixture;
    calm_safetensors *set; /* gradients.safetensors */
    calm_model *model;
    const calm_config *config;
    calm_rope rope;
    calm_head head;
    block_params blocks[MOST_BLOCKS];
    const float *direction; /* [S, T, V or D] */
    float *table, *dtable;  /* [V, D] the head's weight and its gradient; decoders */
    float *dnorm;           /* [D] gradient of the final norm */
    float *dembed;          /* [tokens, D] gradient of block 0's input */
    size_t n_compared;
    double largest; /* largest value of the last tensor compared */
    double most;    /* largest value of all tensors      */
    double noise;   /* error of a token's logits, as a share of its largest one; encoders: 0 */
    double square;  /* sum of the squared errors of all logits; encoders: 0 */
} run;

static void open_run(const char *name, const char *dir, run *r)
{
    model_fixture_open(name, dir, &r->fixture);
    ck_ok(calm_safetensors_open(ctx, test_format("%s/gradients.safetensors", dir), &r->set));
    ck_ok(calm_model_open(ctx, dir, &r->model));
    r->config = calm_model_config(r->model);
    ck_ok(calm_rope_init(ctx, r->config, calm_windows_reach(&r->fixture.windows), &r->rope));
    ck_ok(calm_model_load_head(ctx, r->model, &r->head));
    ck_assert(r->config->n_blocks <= MOST_BLOCKS);
    for (size_t k = 0; k < r->config->n_blocks; k++)
        block_params_load(r->model, k, &r->blocks[k]);
    const size_t width = r->config->hidden, columns = r->config->arch->encoder ? width : r->config->vocab;
    r->direction = model_fixture_tensor(&r->fixture, r->set, "direction",
                                        r->fixture.windows.n * r->fixture.length * columns);
    ck_ok(CALM_NEW(ctx, ctx->out, r->dembed, r->fixture.windows.begin[r->fixture.windows.n] * width));
    ck_ok(CALM_NEW(ctx, ctx->out, r->dnorm, width));
    if (r->config->arch->encoder)
        return;
    ck_ok(CALM_NEW(ctx, ctx->out, r->table, r->head.vocab * width));
    ck_ok(CALM_NEW(ctx, ctx->out, r->dtable, r->head.vocab * width));
    ck_ok(calm_head_read_tile(ctx, &r->head, 0, r->head.vocab, r->table));
}

static void close_run(run *r)
{
    calm_model_close(r->model);
    calm_safetensors_close(r->set);
    model_fixture_close(&r->fixture);
}

static calm_span span_of(const run *r, size_t w)
{
    const calm_windows *windows = &r->fixture.windows;
    return (calm_span){.window = w,
                       .n_tokens = windows->begin[w + 1] - windows->begin[w],
                       .positions = windows->positions + windows->begin[w],
                       .ids = windows->ids + windows->begin[w]};
}

/* ---- one window through the blocks ---- */

/* Returns the largest difference, as a share of a's largest value. */
static double apart(const float *a, const float *b, size_t n)
{
    double largest = 0, worst = 0;
    for (size_t i = 0; i < n; i++) {
        largest = fmax(largest, fabs((double)a[i]));
        worst = test_worse(worst, fabs((double)a[i] - (double)b[i]));
    }
    return worst / largest;
}

/* Tells whether each product of a block with n tokens is one tile. */
static bool in_one_tile(const calm_block *block, size_t n)
{
    size_t widest = n;
    for (size_t i = 0; i < CALM_N_ROLES; i++)
        widest = calm_size_max(widest, block->weight[i].out);
    return widest <= ONE_TILE;
}

/* Returns x [T, D], the last block's output, and the tapes of all blocks; all in ctx->scratch. */
static float *forward(run *r, size_t w, const calm_span *span, calm_block_tape **tapes)
{
    const size_t n = span->n_tokens, width = r->config->hidden, begin = r->fixture.windows.begin[w];
    float *x, *z, *check;
    ck_ok(CALM_NEW(ctx, ctx->scratch, x, n * width));
    ck_ok(CALM_NEW(ctx, ctx->scratch, check, n * width));
    ck_ok(calm_model_embed(ctx, r->model, r->fixture.windows.ids + begin, r->fixture.windows.types + begin, span, x));
    for (size_t k = 0; k < r->config->n_blocks; k++, x = z) {
        const calm_block *block = &r->blocks[k].block;
        ck_ok(CALM_NEW(ctx, ctx->scratch, z, n * width));
        ck_ok(calm_block_forward_tape(ctx, block, &r->rope, x, span, z, &tapes[k]));
        /* A forward pass without a tape gives the same bytes if products are one tile, as with the shipped sizes. */
        memcpy(check, x, n * width * sizeof *x);
        if (block->moe.router)
            continue;
        ck_ok(calm_block_run(ctx, block, &r->rope, check, span, NULL));
        ck_assert_msg(memcmp(check, z, n * width * sizeof *z) == 0 ||
                          (!in_one_tile(block, n) && apart(check, z, n * width) < ANOTHER_ORDER),
                      "%s: block %zu is %g apart", r->fixture.name, k, apart(check, z, n * width));
    }
    return x;
}

/* Propagates d [T, D] from the last block's output to block 0's input, in place. */
static void backward(run *r, calm_block_tape *const *tapes, bool wanted, float *d)
{
    for (size_t k = r->config->n_blocks; k-- > 0;)
        ck_ok(calm_block_back(ctx, &r->blocks[k].block, &r->rope, tapes[k], d, wanted ? &r->blocks[k].grads : NULL, d));
}

/* ---- the loss of a direction ---- */

/* dh [T, D] = direction times the head's weight, through the logit cap; adds to the weight's gradient.  Returns the
 * loss. */
static double logits_back(run *r, const float *h, const float *direction, size_t n, bool wanted, float *dh)
{
    const size_t vocab = r->head.vocab, width = r->config->hidden;
    float *logits, *dlogits;
    ck_ok(CALM_NEW(ctx, ctx->scratch, logits, n * vocab));
    ck_ok(CALM_NEW(ctx, ctx->scratch, dlogits, n * vocab));
    ck_ok(calm_head_multiply(ctx, &r->head, r->table, h, n, 0, vocab, logits, vocab));
    const double loss = calm_vec_dot(n * vocab, logits, direction);
    if (!wanted)
        return loss;
    memcpy(dlogits, direction, n * vocab * sizeof *dlogits);
    memset(dh, 0, n * width * sizeof *dh);
    ck_ok(calm_head_multiply_back(ctx, &r->head, r->table, logits, n, vocab, dlogits, dh));
    calm_sgemm_tn(vocab, width, n, 1.0f, dlogits, vocab, h, width, 1.0f, r->dtable, width);
    return loss;
}

static double direction_window(run *r, size_t w, bool wanted)
{
    const calm_span span = span_of(r, w);
    const size_t n = span.n_tokens, width = r->config->hidden, begin = r->fixture.windows.begin[w];
    const size_t columns = r->config->arch->encoder ? width : r->head.vocab;
    calm_block_tape *tapes[MOST_BLOCKS];
    float *h, *dh, *direction;
    double loss;
    CALM_SCOPED_SCRATCH(ctx);
    const float *x = forward(r, w, &span, tapes);
    ck_ok(CALM_NEW(ctx, ctx->scratch, h, n * width));
    ck_ok(CALM_NEW(ctx, ctx->scratch, dh, n * width));
    ck_ok(CALM_NEW(ctx, ctx->scratch, direction, n * columns));
    for (size_t t = 0; t < n; t++)
        memcpy(direction + t * columns, r->direction + r->fixture.row[begin + t] * columns,
               columns * sizeof *direction);
    calm_norm_rows(&r->head.norm, x, n, h);
    if (r->config->arch->encoder) {
        loss = calm_vec_dot(n * width, h, direction);
        memcpy(dh, direction, n * width * sizeof *dh);
    } else {
        loss = logits_back(r, h, direction, n, wanted, dh);
    }
    if (!wanted)
        return loss;
    ck_ok(calm_norm_back(ctx, &r->head.norm, (calm_norm_rows_of){n, 1, width}, x, dh, r->dnorm, NULL, dh));
    backward(r, tapes, true, dh);
    memcpy(r->dembed + begin * width, dh, n * width * sizeof *dh);
    return loss;
}

/* Returns the loss; with `wanted` also computes all gradients, from zero. */
static double direction_loss(run *r, bool wanted)
{
    double loss = 0;
    for (size_t k = 0; k < r->config->n_blocks && wanted; k++)
        block_params_clear(&r->blocks[k]);
    if (wanted) {
        memset(r->dnorm, 0, r->config->hidden * sizeof *r->dnorm);
        if (r->dtable)
            memset(r->dtable, 0, r->head.vocab * r->config->hidden * sizeof *r->dtable);
    }
    for (size_t w = 0; w < r->fixture.windows.n; w++)
        loss += direction_window(r, w, wanted);
    return loss;
}

/* ---- comparison ---- */

static double tolerance(const run *r)
{
    size_t rows = 3;
    for (size_t k = 0; k < r->config->n_blocks; k++) {
        const calm_block *block = &r->blocks[k].block;
        rows += 4 + (block->moe.router ? 1 : 0) + (block->weight[CALM_ROLE_DELTA_OUT].out ? 5 : 0);
    }
    return fmax(RELATIVE, (double)rows * r->noise);
}

/* Compares a gradient.  One that the file lacks is zero: that of an expert without tokens. */
static void compare_to(run *r, const char *name, const float *found, size_t n, double relative)
{
    const calm_tensor *tensor = calm_safetensors_find(r->set, name);
    const float *expected = tensor ? model_fixture_tensor(&r->fixture, r->set, name, n) : NULL;
    double largest = 0, worst = 0;
    r->n_compared += tensor != NULL;
    for (size_t i = 0; i < n; i++) {
        const double value = expected ? (double)expected[i] : 0;
        largest = fmax(largest, fabs(value));
        worst = test_worse(worst, fabs(value - (double)found[i]));
    }
    /* The bias of k has no effect on the softmax: its gradient is a sum that cancels, of terms as large as those of
     * the weight's gradient, which was compared just before. */
    const double weight = r->largest;
    r->largest = largest;
    r->most = fmax(r->most, largest);
    if (strstr(name, ".k_proj.bias") || strstr(name, ".key.bias"))
        largest = fmax(largest, 1e-2 * weight);
    /* A single expert per token has the weight 1 whatever its logit: the router's gradient is the noise of float32. */
    const char *router = r->config->arch->names->moe.router;
    if (router && strstr(name, router) && r->config->moe.top_k == 1 && r->config->moe.norm_top_k)
        largest = fmax(largest, 1e-2 * r->most);
    ck_assert_msg(worst <= relative * largest, "%s: %s: largest difference %g, largest value %g", r->fixture.name, name,
                  worst, largest);
}

static void compare(run *r, const char *name, const float *found, size_t n)
{
    compare_to(r, name, found, n, tolerance(r));
}

/* Compares a stored [S, T, D]: rows of tokens with `found`, rows of padding with 0. */
static void compare_embed(run *r, const char *name, const float *found, double relative)
{
    const size_t width = r->config->hidden, n = r->fixture.windows.n * r->fixture.length;
    float *all;
    ck_ok(CALM_NEW(ctx, ctx->out, all, n * width));
    for (size_t t = 0; t < r->fixture.windows.begin[r->fixture.windows.n]; t++)
        memcpy(all + r->fixture.row[t] * width, found + t * width, width * sizeof *all);
    compare_to(r, name, all, n * width, relative);
}

/* Compares the gradient of an embedding table: the rows of d added at the tokens' indices; `start` NULL: to zero. */
static void compare_table(run *r, const char *name, const float *d, size_t n_rows, float scale, const float *start,
                          size_t (*index)(const calm_windows *windows, size_t t))
{
    const size_t width = r->config->hidden;
    float *sum;
    ck_ok(CALM_NEW(ctx, ctx->out, sum, n_rows * width));
    if (start)
        memcpy(sum, start, n_rows * width * sizeof *sum);
    for (size_t t = 0; t < r->fixture.windows.begin[r->fixture.windows.n]; t++)
        calm_vec_axpy(width, scale, d + t * width, sum + index(&r->fixture.windows, t) * width);
    compare(r, test_format("grad.%s%s", calm_model_prefix(r->model), name), sum, n_rows * width);
}

static size_t index_of_id(const calm_windows *windows, size_t t)
{
    return windows->ids[t];
}

static size_t index_of_position(const calm_windows *windows, size_t t)
{
    return windows->positions[t];
}

static size_t index_of_type(const calm_windows *windows, size_t t)
{
    return windows->types[t];
}

/* Compares the embedding tables of an encoder, whose rows are added and normalised. */
static void compare_encoder_tables(run *r)
{
    static const char *const names[] = {"embeddings.word_embeddings.weight", "embeddings.position_embeddings.weight",
                                        "embeddings.token_type_embeddings.weight"};
    size_t (*const index[])(const calm_windows *, size_t) = {index_of_id, index_of_position, index_of_type};
    const size_t sizes[] = {r->config->vocab, r->config->max_positions, r->config->n_types};
    const size_t width = r->config->hidden, n = r->fixture.windows.begin[r->fixture.windows.n];
    const char *prefix = calm_model_prefix(r->model);
    float *x, *d, *dweight, *dbias;
    calm_norm norm;
    ck_ok(calm_model_load_norm(ctx, r->model, test_format("%sembeddings.LayerNorm", prefix), width, &norm));
    ck_ok(CALM_NEW(ctx, ctx->out, x, n * width));
    ck_ok(CALM_NEW(ctx, ctx->out, d, n * width));
    ck_ok(CALM_NEW(ctx, ctx->out, dweight, width));
    ck_ok(CALM_NEW(ctx, ctx->out, dbias, width));
    for (int i = 0; i < 3; i++) {
        const calm_tensor *table = calm_safetensors_find(calm_model_tensors(r->model),
                                                         test_format("%s%s", prefix, names[i]));
        float *values;
        ck_assert_msg(table != NULL, "%s", names[i]);
        ck_ok(CALM_NEW(ctx, ctx->out, values, table->n_elements));
        ck_ok(calm_tensor_to_f32(ctx, table, values));
        for (size_t t = 0; t < n; t++)
            calm_vec_add(width, values + index[i](&r->fixture.windows, t) * width, x + t * width);
    }
    ck_ok(calm_norm_back(ctx, &norm, (calm_norm_rows_of){n, 1, width}, x, r->dembed, dweight, dbias, d));
    compare(r, test_format("grad.%sembeddings.LayerNorm.weight", prefix), dweight, width);
    compare(r, test_format("grad.%sembeddings.LayerNorm.bias", prefix), dbias, width);
    for (int i = 0; i < 3; i++)
        compare_table(r, names[i], d, sizes[i], 1, NULL, index[i]);
}

static void compare_all(run *r)
{
    const calm_names *names = r->config->arch->names;
    size_t n_stored = 0;
    r->n_compared = 0;
    for (size_t k = 0; k < r->config->n_blocks; k++)
        for (size_t i = 0; i < r->blocks[k].n; i++) {
            const block_param *param = &r->blocks[k].all[i];
            compare(r, test_format("grad.%s", param->name), param->grad, param->n);
        }
    compare_embed(r, "grad.hidden.embed", r->dembed, tolerance(r));
    if (r->config->arch->encoder) {
        compare_encoder_tables(r);
    } else {
        compare(r, test_format("grad.%s%s.weight", calm_model_prefix(r->model), names->final_norm), r->dnorm,
                r->config->hidden);
        if (!r->config->tied)
            compare(r, test_format("grad.%s.weight", names->head), r->dtable, r->head.vocab * r->config->hidden);
        if (!r->config->per_layer)    /* embeddings that blocks read in another way too */
            compare_table(r, test_format("%s.weight", names->embed), r->dembed, r->config->vocab,
                          r->config->embedding_scale, r->config->tied ? r->dtable : NULL, index_of_id);
    }
    for (size_t i = 0; i < calm_safetensors_count(r->set); i++)
        n_stored += strncmp(calm_safetensors_at(r->set, i)->name, "grad.", 5) == 0;
    ck_assert_uint_eq(r->n_compared, n_stored);
}

/* ---- checks ---- */

static double stored_double(const run *r, const char *name)
{
    const calm_tensor *tensor = calm_safetensors_find(r->set, name);
    double value;
    ck_assert_msg(tensor && tensor->dtype == CALM_F64 && tensor->n_elements == 1, "%s: %s", r->fixture.name, name);
    memcpy(&value, tensor->data, sizeof value);
    return value;
}

/* Checks that one, two and four threads give the gradients of all blocks the same bytes. */
static void check_threads(run *r)
{
    const float *expected[MOST_BLOCKS];
    size_t n;
    float *dembed;
    const size_t rows = r->fixture.windows.begin[r->fixture.windows.n] * r->config->hidden;
    for (size_t k = 0; k < r->config->n_blocks; k++)
        expected[k] = block_params_gradients(&r->blocks[k], &n);
    ck_ok(CALM_NEW(ctx, ctx->out, dembed, rows));
    memcpy(dembed, r->dembed, rows * sizeof *dembed);
    for (int threads = 2; threads <= 4; threads *= 2) {
        ctx->n_threads = threads;
        direction_loss(r, true);
        for (size_t k = 0; k < r->config->n_blocks; k++) {
            const float *found = block_params_gradients(&r->blocks[k], &n);
            ck_assert_msg(memcmp(expected[k], found, n * sizeof *found) == 0, "%s: block %zu, %d threads",
                          r->fixture.name, k, threads);
        }
        ck_assert_msg(memcmp(dembed, r->dembed, rows * sizeof *dembed) == 0, "%s: %d threads", r->fixture.name,
                      threads);
    }
    ctx->n_threads = 1;
}

static void move(run *r, double step)
{
    for (size_t k = 0; k < r->config->n_blocks; k++)
        for (size_t i = 0; i < r->blocks[k].n; i++)
            calm_vec_axpy(r->blocks[k].all[i].n, (float)-step, r->blocks[k].all[i].grad, r->blocks[k].all[i].value);
}

/* Moves all parameters of the blocks by -step g, by which the loss must fall by about step |g|^2.  That fall is 1e-3
 * |g| at first, far above the loss's rounding of 1e-6; if the loss bends within the step, or a token changes its
 * expert, a tenth or a hundredth of it. */
static void check_step(run *r, double loss)
{
    double square = 0, expected = 0, fall = 0, taken = 0;
    for (size_t k = 0; k < r->config->n_blocks; k++)
        for (size_t i = 0; i < r->blocks[k].n; i++)
            square += calm_vec_dot(r->blocks[k].all[i].n, r->blocks[k].all[i].grad, r->blocks[k].all[i].grad);
    for (double share = 1e-3; share > 5e-6 && !(fall > 0.5 * expected && fall < 1.5 * expected); share /= 10) {
        expected = share * sqrt(square);
        move(r, expected / square - taken);
        taken = expected / square;
        fall = loss - direction_loss(r, false);
    }
    ck_assert_msg(fall > 0.5 * expected && fall < 1.5 * expected, "%s: the loss fell by %g, expected %g",
                  r->fixture.name, fall, expected);
}

static void check_direction(run *r)
{
    const double expected = stored_double(r, "loss"), loss = direction_loss(r, true);
    const double spread = 3 * sqrt(r->square / (double)r->fixture.windows.begin[r->fixture.windows.n]);
    ck_assert_msg(fabs(loss - expected) <= fmax(RELATIVE * fmax(1, fabs(expected)), spread),
                  "%s: loss %.9g, expected %.9g", r->fixture.name, loss, expected);
    compare_all(r);
    check_threads(r);
    check_step(r, loss);
}

/* ---- the KL divergence ---- */

/* Makes the reference model of the divergence: its hidden states are the fixture's logits and its head is the
 * identity. */
static void identity_head(const run *r, calm_predictors *set)
{
    const size_t vocab = r->head.vocab;
    const calm_tensor tensor = {
        .name = "head", .dtype = DOUBLED ? CALM_F64 : CALM_F32, .n_dims = 2, .shape = {vocab, vocab}};
    const char *path = test_format("%s/identity.safetensors", test_directory());
    calm_safetensors_writer writer;
    calm_safetensors *identity;
    float *one;
    ck_ok(CALM_NEW(ctx, ctx->out, one, vocab * vocab));
    for (size_t i = 0; i < vocab; i++)
        one[i * vocab + i] = 1;
    ck_ok(calm_safetensors_begin(ctx, &writer, path, &tensor, 1));
    ck_ok(calm_safetensors_put(ctx, &writer, one, vocab * vocab * sizeof *one));
    ck_ok(calm_safetensors_end(ctx, &writer));
    ck_ok(calm_safetensors_open(ctx, path, &identity));
    set->models[0].head = (calm_head){.hidden = vocab,
                                      .vocab = vocab,
                                      .set = identity,
                                      .table = calm_safetensors_find(identity, "head"),
                                      .norm = {.width = vocab}};
    ck_ok(CALM_NEW(ctx, ctx->out, set->models[0].tile, set->tile * vocab));
    set->models[1].shares = false;
}

/* Returns the window's share of the mean divergence over all rows; dh [T, D] = its gradient. */
static double kl_back(const run *r, calm_predictors *set, size_t begin, size_t n, const float *h, const float *logits,
                      float *dh)
{
    const size_t vocab = r->head.vocab, width = r->config->hidden;
    const size_t total = r->fixture.windows.begin[r->fixture.windows.n];
    const calm_row_store hidden[2] = {{n, vocab, (float *)(uintptr_t)(logits + begin * vocab), -1},
                                      {n, width, (float *)(uintptr_t)h, -1}};
    uint32_t *targets;
    double sum = 0;
    ck_ok(CALM_NEW(ctx, ctx->scratch, targets, n));
    for (int m = 0; m < 2; m++) {
        set->models[m].hidden = &hidden[m];
        ck_ok(CALM_NEW(ctx, ctx->scratch, set->models[m].rows, n));
    }
    ck_ok(calm_predict(ctx, set, targets, n));
    for (size_t t = 0; t < n; t++)
        sum += calm_prediction_kl(&set->models[0].rows[t], &set->models[1].rows[t]);
    ck_ok(calm_predict_back(ctx, set, targets, n, (float)(1.0 / (double)total), dh));
    return sum / (double)total;
}

/* Returns the largest difference of a logit of the window from the stored one, as a share of its token's largest;
 * raises *row to the largest norm of the difference over all logits of a token. */
static double logits_off(run *r, size_t begin, size_t n, const float *h, const float *stored, double *row)
{
    const size_t vocab = r->head.vocab;
    double worst = 0;
    float *logits;
    CALM_SCOPED_SCRATCH(ctx);
    ck_ok(CALM_NEW(ctx, ctx->scratch, logits, n * vocab));
    ck_ok(calm_head_multiply(ctx, &r->head, r->table, h, n, 0, vocab, logits, vocab));
    for (size_t i = 0; i < n; i++) {
        const float *expected = stored + (begin + i) * vocab;
        double sum = 0;
        for (size_t v = 0; v < vocab; v++) {
            const double d = (double)logits[i * vocab + v] - (double)expected[v];
            sum += d * d;
        }
        worst = test_worse(worst, apart(expected, logits + i * vocab, vocab));
        *row = test_worse(*row, sqrt(sum));
        r->square += sum;
    }
    return worst;
}

static void check_kl(run *r)
{
    const calm_windows *windows = &r->fixture.windows;
    const size_t width = r->config->hidden, vocab = r->head.vocab;
    const calm_subject subject = {.model = r->model};
    const float *logits = model_fixture_tensor(&r->fixture, r->set, "kl_reference",
                                               windows->n * r->fixture.length * vocab);
    const float *stored = model_fixture_tensor(&r->fixture, r->fixture.set, "logits",
                                               windows->n * r->fixture.length * vocab);
    calm_predictors set;
    double kl = 0, row = 0;
    ck_assert(windows->begin[windows->n] == windows->n * r->fixture.length); /* decoders have no padding */
    ck_ok(calm_predictors_open(ctx, &subject, &subject, 1, calm_windows_reach(windows), &set));
    identity_head(r, &set);
    for (size_t w = 0; w < windows->n; w++) {
        const calm_span span = span_of(r, w);
        calm_block_tape *tapes[MOST_BLOCKS];
        float *h, *dh;
        CALM_SCOPED_SCRATCH(ctx);
        const float *x = forward(r, w, &span, tapes);
        ck_ok(CALM_NEW(ctx, ctx->scratch, h, span.n_tokens * width));
        ck_ok(CALM_NEW(ctx, ctx->scratch, dh, span.n_tokens * width));
        calm_norm_rows(&r->head.norm, x, span.n_tokens, h);
        r->noise = fmax(r->noise, logits_off(r, windows->begin[w], span.n_tokens, h, stored, &row));
        kl += kl_back(r, &set, windows->begin[w], span.n_tokens, h, logits, dh);
        ck_ok(calm_norm_back(ctx, &r->head.norm, (calm_norm_rows_of){span.n_tokens, 1, width}, x, dh, NULL, NULL, dh));
        backward(r, tapes, false, dh);
        memcpy(r->dembed + windows->begin[w] * width, dh, span.n_tokens * width * sizeof *dh);
    }
    const double expected = stored_double(r, "kl_loss");
    ck_assert_msg(fabs(kl - expected) <= RELATIVE * expected, "%s: KL %.9g, expected %.9g", r->fixture.name, kl,
                  expected);
    compare_embed(r, "kl.hidden.embed", r->dembed, RELATIVE + 2 * row / KL_NOISE);
    calm_safetensors_close((calm_safetensors *)(uintptr_t)set.models[0].head.set);
}

TEST(gradient_fixtures)
{
    const char *root = fixtures_root();
    if (!root)
        return;
    calm_linalg_setup();
    char **names = fixture_entries("models", NULL);
    size_t n_run = 0;
    for (size_t i = 0; names[i]; i++, n_run++) {
        static run r;
        memset(&r, 0, sizeof r);
        open_run(names[i], test_format("%s/models/%s", root, names[i]), &r);
        if (!r.config->arch->encoder)
            check_kl(&r);
        check_direction(&r);
        close_run(&r);
        printf("ok %s\n", names[i]);
    }
    ck_assert_msg(n_run > 0, "no model fixture could be run");
}
END_OF_TEST

int main(void)
{
    return run_tests("gradient_fixtures", (const TTest *[]){gradient_fixtures, NULL});
}
