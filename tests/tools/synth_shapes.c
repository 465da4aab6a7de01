/* Shapes of published models, and a tiny one per family.  The members of config.json are those on the hub. */
#include "tests/tools/synth.h"

#include <string.h>

#define TWO_NORMS (const char *const[]){"input_layernorm", "post_attention_layernorm", NULL}
#define POST_NORMS (const char *const[]){"post_attention_layernorm", "post_feedforward_layernorm", NULL}
#define FOUR_NORMS (const char *const[]){"input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", \
                                         "post_feedforward_layernorm", NULL}

/* The shape fills in sizes of 0; null stays. */
#define SIZES "\"hidden_size\": 0, \"intermediate_size\": 0, \"num_attention_heads\": 0, \"num_hidden_layers\": 0, " \
              "\"vocab_size\": 0, \"initializer_range\": 0.02, \"use_cache\": true, \"torch_dtype\": \"\""
#define DECODER SIZES ", \"num_key_value_heads\": 0, \"attention_dropout\": 0.0"

static const synth_family llama = {.norms = TWO_NORMS, .config =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"transformers_version\": \"4.43.0\", "
    DECODER ", \"attention_bias\": false, \"bos_token_id\": 128000, \"eos_token_id\": 128001, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 131072, \"mlp_bias\": false, \"pretraining_tp\": 1, "
    "\"rms_norm_eps\": 1e-05, \"rope_scaling\": null, \"rope_theta\": 500000.0, \"tie_word_embeddings\": false}"};

static const synth_family mistral = {.norms = TWO_NORMS, .config =
    "{\"architectures\": [\"MistralForCausalLM\"], \"model_type\": \"mistral\", "
    "\"transformers_version\": \"4.34.0.dev0\", " DECODER ", \"bos_token_id\": 1, \"eos_token_id\": 2, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-05, "
    "\"rope_theta\": 10000.0, \"sliding_window\": 4096, \"tie_word_embeddings\": false}"};

static const synth_family qwen2 = {.norms = TWO_NORMS, .flags = SYNTH_QKV_BIAS | SYNTH_LAYER_TYPES, .config =
    "{\"architectures\": [\"Qwen2ForCausalLM\"], \"model_type\": \"qwen2\", \"transformers_version\": \"4.40.1\", "
    DECODER ", \"bos_token_id\": 151643, \"eos_token_id\": 151643, \"hidden_act\": \"silu\", "
    "\"max_position_embeddings\": 32768, \"max_window_layers\": 0, \"rms_norm_eps\": 1e-06, "
    "\"rope_theta\": 1000000.0, \"sliding_window\": 32768, \"tie_word_embeddings\": false, \"use_mrope\": false, "
    "\"use_sliding_window\": false}"};

#define QWEN3 DECODER ", \"attention_bias\": false, \"bos_token_id\": 151643, \"eos_token_id\": 151645, " \
    "\"head_dim\": 0, \"hidden_act\": \"silu\", \"max_position_embeddings\": 40960, \"max_window_layers\": 0, " \
    "\"rms_norm_eps\": 1e-06, \"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": null, " \
    "\"tie_word_embeddings\": false, \"transformers_version\": \"4.51.0\", \"use_sliding_window\": false"

static const synth_family qwen3 = {.norms = TWO_NORMS, .flags = SYNTH_HEAD_NORM | SYNTH_LAYER_TYPES, .config =
    "{\"architectures\": [\"Qwen3ForCausalLM\"], \"model_type\": \"qwen3\", " QWEN3 "}"};

static const synth_family qwen3_moe = {.norms = TWO_NORMS, .flags = SYNTH_HEAD_NORM | SYNTH_EXPERTS, .config =
    "{\"architectures\": [\"Qwen3MoeForCausalLM\"], \"model_type\": \"qwen3_moe\", " QWEN3
    ", \"decoder_sparse_step\": 1, \"mlp_only_layers\": [], \"moe_intermediate_size\": 0, \"norm_topk_prob\": true, "
    "\"num_experts\": 0, \"num_experts_per_tok\": 0, \"output_router_logits\": false, "
    "\"router_aux_loss_coef\": 0.001}"};

