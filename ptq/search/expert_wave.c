/* How many experts are captured and scored together, once routing has given the tokens of each. */
#include "ptq/search/search_impl.h"

#include "cka/cka.h"
#include "ptq/base/largest.h"

size_t calm_wave_score_bytes(size_t (*bytes)(size_t n, size_t d), size_t n, size_t d)
{
    return calm_size_max(bytes(n, d), bytes(calm_size_min(n, calm_score_square_rows(d)), d));
}

size_t calm_wave_tokens(const calm_moe_config *moe, size_t rows)
{
    return calm_size_min(rows, 2 * rows * moe->top_k / moe->n_experts + 1);
}

/* Memory of scoring that grows with the square of an expert's rows: of the wave, and of the parallel candidates. */
typedef struct wave_needs {
    size_t rows, reference;
    calm_largest score;
} wave_needs;

static void add_expert(wave_needs *to, size_t rows, size_t reference, size_t score)
{
    to->rows += rows;
    to->reference += reference;
    calm_largest_add(&to->score, score);
}

/* Returns the scored rows of an expert; its tokens of window w are routing->token[window[w] .. window[w + 1] - 1]. */
static size_t scored_rows(const calm_inputs *in, const calm_routing *routing, const size_t *window)
{
    const size_t scored = calm_inputs_scored_windows(in);
    size_t rows = 0;
    if (!in->score_tokens)
        return window[scored] - window[0];
    for (size_t w = 0; w < scored; w++) {
        const size_t end = in->calib.begin[w] + in->scoring.begin[w + 1] - in->scoring.begin[w];
        for (size_t i = window[w]; i < window[w + 1]; i++)
            rows += routing->token[i] < end;
    }
    return rows;
}

/* Returns true if the experts found so far need no more memory than the plan allows. */
static bool fits(const wave_needs *found, const wave_needs *allowed, size_t at_once)
{
    return found->rows <= allowed->rows && found->reference + calm_largest_sum(&found->score, 1, at_once) <=
                                               allowed->reference + calm_largest_sum(&allowed->score, 1, at_once);
}

size_t calm_wave_experts(const calm_run *p, const calm_routing *routing, size_t first, size_t n_threads)
{
    const calm_config *config = calm_model_config(p->in.model);
    const size_t most = calm_size_min(p->memory.knobs.experts_at_once, config->moe.n_experts - first);
    const size_t at_once = p->memory.knobs.candidates_at_once ? p->memory.knobs.candidates_at_once : n_threads;
    const size_t stride = routing->n_windows + 1, width = calm_expert_width(config, 0);
    const size_t share = calm_wave_tokens(&config->moe, p->in.calib.begin[p->in.calib.n]);
    const size_t score_share = calm_wave_tokens(&config->moe, calm_inputs_scored_rows(&p->in));
    wave_needs allowed = {0}, found = {0};
    size_t n = 0;
    for (size_t i = 0; i < most; i++)
        add_expert(&allowed, share, calm_wave_score_bytes(calm_score_prepare_bytes, score_share, width),
                   calm_wave_score_bytes(calm_score_scratch_bytes, score_share, width));
    for (; n < most; n++) {
        const size_t *window = routing->window + (first + n) * stride;
        const size_t rows = scored_rows(&p->in, routing, window);
        add_expert(&found, window[routing->n_windows] - window[0], calm_score_prepare_bytes(rows, width),
                   calm_score_scratch_bytes(rows, width));
        /* One expert always runs, however many tokens it has: the memory plan includes that case. */
        if (n > 0 && !fits(&found, &allowed, at_once))
            break;
    }
    return n;
}
