/* Importance: sums of squares equal those of a naive run that observes every job's input; and the files with them. */
#include "ptq/calib/importance.h"

#include "ptq/base/file.h"
#include "ptq/export/export.h"
#include "ptq/gguf/gguf_names.h"
#include "ptq/io/gguf.h"
#include "ptq/model/forward.h"
#include "tests/support/harness.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_plan.h"

static const size_t lengths[] = {9, 5, 12};

/* ---- the naive run ---- */

typedef struct watch {
    const calm_model *model;
    size_t block;
    double *sums[64];      /* by job */
    size_t rows[64];
} watch;

static calm_status see(void *user, calm_ctx *task, const calm_observation *seen)
{
    watch *to = user;
    const calm_layout *layout = calm_model_layout(to->model);
    (void)task;
    for (size_t j = layout->block_begin[to->block]; j < layout->block_begin[to->block + 1]; j++) {
        const calm_job_ref *job = &layout->jobs[j];
        if (calm_job_input(job->kind) != seen->hook || (job->expert != seen->expert && job->expert != CALM_NO_EXPERT))
            continue;
        to->rows[j] += seen->n_rows;
        for (size_t t = 0; t < seen->n_rows; t++)
            for (size_t i = 0; i < seen->width; i++)
                to->sums[j][i] += (double)seen->x[t * seen->width + i] * (double)seen->x[t * seen->width + i];
    }
    return CALM_OK;
}

static void run_naive(const calm_model *model, const calm_windows *windows, watch *out)
{
    const calm_config *config = calm_model_config(model);
    const calm_layout *layout = calm_model_layout(model);
    const calm_observer observer = {see, out};
    calm_rope rope;
    calm_batch batch;
    *out = (watch){.model = model};
    ck_assert_uint_le(layout->n_jobs, 64);
    for (size_t j = 0; j < layout->n_jobs; j++)
        ck_ok(CALM_NEW(ctx, ctx->out, out->sums[j], layout->jobs[j].in));
    ctx->n_threads = 1;    /* the observer is not shared */
    ck_ok(calm_rope_init(ctx, config, calm_windows_reach(windows), &rope));
    ck_ok(calm_batch_embed(ctx, model, windows, 0, windows->n, ctx->out, NULL, &batch));
    for (out->block = 0; out->block < config->n_blocks; out->block++) {
        calm_block block;
        ck_ok(calm_model_load_block(ctx, model, out->block, &block));
        ck_ok(calm_batch_block(ctx, &block, &rope, &batch, &observer));
    }
    calm_batch_close(&batch);
}

static void check_family(const char *family)
{
    const tiny_model spec = tiny_of(family);
    const calm_windows windows = tiny_windows(lengths, 3);
    calm_model *model;
    calm_importance one, four;
    watch naive;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    run_naive(model, &windows, &naive);
    ck_ok(calm_importance_collect(ctx, model, &windows, "a text", NULL, NULL, NULL, &one));
    ctx->n_threads = 4;
    ck_ok(calm_importance_collect(ctx, model, &windows, "a text", NULL, NULL, NULL, &four));
    ck_assert_uint_eq(one.n_jobs, calm_model_layout(model)->n_jobs);
    ck_assert_uint_eq(one.n_windows, 3);
    ck_assert_uint_eq(one.window, 12);
    for (size_t j = 0; j < one.n_jobs; j++) {
        const char *name = calm_model_layout(model)->jobs[j].name;
        ck_assert_msg(one.jobs[j].rows == naive.rows[j], "%s: %zu rows, expected %zu", name, one.jobs[j].rows,
                      naive.rows[j]);
        ck_assert(memcmp(one.jobs[j].sumsq, four.jobs[j].sumsq, one.jobs[j].width * sizeof(double)) == 0);
        for (size_t i = 0; i < one.jobs[j].width; i++)    /* doubles added in another order: 26 terms, 2^-53 each */
            ck_near(one.jobs[j].sumsq[i], naive.sums[j][i], 26 * 0x1p-52 * naive.sums[j][i]);
    }
    calm_model_close(model);
}

TEST(sums_of_squares)
{
    for (size_t f = 0; tiny_families[f]; f++)
        if (strncmp(tiny_families[f], "bert", 4) != 0)
            check_family(tiny_families[f]);
}
END_OF_TEST

/* ---- the files ---- */

