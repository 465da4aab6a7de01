# calm_test(FOLDER NAME LIBS...) - one line per test
calm_test(golden test_model_fixtures calm_model)
