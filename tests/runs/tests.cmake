# Whole runs as a library.
calm_test(runs test_pipeline_faults calm_test_play)
calm_test(runs test_pipeline calm_test_play)
calm_test(runs test_pipeline_windows calm_test_play)
calm_test(runs test_pipeline_choice calm_test_play)
calm_test(runs test_prefix calm_test_play)
calm_test(runs test_pipeline_target calm_test_play)
calm_test(runs test_pipeline_rotate calm_test_play)
calm_test(runs test_pipeline_families calm_test_play)
calm_test(runs test_select_run calm_test_play)
calm_test(runs test_shortlist calm_test_play)
calm_test(runs test_learn calm_test_play)
set_tests_properties(runs.test_learn PROPERTIES TIMEOUT 900)    # a dozen families learned from
calm_test(runs test_run_memory calm_test_play)
set_tests_properties(runs.test_run_memory PROPERTIES TIMEOUT 900)    # two hundred runs
calm_test(runs test_library calm_test_play calm_api)
calm_test(runs test_ablation calm_test_play calm_cli)