static const synth_family gemma2 = {.norms = FOUR_NORMS, .flags = SYNTH_GEMMA | SYNTH_LAYER_TYPES, .config =
    "{\"architectures\": [\"Gemma2ForCausalLM\"], \"model_type\": \"gemma2\", \"transformers_version\": \"4.42.4\", "
    DECODER ", \"attention_bias\": false, \"attn_logit_softcapping\": 50.0, \"bos_token_id\": 2, "
    "\"cache_implementation\": \"hybrid\", \"eos_token_id\": 1, \"final_logit_softcapping\": 30.0, \"head_dim\": 0, "
    "\"hidden_act\": \"gelu_pytorch_tanh\", \"hidden_activation\": \"gelu_pytorch_tanh\", "
    "\"max_position_embeddings\": 8192, \"pad_token_id\": 0, \"query_pre_attn_scalar\": 256, "
    "\"rms_norm_eps\": 1e-06, \"rope_theta\": 10000.0, \"sliding_window\": 4096}"};

static const synth_family gemma3 = {.norms = FOUR_NORMS, .config =
    "{\"architectures\": [\"Gemma3ForCausalLM\"], \"model_type\": \"gemma3_text\", "
    "\"transformers_version\": \"4.50.0.dev0\", " DECODER ", \"attention_bias\": false, "
    "\"attn_logit_softcapping\": null, \"bos_token_id\": 2, \"cache_implementation\": \"hybrid\", "
    "\"eos_token_id\": [1, 106], \"final_logit_softcapping\": null, \"head_dim\": 0, "
    "\"hidden_activation\": \"gelu_pytorch_tanh\", \"max_position_embeddings\": 32768, \"pad_token_id\": 0, "
    "\"query_pre_attn_scalar\": 256, \"rms_norm_eps\": 1e-06, \"rope_local_base_freq\": 10000, "
    "\"rope_scaling\": null, \"rope_theta\": 1000000, \"sliding_window\": 512, \"sliding_window_pattern\": 6}",
    .flags = SYNTH_GEMMA | SYNTH_HEAD_NORM | SYNTH_LAYER_TYPES};

static const synth_family phi3 = {.norms = TWO_NORMS, .flags = SYNTH_FUSED, .config =
    "{\"architectures\": [\"Phi3ForCausalLM\"], \"model_type\": \"phi3\", \"transformers_version\": \"4.40.2\", "
    DECODER ", \"attention_bias\": false, \"bos_token_id\": 1, \"embd_pdrop\": 0.0, \"eos_token_id\": 32000, "
    "\"hidden_act\": \"silu\", \"max_position_embeddings\": 4096, \"original_max_position_embeddings\": 4096, "
    "\"pad_token_id\": 32000, \"resid_pdrop\": 0.0, \"rms_norm_eps\": 1e-05, \"rope_scaling\": null, "
    "\"rope_theta\": 10000.0, \"sliding_window\": 2047, \"tie_word_embeddings\": false}"};

static const synth_family olmo2 = {.norms = POST_NORMS, .flags = SYNTH_WIDE_NORM, .config =
    "{\"architectures\": [\"Olmo2ForCausalLM\"], \"model_type\": \"olmo2\", \"transformers_version\": \"4.47.0\", "
    DECODER ", \"attention_bias\": false, \"eos_token_id\": 100257, \"hidden_act\": \"silu\", "
    "\"max_position_embeddings\": 4096, \"pad_token_id\": 100277, \"rms_norm_eps\": 1e-06, \"rope_scaling\": null, "
    "\"rope_theta\": 500000, \"tie_word_embeddings\": false}"};

/* Without the block that predicts a second token, which calm's forward pass does not read. */
#define DEEPSEEK_V3 \
    "{\"architectures\": [\"DeepseekV3ForCausalLM\"], \"model_type\": \"deepseek_v3\", " \
    "\"transformers_version\": \"4.33.1\", " DECODER ", \"attention_bias\": false, \"aux_loss_alpha\": 0.001, " \
    "\"bos_token_id\": 0, \"eos_token_id\": 1, \"ep_size\": 1, \"first_k_dense_replace\": 3, " \
    "\"hidden_act\": \"silu\", " \
    "\"kv_lora_rank\": 512, \"max_position_embeddings\": 163840, \"moe_intermediate_size\": 0, " \
    "\"moe_layer_freq\": 1, \"n_group\": 8, \"n_routed_experts\": 0, \"n_shared_experts\": 1, " \
    "\"norm_topk_prob\": true, \"num_experts_per_tok\": 0, \"num_nextn_predict_layers\": 0, \"pretraining_tp\": 1, " \
    "\"q_lora_rank\": 1536, \"qk_nope_head_dim\": 128, \"qk_rope_head_dim\": 64, \"rms_norm_eps\": 1e-06, " \
    "\"rope_scaling\": {\"beta_fast\": 32, \"beta_slow\": 1, \"factor\": 40, \"mscale\": 1.0, " \
    "\"mscale_all_dim\": 1.0, \"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, " \
    "\"rope_theta\": 10000, \"routed_scaling_factor\": 2.5, \"scoring_func\": \"sigmoid\", \"seq_aux\": true, " \
    "\"tie_word_embeddings\": false, \"topk_group\": 4, \"topk_method\": \"noaux_tc\", \"v_head_dim\": 128}"

