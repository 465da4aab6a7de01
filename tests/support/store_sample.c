/* The small store. */
#include "tests/support/store_sample.h"

#include "tests/support/harness.h"

const calm_store_how sample_writing = {.mode = CALM_STORE_WRITE, .command = "calm test"};

const char *sample_path(void)
{
    return test_format("%s/calm.db", test_directory());
}

calm_store *sample_open(const char *path, calm_store_mode mode)
{
    calm_store *store;
    calm_store_how how = sample_writing;
    how.mode = mode;
    ck_ok(calm_store_open(ctx, path, &how, &store));
    return store;
}

int64_t sample_number(calm_store *store, const char *sql)
{
    calm_value value;
    ck_ok(calm_store_query_one(ctx, store, sql, NULL, 0, &value, 1));
    return value.integer;
}

const char *sample_text(calm_store *store, const char *sql)
{
    calm_value value;
    ck_ok(calm_store_query_one(ctx, store, sql, NULL, 0, &value, 1));
    return value.type == CALM_VALUE_TEXT ? value.text : NULL;
}

const calm_store_model sample_model = {.digest = "m1", .name = "qwen", .path = "/models/qwen",
                                           .architecture = "Qwen3ForCausalLM", .dtype = "bfloat16",
                                           .n_params = 5000000, .n_blocks = 1, .hidden_size = 64,
                                           .vocab_size = 100, .bytes = 10000000};
const calm_store_calibration sample_calibration = {.key = "c1", .text_name = "bundled", .text_digest = "t1",
                                                       .tokens_digest = "t2", .n_windows = 128,
                                                       .window_tokens = 512, .n_tokens = 65536, .seed = -1,
                                                       .score_windows = 8};

sample sample_fill(calm_store *store)
{
    sample s;
    ck_ok(calm_store_model_id(ctx, store, &sample_model, &s.model));
    ck_ok(calm_store_calibration_id(ctx, store, &sample_calibration, &s.calibration));
    calm_store_block block = {.model_id = s.model, .number = 0, .name = "model.layers.0", .kind = "decoder"};
    ck_ok(calm_store_block_id(ctx, store, &block, &s.block));
    calm_store_job qkv = {.block_id = s.block, .role = "qkv", .position = 0, .name = "model.layers.0.self_attn.qkv",
                          .sublayer = "attention", .linears = "q k v", .out = 128, .in = 64,
                          .weights_digest = "w1", .input_hook = "model.layers.0.self_attn.qkv.input"};
    calm_store_job down = {.block_id = s.block, .role = "down", .position = 3, .name = "model.layers.0.mlp.down",
                           .sublayer = "mlp", .linears = "down", .out = 64, .in = 192, .weights_digest = "w2"};
    ck_ok(calm_store_job_id(ctx, store, &down, &s.down));
    ck_ok(calm_store_job_id(ctx, store, &qkv, &s.qkv));
    calm_store_run run = {.key = "r1", .model_id = s.model, .calibration_id = s.calibration,
                          .command = "calm quantize --model qwen", .recipe = "{\"bits\":4}", .rule = "default",
                          .metric = "cka_token", .version = "0.1.0", .n_threads = 2};
    ck_ok(calm_store_run_begin(ctx, store, &run, &s.run, NULL));
    return s;
}
