# calm_test(FOLDER NAME LIBS...) - one line per test