static const calm_exporter *find(const char *name)
{
    const calm_exporter *found;
    ck_ok(calm_exporter_find(ctx, name, &found));
    return found;
}

static void check_imatrix(const char *family)
{
    const tiny_model spec = tiny_of(family);
    const calm_windows windows = tiny_windows(lengths, 3);
    const char *dir = test_directory();
    calm_importance importance;
    calm_gguf *file;
    tiny_plan p;
    int64_t chunk;
    tiny_plan_open(&p, tiny_model_write(&spec));
    const calm_layout *layout = calm_model_layout(p.model);
    ck_ok(calm_importance_collect(ctx, p.model, &windows, "a text", NULL, NULL, NULL, &importance));
    const calm_export_options options = {.importance = &importance};
    const calm_export_input input = {.model = p.model, .plan = &p.plan, .options = &options};
    ck_ok(find("imatrix")->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, find("imatrix"), &input, dir));
    ck_ok(calm_gguf_open(ctx, test_format("%s/imatrix.gguf", dir), &file));
    ck_assert(calm_gguf_is(calm_gguf_find_key(file, "general.type"), "imatrix"));
    ck_assert(calm_gguf_int(calm_gguf_find_key(file, "imatrix.chunk_size"), 0, &chunk) && chunk == 12);
    ck_assert(calm_gguf_int(calm_gguf_find_key(file, "imatrix.chunk_count"), 0, &chunk) && chunk == 3); /* 26 tokens */
    for (size_t j = 0; j < layout->n_jobs; j++)
        for (size_t l = layout->jobs[j].first; l < layout->jobs[j].first + layout->jobs[j].n; l++) {
            const size_t expert = layout->jobs[j].expert > 0 ? (size_t)layout->jobs[j].expert : 0;
            calm_gguf_spot spot;
            bool known;
            float row[256], count[64];
            const calm_config *config = calm_model_config(p.model);
            ck_ok(calm_gguf_spot_of(ctx, config->arch, calm_gguf_arch_in(config), calm_model_prefix(p.model),
                                    test_format("%s.weight", layout->linears[l].module), &spot, &known));
            ck_assert(known);
            const calm_gguf_tensor *sums = calm_gguf_find_tensor(file, test_format("%s.in_sum2", spot.name));
            const calm_gguf_tensor *counts = calm_gguf_find_tensor(file, test_format("%s.counts", spot.name));
            ck_assert(sums && counts);
            ck_assert_uint_eq(sums->dims[0], layout->jobs[j].in);
            ck_assert_uint_eq(sums->dims[1], layout->jobs[j].expert >= 0 ? spec.n_experts : 1);
            ck_ok(calm_gguf_to_f32(ctx, file, sums, expert, 1, row));
            ck_ok(calm_gguf_to_f32(ctx, file, counts, 0, counts->dims[1], count));
            ck_assert(count[expert] == (float)importance.jobs[j].rows);
            for (size_t i = 0; i < layout->jobs[j].in; i++)
                ck_assert(row[i] == (float)importance.jobs[j].sumsq[i]);
        }
    for (size_t i = 1; i < calm_gguf_n_tensors(file); i += 2)    /* sorted, sums before counts */
        ck_assert(i < 2 || strcmp(calm_gguf_tensor_at(file, i - 2)->name, calm_gguf_tensor_at(file, i)->name) < 0);
    calm_gguf_close(file);
    calm_model_close(p.model);
}

TEST(imatrix)
{
    check_imatrix("llama");
    check_imatrix("qwen2_moe");
    check_imatrix("distilbert");
    check_imatrix("modernbert");
}
END_OF_TEST

TEST(imatrix_needs_a_text)
{
    const tiny_model spec = tiny_of("llama"), mpnet = tiny_of("mpnet");
    tiny_plan p;
    tiny_plan_open(&p, tiny_model_write(&spec));
    calm_export_input input = {.model = p.model, .plan = &p.plan};
    ck_fails(calm_exporter_write(ctx, find("imatrix"), &input, test_directory()), CALM_EARG,
             "it is made of a calibration text, and none was run");
    calm_model_close(p.model);
    tiny_plan_open(&p, tiny_model_write(&mpnet));
    input = (calm_export_input){.model = p.model, .plan = &p.plan};
    ck_fails(find("imatrix")->check(ctx, &input), CALM_EUNSUPPORTED, "mpnet");
    ck_fails(find("tensor_types")->check(ctx, &input), CALM_EUNSUPPORTED, "mpnet");
    calm_model_close(p.model);
}
END_OF_TEST

