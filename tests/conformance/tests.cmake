# calm_test(FOLDER NAME LIBS...) - one line per test
calm_test(conformance test_algorithms calm_algorithms)
calm_test(conformance test_every_row calm_algorithms)
calm_test(conformance test_naive_rounding calm_test_naive)
calm_test(conformance test_exporters calm_test_plan)
calm_test(conformance test_row_blocks calm_algorithms calm_test_plan)
set_tests_properties(conformance.test_exporters conformance.test_algorithms PROPERTIES TIMEOUT 900)    # every model in every format, every part on every row
calm_test(conformance test_export_gguf calm_test_plan)
calm_test(conformance test_export_scales calm_test_plan)
calm_test(conformance test_ct_config calm_test_plan)
calm_test(conformance test_format_config calm_test_plan)
calm_test(conformance test_check calm_test_good calm_check calm_test_faults)
calm_test(conformance test_check_foreign calm_test_good calm_check)
calm_test(conformance test_check_engines calm_test_good calm_check)