static const synth_family deepseek_v3 = {.norms = TWO_NORMS, .flags = SYNTH_EXPERTS, .config = DEEPSEEK_V3,
                                         .latent = &(const synth_latent){1536, 512, 128, 64, 128, 3}};
static const synth_family kimi_k2 = {.norms = TWO_NORMS, .flags = SYNTH_EXPERTS, .config = DEEPSEEK_V3,
                                     .latent = &(const synth_latent){1536, 512, 128, 64, 128, 1}};

/* Members in which Kimi-K2 differs. */
#define KIMI "\"model_type\": \"kimi_k2\", \"bos_token_id\": 163584, \"eos_token_id\": 163585, " \
    "\"first_k_dense_replace\": 1, \"max_position_embeddings\": 131072, \"n_group\": 1, \"rope_scaling\": " \
    "{\"beta_fast\": 1.0, \"beta_slow\": 1.0, \"factor\": 32.0, \"mscale\": 1.0, \"mscale_all_dim\": 1.0, " \
    "\"original_max_position_embeddings\": 4096, \"type\": \"yarn\"}, \"rope_theta\": 50000.0, " \
    "\"routed_scaling_factor\": 2.827, \"topk_group\": 1"

static const synth_family bert = {.norms = NULL, .flags = SYNTH_ENCODER, .config =
    "{\"architectures\": [\"BertModel\"], \"model_type\": \"bert\", \"transformers_version\": \"4.8.2\", " SIZES
    ", \"attention_probs_dropout_prob\": 0.1, \"gradient_checkpointing\": false, \"hidden_act\": \"gelu\", "
    "\"hidden_dropout_prob\": 0.1, \"layer_norm_eps\": 1e-12, \"max_position_embeddings\": 0, "
    "\"pad_token_id\": 0, \"position_embedding_type\": \"absolute\", \"type_vocab_size\": 2}"};

#define LLAMA3(factor) "\"rope_scaling\": {\"factor\": " factor ", \"high_freq_factor\": 4.0, " \
    "\"low_freq_factor\": 1.0, \"original_max_position_embeddings\": 8192, \"rope_type\": \"llama3\"}"
#define SHORT_LLAMA3 "\"rope_scaling\": {\"factor\": 8.0, \"high_freq_factor\": 4.0, \"low_freq_factor\": 1.0, " \
    "\"original_max_position_embeddings\": 64, \"rope_type\": \"llama3\"}"
/* Ids of the demo tokenizer; short windows, so that tests reach past them. */
#define TINY "\"bos_token_id\": 4093, \"eos_token_id\": 4093, \"max_position_embeddings\": 1024"
#define TINY_PAD ", \"pad_token_id\": 4093"
#define TINY_GEMMA ", \"query_pre_attn_scalar\": 24, \"sliding_window\": 16"

/* In the order of the struct: name, family; blocks, hidden, inner, heads, kv, head_dim, vocab; tied; experts, top,
 * expert_inner; positions; extra. */