static const char *types_of(const tiny_plan *p)
{
    const calm_export_input input = {.model = p->model, .plan = &p->plan};
    const char *dir = test_directory();
    char *text;
    size_t n;
    ck_ok(find("tensor_types")->check(ctx, &input));
    ck_ok(calm_exporter_write(ctx, find("tensor_types"), &input, dir));
    ck_ok(calm_read_file(ctx, test_format("%s/tensor-types.txt", dir), 1 << 20, &text, &n));
    return text;
}

TEST(tensor_types)
{
    static const char *const schemes[] = {"w4a16_g32", "w8a8", "w4a16_g32_asym", "float"};
    tiny_model spec = tiny_wide("llama"), wide = tiny_wide("llama"), moe = tiny_wide("qwen3_moe");
    tiny_plan p;
    spec.n_blocks = wide.n_blocks = 1;
    tiny_plan_open(&p, tiny_model_write(&spec));
    tiny_plan_quantize_all(&p, schemes, 4, TINY_UNSCALED);
    ck_assert_str_eq(types_of(&p),
                     "blk\\.0\\.attn_q\\.weight=q4_0\nblk\\.0\\.attn_k\\.weight=q4_0\nblk\\.0\\.attn_v\\.weight=q4_0\n"
                     "blk\\.0\\.attn_output\\.weight=q8_0\nblk\\.0\\.ffn_gate\\.weight=q4_1\n"
                     "blk\\.0\\.ffn_up\\.weight=q4_1\nblk\\.0\\.ffn_down\\.weight=bf16\n");
    calm_model_close(p.model);
    wide.inner = 256;
    tiny_plan_open(&p, tiny_model_write(&wide));
    static const char *const low[] = {"w2a16_g32", "w3a16_g32"};
    tiny_plan_quantize_all(&p, low, 2, TINY_UNSCALED);
    const char *types = types_of(&p);
    ck_assert_ptr_nonnull(strstr(types, "attn_q\\.weight=q4_0\n"));     /* 64 columns */
    ck_assert_ptr_nonnull(strstr(types, "ffn_down\\.weight=q3_K\n"));
    calm_model_close(p.model);
    tiny_plan_open(&p, tiny_model_write(&moe));
    const calm_layout *layout = calm_model_layout(p.model);
    for (size_t j = 0; j < layout->n_jobs; j++)
        tiny_plan_quantize(&p, j, layout->jobs[j].expert == 3 ? "w8a16_g32" : "w4a16_g32", TINY_UNSCALED);
    types = types_of(&p);
    ck_assert_ptr_nonnull(strstr(types, "blk\\.0\\.ffn_gate_exps\\.weight=q8_0\n"));
    ck_assert_ptr_nonnull(strstr(types, "blk\\.1\\.attn_output\\.weight=q4_0\n"));
    ck_assert_ptr_null(strstr(types, "experts"));
    calm_model_close(p.model);
}
END_OF_TEST

/* On one thread a dense model holds all of the estimate; in a mixture an expert could have had more tokens, so at
 * least half. */
static void check_memory(const char *family)
{
    static const size_t same[] = {70, 70, 70, 70};
    const calm_windows windows = tiny_windows(same, 4);
    const bool mixture = strstr(family, "moe") != NULL;
    tiny_model spec = tiny_of(family);
    calm_importance sums;
    calm_model *model;
    spec.hidden = 256;
    spec.head_dim = 64;
    spec.inner = 512;
    spec.expert_inner = spec.shared_inner = 384;
    ck_ok(calm_model_open(ctx, tiny_model_write(&spec), &model));
    const size_t left = calm_importance_collect_bytes(model, 70);
    const size_t held = calm_importance_collect_scratch_bytes(model, 4, 70, 1);
    ctx->n_threads = 1;
    ck_memory_of_workers(calm_importance_collect(ctx, model, &windows, "a text", NULL, NULL, NULL, &sums), left,
                         held, 4, mixture ? held / 2 : 0);
    calm_model_close(model);
}

TEST(memory)
{
    check_memory("qwen3");
    check_memory("bert");
    check_memory("qwen2_moe");
    check_memory("qwen3_moe");
}
END_OF_TEST

int main(void)
{
    return run_tests("importance",
                     (const TTest *[]){sums_of_squares, imatrix, imatrix_needs_a_text, tensor_types, memory, NULL});
}
