/* Weights of calibration rows. */
#include "ptq/search/search_impl.h"

#include "ptq/arch/kind.h"

/* Returns true if this rank has candidates of the block to compute. */
static bool computes(const calm_run *p, const calm_missing *missing, size_t block)
{
    const calm_layout *layout = calm_model_layout(p->in.model);
    bool todo = false;
    if (block < p->in.first_block || block >= p->in.end_block || !calm_division_mine(p, missing, block))
        return false;
    for (size_t job = layout->block_begin[block]; job < layout->block_begin[block + 1]; job++)
        for (size_t entry = 0; entry < p->in.recipe->n_pool; entry++)
            todo |= calm_candidate_at(&p->in, job, entry)->todo;
    return todo;
}

/* Returns true if a block has jobs of this kind. */
static bool has_job(const calm_run *p, size_t block, calm_job_kind kind)
{
    const calm_config *config = calm_config_at(calm_model_config(p->in.model), block);
    return calm_slot_has_job(config, calm_job_sublayer(kind), kind);
}

/* Allocates the factors of all blocks to compute, or uses `common` for all their jobs; *first: the first such block. */
static calm_status new_lengths(calm_ctx *ctx, const calm_run *p, const calm_missing *missing, calm_arena *arena,
                               float *common, float ***out, size_t *first)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks, rows = p->in.calib.begin[p->in.calib.n];
    *first = n_blocks;
    CALM_TRY(CALM_NEW(ctx, arena, *out, n_blocks * CALM_N_JOBS));
    /* Blocks that another rank captures, or that are only passed through, have no factors. */
    for (size_t b = missing->end; b-- > 0;) {
        if (!computes(p, missing, b))
            continue;
        *first = b;
        for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
            if (common)
                (*out)[b * CALM_N_JOBS + kind] = common;
            else if (has_job(p, b, kind))
                CALM_TRY(CALM_NEW_RAW(ctx, arena, (*out)[b * CALM_N_JOBS + kind], rows));
    }
    return CALM_OK;
}

/* Computes the factors of blocks from first_block on, from gradients. */
static calm_status by_gradients(calm_ctx *ctx, calm_run *p, size_t first_block, float **lengths)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks, rows = p->in.calib.begin[p->in.calib.n];
    calm_gradient_pass pass = {.run = p, .n_windows = p->in.calib.n, .key = "calibration.weight",
                               .stage = CALM_STAGE_WEIGH, .first_block = first_block, .lengths = lengths};
    calm_cluster_place(p->cluster, "the weights of rows");
    {
        CALM_SCOPED_LEND(p->cluster);
        CALM_TRY(calm_gradient_pass_run(ctx, &pass));
    }
    for (size_t i = 0; i < n_blocks * CALM_N_JOBS; i++)
        if (lengths[i] && !calm_capture_factors(lengths[i], rows))
            return calm_fail(ctx, CALM_ENUMERIC, "block %zu: a gradient at the outputs of %s is not finite; leave "
                             "`calibration.weight` gradient out", i / CALM_N_JOBS, calm_job_name(i % CALM_N_JOBS));
    return CALM_OK;
}

calm_status calm_run_weigh_rows(calm_ctx *ctx, calm_run *p, const calm_missing *missing, calm_arena *arena)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks;
    const calm_row_weight weight = calm_inputs_row_weight(&p->in);
    size_t first_block;
    float **lengths, *common = NULL;
    if (weight == CALM_WEIGHT_NONE)
        return CALM_OK;
    /* The first rows of windows have a higher weight in all jobs. */
    if (weight == CALM_WEIGHT_FIRST) {
        CALM_TRY(CALM_NEW_RAW(ctx, arena, common, p->in.calib.begin[p->in.calib.n]));
        calm_capture_first_factors(p->in.calib.begin, p->in.calib.n, common);
    }
    CALM_TRY(new_lengths(ctx, p, missing, arena, common, &lengths, &first_block));
    if (first_block == n_blocks)
        return CALM_OK;
    if (weight == CALM_WEIGHT_GRADIENT)
        CALM_TRY(by_gradients(ctx, p, first_block, lengths));
    p->row_factors = lengths;
    return CALM_OK;
}

size_t calm_run_weigh_rows_bytes(const calm_run *p)
{
    const size_t n_blocks = calm_model_config(p->in.model)->n_blocks, rows = p->in.calib.begin[p->in.calib.n];
    size_t n = 0;
    if (calm_inputs_row_weight(&p->in) == CALM_WEIGHT_NONE)
        return 0;
    if (calm_inputs_row_weight(&p->in) == CALM_WEIGHT_FIRST)
        return CALM_BYTES(float *, n_blocks * CALM_N_JOBS) + CALM_BYTES(float, rows);
    for (size_t b = p->in.first_block; b < p->in.end_block; b++)
        for (calm_job_kind kind = 0; kind < CALM_N_JOBS; kind++)
            n += has_job(p, b, kind);
    return CALM_BYTES(float *, n_blocks * CALM_N_JOBS) + n * CALM_BYTES(float, rows);
}
