# calm_test(FOLDER NAME LIBS...) - one line per test
calm_test(golden test_model_fixtures calm_model)
calm_test(golden test_quant_fixtures calm_algorithms)
calm_test(golden test_tokenizer_fixtures calm_io)