const synth_shape synth_shapes[] = {
    {"qwen3-0.6b", &qwen3, 28, 1024, 3072, 16, 8, 128, 151936, true, 0, 0, 0, 0, NULL},
    {"qwen3-8b", &qwen3, 36, 4096, 12288, 32, 8, 128, 151936, false, 0, 0, 0, 0, NULL},
    {"qwen3-32b", &qwen3, 64, 5120, 25600, 64, 8, 128, 151936, false, 0, 0, 0, 0, NULL},
    {"qwen3-30b-a3b", &qwen3_moe, 48, 2048, 6144, 32, 4, 128, 151936, false, 128, 8, 768, 0, NULL},
    {"qwen2.5-0.5b", &qwen2, 24, 896, 4864, 14, 2, 64, 151936, true, 0, 0, 0, 0, NULL},
    {"qwen2.5-32b", &qwen2, 64, 5120, 27648, 40, 8, 128, 152064, false, 0, 0, 0, 0, NULL},
    {"llama3.2-1b", &llama, 16, 2048, 8192, 32, 8, 64, 128256, true, 0, 0, 0, 0, "\"head_dim\": 0, " LLAMA3("32.0")},
    {"llama3.1-8b", &llama, 32, 4096, 14336, 32, 8, 128, 128256, false, 0, 0, 0, 0, LLAMA3("8.0")},
    {"llama3.3-70b", &llama, 80, 8192, 28672, 64, 8, 128, 128256, false, 0, 0, 0, 0, LLAMA3("8.0")},
    {"mistral-7b", &mistral, 32, 4096, 14336, 32, 8, 128, 32000, false, 0, 0, 0, 0, NULL},
    {"gemma2-2b", &gemma2, 26, 2304, 9216, 8, 4, 256, 256000, true, 0, 0, 0, 0, NULL},
    {"gemma3-1b", &gemma3, 26, 1152, 6912, 4, 1, 256, 262144, true, 0, 0, 0, 0, NULL},
    {"phi3-mini", &phi3, 32, 3072, 8192, 32, 32, 96, 32064, false, 0, 0, 0, 0, NULL},
    {"olmo2-1b", &olmo2, 16, 2048, 8192, 16, 16, 128, 100352, false, 0, 0, 0, 0, NULL},
    {"deepseek-v3", &deepseek_v3, 61, 7168, 18432, 128, 128, 192, 129280, false, 256, 8, 2048, 0, NULL},
    {"kimi-k2", &kimi_k2, 61, 7168, 18432, 64, 64, 192, 163840, false, 384, 8, 2048, 0, KIMI},
    {"minilm", &bert, 6, 384, 1536, 12, 12, 32, 30522, true, 0, 0, 0, 512, NULL},
    {"tiny-qwen3", &qwen3, 3, 96, 160, 4, 2, 32, 4096, true, 0, 0, 0, 0, TINY},
    {"tiny-qwen3-moe", &qwen3_moe, 2, 64, 128, 4, 2, 24, 4096, false, 8, 2, 40, 0, TINY},
    {"tiny-qwen2", &qwen2, 2, 96, 144, 6, 2, 16, 4096, true, 0, 0, 0, 0, TINY},
    {"tiny-llama", &llama, 2, 80, 112, 5, 1, 16, 4096, false, 0, 0, 0, 0, TINY ", \"head_dim\": 0, " SHORT_LLAMA3},
    {"tiny-mistral", &mistral, 2, 64, 112, 4, 2, 16, 4096, false, 0, 0, 0, 0, TINY ", \"sliding_window\": 16"},
    {"tiny-gemma2", &gemma2, 3, 64, 96, 4, 2, 24, 4096, true, 0, 0, 0, 0, TINY TINY_GEMMA},
    {"tiny-gemma3", &gemma3, 7, 64, 96, 4, 1, 24, 4096, true, 0, 0, 0, 0, TINY TINY_GEMMA},
    {"tiny-phi3", &phi3, 2, 64, 96, 4, 2, 16, 4096, false, 0, 0, 0, 0, TINY TINY_PAD ", \"sliding_window\": 16"},
    {"tiny-olmo2", &olmo2, 2, 64, 96, 4, 4, 16, 4096, false, 0, 0, 0, 0, TINY TINY_PAD},
    {"tiny-bert", &bert, 2, 64, 96, 4, 4, 16, 4096, true, 0, 0, 0, 128, NULL},
    {0}};

calm_status synth_find(calm_ctx *ctx, const char *name, const synth_shape **out)
{
    const char *names[sizeof synth_shapes / sizeof *synth_shapes], *near;
    size_t n = 0;
    for (const synth_shape *shape = synth_shapes; shape->name; shape++) {
        *out = shape;
        if (strcmp(shape->name, name) == 0)
            return CALM_OK;
        names[n++] = shape->name;
    }
    *out = NULL;
    near = calm_nearest(name, names, n);
    return calm_fail(ctx, CALM_EARG, "no shape %s%s%s", name, near ? "; did you mean " : " (--list names them)",
                     near ? near : "");
}

calm_dtype synth_dtype(const synth_shape *shape)
{
    return shape->family->flags & SYNTH_ENCODER ? CALM_F32 : CALM_BF16;
}
