/* Faults: the list. */
#include "tests/tools/break_faults.h"

#define QC "quantization_config/"
#define GROUP QC "config_groups/group_00/"
#define Q0 "model.layers.0.self_attn.q_proj"
#define UP0 "layers.0.mlp.up_proj"

const break_fault break_faults[] = {
    /* files */
    {"header_cut", "ct", "ST001", "model.safetensors", BREAK_TEXT, "model.safetensors", "0123456789", 0, 0},
    {"header_not_json", "ct", "ST001", "", BREAK_HEADER, "{\"", "{{", 0, 0},
    {"dtype_unknown", "ct", "ST002", "", BREAK_HEADER, "\"BF16\"", "\"XF16\"", 0, 0},
    {"file_cut", "ct", "ST003", "", BREAK_CUT, "model.safetensors", "64", 0, 0},
    {"bytes_behind", "ct", "ST005", "model.safetensors", BREAK_APPEND, "model.safetensors", "spare", 0, 0},
    {"index_empty", "ct-shards", "ST007", "", BREAK_SET, "weight_map", "{}", "model.safetensors.index.json", 0},
    {"index_not_json", "ct-shards", "ST007", "", BREAK_TEXT, "model.safetensors.index.json", "{", 0, 0},
    {"shard_missing", "ct-shards", "ST008", "", BREAK_REMOVE, "model-00002-of-00002.safetensors", 0, 0, 0},
    {"index_wrong_file", "ct-shards", "ST009", UP0 ".weight_packed", BREAK_SET,
     "weight_map/model." UP0 ".weight_packed",
     "\"model-00002-of-00002.safetensors\"", "model.safetensors.index.json", 0},
    {"index_of_nothing", "ct-shards", "ST009", "model.ghost.weight", BREAK_SET, "weight_map/model.ghost.weight",
     "\"model-00002-of-00002.safetensors\"", "model.safetensors.index.json", 0},
    {"index_lacks_tensor", "ct-shards", "ST010", UP0 ".weight_scale", BREAK_SET,
     "weight_map/model." UP0 ".weight_scale", 0,
     "model.safetensors.index.json", 0},
    {"index_total", "ct-shards", "ST011", "", BREAK_SET, "metadata/total_size", "1", "model.safetensors.index.json", 0},

    /* model */
    {"config_missing", "ct", "MD001", "config.json", BREAK_REMOVE, "config.json", 0, 0, 0},
    {"config_array", "ct", "MD001", "config.json", BREAK_TEXT, "config.json", "[]", 0, 0},
    {"config_heads", "ct", "MD003", "config.json", BREAK_SET, "num_key_value_heads", "3", 0, 0},
    {"norm_missing", "ct", "MD004", "layers.1.input_layernorm.weight", BREAK_DROP, "layers.1.input_layernorm.weight",
     0, 0, 0},
    {"vocab_wrong", "ct", "MD005", "embed_tokens", BREAK_SET, "vocab_size", "60", 0, 0},
    {"norm_integers", "ct", "MD006", "model.norm.weight", BREAK_DTYPE, "model.norm.weight", "I16", 0, 0},
    {"block_too_many", "ct", "MD007", "model.layers.1", BREAK_SET, "num_hidden_layers", "1", 0, 0},
    {"module_unknown", "ct", "MD007", "layers.0.mlp.side", BREAK_COPY, "layers.0.input_layernorm.weight",
     "layers.0.mlp.side.weight", 0, 0},
    {"tokenizer_missing", "ct", "MD008", "", BREAK_REMOVE, "tokenizer.json", 0, 0, 0},
    {"tokenizer_broken", "ct", "MD009", "tokenizer.json", BREAK_TEXT, "tokenizer.json", "{\"model\":", 0, 0},
    {"tokenizer_larger", "ct", "MD010", "tokenizer.json", BREAK_SET, "model/vocab/beyond", "100000", "tokenizer.json",
     0},
    {"entry_missing", "ct", "MD011", "model.layers.0", BREAK_SET, "quantization_config", 0, 0, 0},
    {"method_misspelt", "ct", "MD012", "quantization_config", BREAK_SET, QC "quant_method", "\"compressed_tensors\"",
     0, 0},
    {"group_does_not_divide", "ct", "MD014", Q0, BREAK_SET, GROUP "weights/group_size", "48", 0, 0},

    /* compressed-tensors */
    {"method_missing", "ct", "CT001", "quantization_config", BREAK_SET, QC "quant_method", 0, 0, 0},
    {"status_missing", "ct", "CT002", "quantization_config", BREAK_SET, QC "quantization_status", 0, 0, 0},
    {"status_frozen", "ct", "CT002", "quantization_config", BREAK_SET, QC "quantization_status", "\"frozen\"", 0, 0},
    {"format_unknown", "ct", "CT003", "quantization_config", BREAK_SET, QC "format", "\"packed\"", 0, 0},
    {"groups_empty", "ct", "CT004", "quantization_config", BREAK_SET, QC "config_groups", "{}", 0, 0},
    {"group_format_missing", "ct-mixed", "CT005", "group_00", BREAK_SET, GROUP "format", 0, 0, 0},
    {"group_key_unknown", "ct", "CT006", "group_00", BREAK_SET, GROUP "note", "\"calm\"", 0, 0},
    {"args_key_unknown", "ct", "CT006", "group_00.weights", BREAK_SET, GROUP "weights/groupsize", "32", 0, 0},
    {"group_size_missing", "ct", "CT007", "group_00.weights", BREAK_SET, GROUP "weights/group_size", "null", 0, 0},
    {"strategy_unknown", "ct", "CT007", "group_00.weights", BREAK_SET, GROUP "weights/strategy", "\"row\"", 0, 0},
    {"bits_zero", "ct", "CT007", "group_00.weights", BREAK_SET, GROUP "weights/num_bits", "0", 0, 0},
    {"int_without_activations", "ct-mixed", "CT008", "group_01", BREAK_SET,
     QC "config_groups/group_01/input_activations", "null", 0, 0},
    {"packed_with_activations", "ct", "CT008", "group_00", BREAK_SET, GROUP "input_activations",
     "{\"num_bits\": 8, \"type\": \"int\", \"symmetric\": true, \"strategy\": \"token\", \"dynamic\": true}", 0, 0},
    {"formats_differ", "ct-mixed", "CT009", "quantization_config", BREAK_SET, QC "format", "\"pack-quantized\"", 0, 0},
    {"mixed_needless", "ct", "CT010", "quantization_config", BREAK_SET, QC "format", "\"mixed-precision\"", 0, 0},
    {"activations_by_group", "ct-mixed", "CT011", "group_01.input_activations", BREAK_SET,
     QC "config_groups/group_01/input_activations/strategy", "\"tensor\"", 0, 0},
    {"sparse_targets", "ct", "CT012", "quantization_config", BREAK_SET, QC "sparsity_config",
     "{\"targets\": [\"Linear\"]}", 0, 0},
    {"three_bits_old_version", "ct-3bit", "CT013", "quantization_config", BREAK_SET, QC "version", "\"0.17.1\"", 0, 0},
    {"five_bits", "ct", "CT014", "group_00.weights", BREAK_SET, GROUP "weights/num_bits", "5", 0, 0},
    {"target_no_pattern", "ct", "CT015", "group_00", BREAK_SET, GROUP "targets/0", "\"re:(\"", 0, 0},
    {"targets_empty", "ct", "CT015", "group_00", BREAK_SET, GROUP "targets", "[]", 0, 0},
    {"target_of_nothing", "ct", "CT016", "group_00", BREAK_SET, GROUP "targets/+", "\"model.layers.9.mlp.up_proj\"", 0,
     0},
    {"ignore_of_nothing", "ct", "CT017", "ignore", BREAK_SET, QC "ignore/+", "\"model.layers.9.mlp.gate\"", 0, 0},
    {"module_untargeted", "ct", "CT018", Q0, BREAK_SET, GROUP "targets/0", 0, 0, 0},
    {"matched_twice", "ct-mixed", "CT019", "model.layers.0", BREAK_SET, QC "config_groups/group_01/targets/+",
     "\"re:model\\\\.layers\\\\.0\\\\..*_proj$\"", 0, 0},
    {"class_and_pattern", "ct-mixed", "CT020", "model.layers", BREAK_SET, QC "config_groups/group_01/targets/+",
     "\"Linear\"", 0, 0},
    {"packed_ignored", "ct", "CT021", Q0, BREAK_SET, QC "ignore/+", "\"" Q0 "\"", 0, 0},
    {"nothing_ignored", "ct-moe", "CT022", "lm_head", BREAK_SET, "quantization_config",
     "{\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", \"format\": "
     "\"pack-quantized\", "
     "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"format\": \"pack-quantized\", \"weights\": "
     "{\"num_bits\": 4, "
     "\"type\": \"int\", \"symmetric\": true, \"strategy\": \"group\", \"group_size\": 32}}}, \"ignore\": []}", 0, 0},
    {"router_targeted", "ct-moe", "CT022", "mlp.gate", BREAK_SET, "quantization_config",
     "{\"quant_method\": \"compressed-tensors\", \"quantization_status\": \"compressed\", \"format\": "
     "\"pack-quantized\", "
     "\"config_groups\": {\"group_0\": {\"targets\": [\"Linear\"], \"format\": \"pack-quantized\", \"weights\": "
     "{\"num_bits\": 4, "
     "\"type\": \"int\", \"symmetric\": true, \"strategy\": \"group\", \"group_size\": 32}}}, \"ignore\": "
     "[\"lm_head\"]}", 0, 0},
    {"head_not_ignored", "ct-moe", "CT023", "lm_head", BREAK_SET, QC "ignore/0", "\"model.embed_tokens\"", 0, 0},
    {"router_not_ignored", "ct-moe", "CT023", "mlp.gate", BREAK_SET, QC "ignore", "[\"lm_head\"]", 0, 0},
    {"attention_target", "ct-mixed", "CT024", "group_01", BREAK_SET, QC "config_groups/group_01/targets",
     "[\"Qwen3Attention\"]", 0, 0},
    {"int_asymmetric", "ct-mixed", "CT025", "group_01", BREAK_SET, QC "config_groups/group_01/weights/symmetric",
     "false", 0, 0},
    {"actorder_group", "ct", "CT026", "group_00.weights", BREAK_SET, GROUP "weights/actorder", "\"group\"", 0, 0},
    {"shape_contradicts", "ct", "CT027", UP0, BREAK_POKE, UP0 ".weight_shape", "0100000000000000", 0, 0},

    /* tensors of modules */
    {"packed_missing", "ct", "TE001", UP0, BREAK_DROP, UP0 ".weight_packed", 0, 0, 0},
    {"scale_missing", "ct", "TE001", UP0, BREAK_DROP, UP0 ".weight_scale", 0, 0, 0},
    {"shape_missing", "ct", "TE001", UP0, BREAK_DROP, UP0 ".weight_shape", 0, 0, 0},
    {"zeros_missing", "ct-asym", "TE001", UP0, BREAK_DROP, UP0 ".weight_zero_point", 0, 0, 0},
    {"zeros_of_symmetric", "ct-asym", "TE002", "model.layers.0", BREAK_SET, GROUP "weights/symmetric", "true", 0, 0},
    {"scale_transposed", "ct", "TE003", UP0, BREAK_SHAPE, UP0 ".weight_scale", 0, 0, 0},
    {"group_size_wrong", "ct", "TE003", Q0, BREAK_SET, GROUP "weights/group_size", "64", 0, 0},
    {"bits_wrong", "ct", "TE003", Q0, BREAK_SET, GROUP "weights/num_bits", "8", 0, 0},
    {"packed_unsigned", "ct", "TE004", UP0, BREAK_DTYPE, UP0 ".weight_packed", "U32", 0, 0},
    {"scale_integers", "ct", "TE004", UP0, BREAK_DTYPE, UP0 ".weight_scale", "I16", 0, 0},
    {"leftover_weight", "ct", "TE005", UP0, BREAK_COPY, "model.embed_tokens.weight", "model." UP0 ".weight", 0, 0},

    /* what engines fuse */
    {"fused_partly", "ct", "FU002", "model.layers.0.self_attn", BREAK_SET, QC "ignore/+", "\"" Q0 "\"", 0, 0},
    {"fused_schemes", "ct", "FU001", "model.layers.0.self_attn", BREAK_SET, QC "config_groups/group_01",
     "{\"targets\": [\"" Q0 "\"], \"format\": \"pack-quantized\", \"weights\": {\"num_bits\": 8, \"type\": \"int\", "
                            "\"symmetric\": true, "
     "\"strategy\": \"channel\", \"dynamic\": false}}", 0, 0},
    {"experts_schemes", "ct-moe", "FU003", "model.layers.0.mlp.experts", BREAK_SET, QC "ignore/+",
     "\"re:.*layers\\\\.0\\\\.mlp\\\\.experts\\\\.1\\\\.\"", 0, 0},
    {"fused_name_elsewhere", "ct-mixed", "FU004", "qkv_proj", BREAK_SET, QC "config_groups/group_01/targets/+",
     "\"re:model\\\\.layers\\\\.0\\\\.self_attn\\\\.qkv_proj$\"", 0, 0},

    /* values */
    {"scale_nan", "ct", "VA001", UP0, BREAK_POKE, UP0 ".weight_scale", "c07f", 0, 0},
    {"scale_infinite", "ct", "VA001", UP0, BREAK_POKE, UP0 ".weight_scale", "2@807f", 0, 0},
    {"scale_zero", "ct", "VA002", UP0, BREAK_POKE, UP0 ".weight_scale", "4@0000", 0, 0},
    {"scale_minus_zero", "ct", "VA003", UP0, BREAK_POKE, UP0 ".weight_scale", "0080", 0, 0},
    {"scale_denormal", "ct", "VA004", UP0, BREAK_POKE, UP0 ".weight_scale", "0100", 0, 0},
    {"scale_huge", "ct", "VA005", UP0, BREAK_POKE, UP0 ".weight_scale", "8049", 0, 0},
    {"scale_not_bfloat16", "gptq", "VA006", UP0, BREAK_POKE, UP0 ".scales", "012c", 0, 0},
    {"int4_beyond", "ct-w4a4", "VA007", UP0, BREAK_POKE, UP0 ".weight", "3@f70809", 0, 0},
    {"padding_bits", "ct-3bit", "VA008", UP0, BREAK_POKE, UP0 ".weight_packed", "16@000000ff", 0, 0},
    {"codes_hole", "gptq", "VA009", "layers.0.mlp.down_proj", BREAK_POKE, "layers.0.mlp.down_proj.qweight", "4096*00",
     0, 0},
    {"norm_nan", "ct", "VA010", "model.norm.weight", BREAK_POKE, "model.norm.weight", "c0ff", 0, 0},

    /* engines */
    {"vllm_shape", "ct-moe", "TG003", Q0, BREAK_SET, QC "version", "\"0.17.1\"", 0, "vllm"},
    {"transformers_asymmetric", "ct-asym", "TG006", "model.layers.0", BREAK_SET, QC "version", "\"0.17.1\"", 0,
     "transformers"},
    {"mlx_cannot", "ct", "TG001", "", BREAK_SET, QC "version", "\"0.17.1\"", 0, "mlx"},
    {"vllm_gptq_bits", "gptq-mixed", "TG002", "model.layers", BREAK_SET, QC "bits", "2", 0, "vllm"},
    {"transformers_dynamic", "gptq-mixed", "TG007", "dynamic", BREAK_SET, QC "meta/x", "1", 0, "transformers"},

    /* GPTQ */
    {"gptq_bits", "gptq", "GQ001", "config.json", BREAK_SET, QC "bits", "7", 0, 0},
    {"gptq_two_configs", "gptq", "GQ002", "quantize_config.json", BREAK_SET, "desc_act", "true",
     "quantize_config.json", 0},
    {"gptq_index_order", "gptq", "GQ003", UP0, BREAK_POKE, UP0 ".g_idx", "01000000", 0, 0},
    {"gptq_desc_act", "gptq", "GQ004", "quantization_config", BREAK_SET, QC "desc_act", "true", 0, "vllm"},
    {"gptq_zeros_v2", "gptq", "GQ005", "model.layers.0", BREAK_SET, QC "checkpoint_format", "\"gptq_v2\"", 0, 0},
    {"gptq_zero_other", "gptq", "GQ005", UP0, BREAK_POKE, UP0 ".qzeros", "78777777", 0, 0},
    {"gptq_asymmetric_v1", "gptq-asym", "GQ006", "quantization_config", BREAK_SET, QC "checkpoint_format", "\"gptq\"",
     0, 0},
    {"gptq_dynamic_fused", "gptq", "GQ007", "qkv_proj", BREAK_SET, QC "dynamic",
     "{\"+:.*qkv_proj$\": {\"bits\": 8}}", 0, 0},
    {"gptq_dynamic_nothing", "gptq", "GQ008", "dynamic", BREAK_SET, QC "dynamic", "{\"-:lm_tail\": {}}", 0, 0},
    {"gptq_index_range", "gptq", "GQ010", UP0, BREAK_POKE, UP0 ".g_idx", "ffff0000", 0, 0},
    {"gptq_scales_missing", "gptq", "TE001", UP0, BREAK_DROP, UP0 ".scales", 0, 0, 0},

    /* AWQ */
    {"awq_bits", "awq", "AW001", "config.json", BREAK_SET, QC "bits", "8", 0, 0},
    {"awq_version", "awq", "AW002", "quantization_config", BREAK_SET, QC "version", "\"gemv\"", 0, 0},
    {"awq_zero_point", "awq", "AW003", "quantization_config", BREAK_SET, QC "zero_point", "false", 0, 0},
    {"awq_zeros_missing", "awq", "TE001", UP0, BREAK_DROP, UP0 ".qzeros", 0, 0, 0},

    /* MLX */
    {"mlx_bits", "mlx", "MX001", "config.json", BREAK_SET, "quantization/bits", "7", 0, 0},
    {"mlx_group_missing", "mlx", "MX001", "quantization", BREAK_SET, "quantization/group_size", 0, 0, 0},
    {"mlx_no_scales", "mlx", "MX002", "model.embed_tokens", BREAK_SET, "quantization/model.embed_tokens",
     "{\"group_size\": 32, \"bits\": 4}", 0, 0},
    {"mlx_false_of_quantized", "mlx", "MX003", Q0, BREAK_SET, "quantization/" Q0, "false", 0, 0},
    {"mlx_no_false", "mlx", "MX004", "model.embed_tokens", BREAK_SET, "quantization/model.embed_tokens", 0, 0, 0},
    {"mlx_two_entries", "mlx", "MX005", "config.json", BREAK_SET, "quantization_config/bits", "8", 0, 0},
    {"mlx_biases_missing", "mlx", "TE001", UP0, BREAK_DROP, UP0 ".biases", 0, 0, 0},

    /* GGUF */
    {"gguf_magic", "gguf", "GG001", "", BREAK_BYTES, "GGUF", "GGML", 0, 0},
    {"gguf_cut", "gguf", "GG001", "", BREAK_CUT, "model.gguf", "512", 0, 0},
    {"gguf_arch", "gguf", "GG003", "general.architecture", BREAK_KEY, "general.architecture", "8@7a7a7a7a7a", 0, 0},
    {"gguf_version", "gguf", "GG002", "", BREAK_BYTES, "GGUF\3", "GGUF\7", 0, 0},
    {"gguf_type", "gguf", "GG002", "", BREAK_TYPE, "token_embd.weight", "63", 0, 0},
    {"gguf_key_missing", "gguf", "GG004", "qwen3.block_count", BREAK_BYTES, "qwen3.block_count", "qwen3.block_cound",
     0, 0},
    {"gguf_heads", "gguf", "GG008", "attn_k", BREAK_KEY, "qwen3.attention.head_count_kv", "01000000", 0, 0},
    {"gguf_eps", "gguf", "GG005", "layer_norm_rms_epsilon", BREAK_KEY, "qwen3.attention.layer_norm_rms_epsilon",
     "0000c07f", 0, 0},
    {"gguf_name", "gguf", "GG006", "blk.0.ffn_uq.weight", BREAK_BYTES, "blk.0.ffn_up.weight", "blk.0.ffn_uq.weight", 0,
     0},
    {"gguf_tensor_missing", "gguf", "GG007", "blk.0.ffn_up.weight", BREAK_BYTES, "blk.0.ffn_up.weight",
     "blk.0.ffn_uq.weight", 0, 0},
    {"gguf_inner", "gguf", "GG008", "ffn_", BREAK_KEY, "qwen3.feed_forward_length", "40000000", 0, 0},
    {"gguf_token_type", "gguf", "GG011", "token_type", BREAK_KEY, "tokenizer.ggml.token_type", "4@09000000", 0, 0},
    {"gguf_eos", "gguf", "GG013", "eos_token_id", BREAK_KEY, "tokenizer.ggml.eos_token_id", "ffff0000", 0, 0},
    {"gguf_scale_nan", "gguf", "GG014", "blk.0.ffn_up.weight", BREAK_DATA, "blk.0.ffn_up.weight", "18@ff7f", 0, 0},
    {"gguf_scale_zero", "gguf", "GG015", "blk.0.ffn_up.weight", BREAK_DATA, "blk.0.ffn_up.weight", "0000", 0, 0},
    {"gguf_spare", "gguf", "GG016", "", BREAK_APPEND, "model.gguf", "spare bytes", 0, 0},
    {"gguf_merges", "gguf", "GG017", "merges", BREAK_BYTES, "tokenizer.ggml.merges", "tokenizer.ggml.merged", 0, 0},
    {"gguf_scores", "gguf", "GG010", "scores", BREAK_BYTES, "tokenizer.ggml.merges", "tokenizer.ggml.scores", 0, 0},
    {0}};
