/* Cost of tuning the whole model: windows, operations, memory. */
#include <math.h>

#include "ptq/eval/encode_back.h"
#include "ptq/eval/predict_back.h"
#include "ptq/layers/block_pass.h"
#include "ptq/learn/learn_impl.h"
#include "ptq/state/work.h"

/* Largest number of windows that are measured during tuning; of sentences for encoders, since they are short. */
#define HELD_MOST ((size_t)8)
#define HELD_SENTENCES ((size_t)64)

size_t calm_learn_model_held(const calm_run *p)
{
    const size_t held = calm_inputs_held_windows(&p->in);
    const size_t most = calm_inputs_encode(&p->in) ? HELD_SENTENCES : HELD_MOST;
    return calm_size_min(most, held ? held : calm_size_max(p->in.calib.n / 8, 1));
}

size_t calm_learn_model_from(const calm_run *p)
{
    return calm_size_max(calm_learn_model_held(p), calm_inputs_held_windows(&p->in));
}

bool calm_learn_tunes(const calm_run *p)
{
    return p->in.recipe->tune_steps > 0;
}

/* Returns the mean number of tokens of a step. */
static double step_tokens(const calm_run *p)
{
    const size_t from = calm_learn_model_from(p), n = p->in.calib.n;
    size_t round = 0;
    for (size_t w = from; w < n; round++)
        w = calm_tuning_end(p, w, n);
    return round ? (double)(p->in.calib.begin[n] - p->in.calib.begin[from]) / (double)round : 0;
}

void calm_learn_model_estimate(const calm_run *p, calm_learned_facts *out)
{
    const calm_config *config = calm_model_config(p->in.model);
    const calm_layout *layout = calm_model_layout(p->in.model);
    const double rows = (double)p->in.calib.begin[p->in.calib.n], window = rows / (double)p->in.calib.n;
    const double steps = (double)p->in.recipe->tune_steps;
    const double looks = (double)calm_learn_model_held(p) * (1 + ceil(steps / (double)CALM_LEARN_LOOK_STEPS));
    const double blocks = calm_run_work_blocks(&p->in, 0, config->n_blocks, window);
    const double head = calm_inputs_encode(&p->in) ? 0 : calm_run_work_head(&p->in);
    /* A step runs the blocks forward, forward again and backward (twice the work), and the heads of both models
     * forward, forward again and backward.  A measurement runs the blocks and both heads.  The float model runs once.
     * */
    out->back_operations = step_tokens(p) * steps * CALM_BLOCK_BOTH * blocks;
    out->operations = out->back_operations + step_tokens(p) * steps * (blocks + 5 * head) +
                      window * looks * (blocks + 2 * head) + rows * blocks;
    /* The float model's last block runs again in each step. */
    if (p->in.recipe->learn_loss == CALM_LEARN_MINI)
        out->operations += step_tokens(p) * steps * blocks / (double)config->n_blocks;
    /* A step decodes every block forward and backward and sums its gradients; this costs about as much as the update
     * and decoding that learning blocks does in a step. */
    out->updates = steps * calm_model_weights(p->in.model, 0, layout->n_jobs, true);
}

/* A calm_learn_bytes_fn. */
static size_t tune_bytes(const calm_learn_problem *shapes, const void *user)
{
    (void)user;
    return calm_tune_new_bytes(shapes->linears, shapes->n_linears, shapes->vectors, shapes->n_vectors);
}

/* Returns the bytes of the weights of jobs that stay float or may stay float, which are not in the room. */
static size_t kept_bytes(const calm_run *p, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    bool may = false;
    size_t bytes = 0;
    for (size_t i = 0; i < p->in.recipe->n_schemes; i++)
        may |= p->in.recipe->schemes[i].bits == 0;
    for (size_t j = layout->block_begin[block]; j < layout->block_begin[block + 1]; j++)
        bytes += may || calm_inputs_keeps(&p->in, j) ? CALM_BYTES(float, layout->jobs[j].out * layout->jobs[j].in) : 0;
    return bytes;
}

size_t calm_learn_model_bytes(const calm_run *p, unsigned extras, bool spill, size_t n_threads)
{
    const calm_recipe *recipe = p->in.recipe;
    const calm_model *model = p->in.model;
    const calm_config *config = calm_model_config(model);
    const size_t longest = p->in.calib.longest, tokens = calm_tuning_rows(p);
    const size_t rows = CALM_BYTES(float, tokens * config->hidden);
    if (!calm_learn_tunes(p))
        return 0;
    size_t opening = 0, pass = 0;
    const bool encodes = calm_inputs_encode(&p->in);
    size_t held = (encodes ? calm_model_load_head_bytes(config) + calm_pooling_load_bytes(config)
                           : calm_predictors_open_bytes(config, 1, 1, longest)) +
                  calm_learn_room_new_bytes(model) +
                  (config->n_blocks + 1) * rows + config->n_blocks * CALM_BYTES(calm_learn_view, 1) +
                  CALM_BYTES(uint32_t, longest) +
                  (spill ? 0 : calm_row_store_bytes(p->in.calib.begin[p->in.calib.n], config->hidden));
    for (size_t b = 0; b < config->n_blocks; b++) {
        size_t most = 0;
        pass = calm_size_max(pass, calm_block_back_scratch_bytes(config, b, longest, 0, n_threads));
        for (size_t i = 0; i < recipe->n_schemes; i++) {
            const calm_scheme *scheme = &recipe->schemes[i];
            most = calm_size_max(most, calm_learn_view_open_bytes(model, b, scheme, extras) +
                                       calm_learn_sum_bytes(model, b, scheme, tune_bytes, NULL));
            opening = calm_size_max(opening, calm_learn_view_opening_bytes(model, b, scheme, extras));
        }
        held += most + kept_bytes(p, b);
    }
    /* Hidden states of the step before and after the final norm with their gradients, predictions by both models. */
    const size_t predictions = calm_size_max(calm_predict_scratch_bytes(config, longest, true, n_threads),
                                             calm_predict_back_scratch_bytes(config, longest, n_threads)) +
                               2 * CALM_BYTES(calm_prediction, longest);
    pass = 5 * rows + calm_size_max(pass, encodes ? calm_embedding_back_scratch_bytes(config) : predictions);
    if (recipe->learn_loss == CALM_LEARN_MINI) {
        /* The hidden states before the float model's last block, that block, and its tape. */
        const size_t last = config->n_blocks - 1;
        held += spill ? 0 : calm_row_store_bytes(p->in.calib.begin[p->in.calib.n], config->hidden);
        pass += calm_model_load_outline_bytes(model, last) + CALM_BYTES(float, 2 * longest * config->hidden) +
                calm_model_load_sublayer_bytes(model, last, CALM_SUBLAYER_ATTENTION) +
                calm_model_load_sublayer_bytes(model, last, CALM_SUBLAYER_MLP) +
                calm_block_back_scratch_bytes(config, last, longest, 0, n_threads);
    }
    return held + calm_size_max(opening, pass);
}
