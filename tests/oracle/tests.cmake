# calm_test(FOLDER NAME LIBS...) - one line per test
calm_test(oracle test_cka_oracle calm_cka)
calm_test(oracle test_cka_linear_oracle calm_cka)
calm_test(oracle test_gptq_oracle calm_algorithms)
calm_test(oracle test_attention_oracle calm_model)
