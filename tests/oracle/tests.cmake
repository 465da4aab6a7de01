# calm_test(FOLDER NAME LIBS...) - one line per test
calm_test(oracle test_cka_oracle calm_cka)
calm_test(oracle test_cka_linear_oracle calm_cka)
calm_test(oracle test_gptq_oracle calm_test_parts)
calm_test(oracle test_transform_smooth calm_test_parts)
calm_test(oracle test_transform_awq calm_test_parts)
calm_test(oracle test_transform_actfit calm_test_parts)
calm_test(oracle test_round_cd calm_test_parts)
calm_test(oracle test_attention_oracle calm_model)
