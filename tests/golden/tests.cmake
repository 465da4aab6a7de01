# calm_test(FOLDER NAME LIBS...) - one line per test
calm_test(golden test_model_fixtures calm_model)
calm_test(golden test_forward_fixtures calm_cli)
calm_test(golden test_quant_fixtures calm_algorithms)
calm_test(golden test_tokenizer_fixtures calm_tokenizer)
calm_test(golden test_cka_fixtures calm_cka)
calm_test(golden test_activation_fixtures calm_calib)
calm_test(golden test_reference_model calm_eval calm_export calm_algorithms)
calm_test(golden test_format_fixtures calm_test_plan)
