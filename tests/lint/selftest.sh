#!/bin/sh
# Checks that each rule of lint.sh can fail: on small bad trees with an expected finding, and on good trees.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
n_failed=0 n_cases=0

# fresh: begins a new tree
fresh() {
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/cli"
    printf 'int main(void);\n' >"$scratch/tree/cli/main.c"
}

# file PATH: writes standard input to PATH
file() {
    mkdir -p "$scratch/tree/$(dirname "$1")"
    cat >"$scratch/tree/$1"
}

# finds RULE TEXT: checks that the rule fails on the tree, and that one line of its output has TEXT
finds() {
    n_cases=$((n_cases + 1))
    status=0
    "$here/lint.sh" "$1" "$scratch/tree" >"$scratch/output" 2>&1 || status=$?
    if [ "$status" != 1 ] || ! grep -qF -- "$2" "$scratch/output"; then
        echo "FAIL: $1 should report: $2 (exit status $status)"
        sed 's/^/    /' "$scratch/output"
        n_failed=$((n_failed + 1))
    fi
}

# passes RULE: checks that the rule finds nothing
passes() {
    n_cases=$((n_cases + 1))
    if ! "$here/lint.sh" "$1" "$scratch/tree" >"$scratch/output" 2>&1; then
        echo "FAIL: $1 should find nothing"
        sed 's/^/    /' "$scratch/output"
        n_failed=$((n_failed + 1))
    fi
}

# ---- layers ----
fresh
printf '#include "ptq/base/status.h"\n#include "ptq/tensor/dtype.h"\n' | file ptq/tensor/dtype.c
printf '#include "store/store.h"\n#include "cka/cka.h"\n' | file cli/pipeline.c
printf '#include "schema_sql.h"\n' | file store/store.c
printf 'embed(store/schema.sql symbol schema_sql.h)\n' | file CMakeLists.txt
passes layers
printf '#include "ptq/tensor/dtype.h"\n' | file ptq/base/text.c
finds layers 'ptq/base/text.c:1: ptq/base may not include ptq/tensor/dtype.h'
fresh
printf '\n#  include "ptq/model/model.h"\n' | file algorithms/chain.c
finds layers 'algorithms/chain.c:2: algorithms may not include ptq/model/model.h'
fresh
printf '#include "status.h"\n' | file ptq/base/status.c
finds layers 'written from the root'
fresh
printf '#include <sqlite3.h>\n' | file store/store.c
passes layers
printf '#include <sqlite3.h>\n' | file store/store_query.c
finds layers '<sqlite3.h> belongs to store/store.c alone'
fresh
printf '#include <openssl/evp.h>\n' | file ptq/base/sha256.c
printf '#include <openssl/sha.h>\n' | file ptq/base/text.c
finds layers 'belongs to ptq/base/sha256.c alone'
fresh
printf '#include <curl/curl.h>\n' | file ptq/hub/http.c
printf '#include <curl/urlapi.h>\n' | file ptq/hub/fetch.c
finds layers '<curl/*> belongs to ptq/hub/fetch.c alone'
fresh
printf '#include "ptq/tensor/dtype.h"\n' | file ptq/hub/cache.c
finds layers 'ptq/hub/cache.c:1: ptq/hub may not include ptq/tensor/dtype.h'

fresh
printf '# folder\nptq/base\nptq/io  ptq/base\nptq/hub ptq/io ptq/base\ncli *\ntests *\n' | file tests/lint/layers.txt
passes layers
printf 'ptq/base ptq/hub\nptq/io ptq/base\nptq/hub ptq/io\n' | file tests/lint/layers.txt
finds layers 'cycle of permissions through 3 folders: ptq/base ptq/hub ptq/io'
finds layers '    ptq/io -> ptq/base: layers.txt:2'
printf 'ptq/base ptq/base\n' | file tests/lint/layers.txt
finds layers 'cycle of permissions through 1 folders: ptq/base'
printf 'ptq/base *\n' | file tests/lint/layers.txt
finds layers 'layers.txt:1: ptq/base may not include all'
for folder in cli tests; do
    printf 'ptq/base %s\ncli *\ntests *\n' $folder | file tests/lint/layers.txt
    finds layers "layers.txt:1: nothing may include $folder"
done
printf 'ptq/io ptq/base\n' | file tests/lint/layers.txt
finds layers 'layers.txt:1: ptq/base has no row'

# ---- rooms ----
fresh
printf '#include "ptq/choose/choose_impl.h"\n#include "ptq/search/search.h"\n' | file ptq/choose/guard.c
printf 'ptq/choose 3\nptq/search 2\n' | file tests/lint/rooms.txt
passes rooms
printf '#include "ptq/choose/choose_impl.h"\n' | file ptq/learn/learn.c
finds rooms 'ptq/learn/learn.c:1: ptq/choose/choose_impl.h is for ptq/choose alone'
printf '#include "ptq/search/survey.h"\n' | file ptq/choose/guard.c
finds rooms 'ptq/choose/guard.c:1: ptq/search/survey.h: the neighbours of ptq/search include ptq/search/search.h'
printf '\n\n\n' | file ptq/search/survey.c
finds rooms 'ptq/search: 3 lines, more than the 2 of rooms.txt'

# ---- cycles ----
fresh
printf '#include "store/store.h"\n' | file ptq/base/text.c
printf '#include "ptq/base/text.h"\n#include "cka/cka.h"\n#include "store/sql.h"\n' | file store/store.c
printf '#include "ptq/base/text.h"\n' | file cli/main.c
finds cycles 'cycle of includes through 2 folders: ptq/base store'
finds cycles '    store -> ptq/base: store/store.c:1'
finds cycles '    ptq/base -> store: ptq/base/text.c:1'
printf '/* #include "store/store.h" */\n' | file ptq/base/text.c
passes cycles
printf '#include "cka/sum.h"\n' | file ptq/base/text.c
printf '#include "store/store.h"\n' | file cka/cka.h
finds cycles 'cycle of includes through 3 folders: cka ptq/base store'

fresh
printf '#define CALM_TRY(expr) do { calm_note(expr); } while (0)\n' | file ptq/base/status.h
file ptq/io/a.c <<'END'
calm_status calm_a_open(calm_ctx *ctx,
                        const char *path)
{
    return calm_b_read(ctx, "calm_c_close(", path);    /* calm_c_close(ctx) */
}
const calm_part calm_a_part = {.name = "a"};
static int helper(void) { return 1; }
END
file ptq/io/b.c <<'END'
static calm_status calm_a_other(void);
__attribute__((noinline)) const char *calm_b_read(calm_ctx *ctx, const char *text, const char *path)
{
    return CALM_TRY(calm_c_close(ctx));
}
END
file ptq/io/c.c <<'END'
struct calm_c {
    int calm_a_open_count;
};
CALM_VECTORIZE void calm_c_close(calm_ctx *ctx) { my_calm_a_open(ctx); helper(); }
static void calm_a_local(void) {}
static int calm_b_read_all = 3;
END
passes cycles
printf 'void calm_note(int status) { calm_c_close(0); }\n' | file ptq/io/note.c
passes cycles
printf 'void calm_note(int status) { calm_a_open(0, 0); }\n' | file ptq/io/note.c
finds cycles 'cycle of calls through 3 files: ptq/io/a.c ptq/io/b.c ptq/io/note.c'    # b.c by way of CALM_TRY
finds cycles '    ptq/io/a.c -> ptq/io/b.c: calm_b_read'
finds cycles '    ptq/io/b.c -> ptq/io/note.c: calm_note'
finds cycles '    ptq/io/note.c -> ptq/io/a.c: calm_a_open'
rm "$scratch/tree/ptq/io/note.c"
printf 'void calm_c_close(void) { run(&calm_a_part); }\n' | file ptq/io/c.c
finds cycles '    ptq/io/c.c -> ptq/io/a.c: calm_a_part'
printf 'void calm_c_close(void) {}\nvoid calm_c_more(void) { calm_a_open(); }\n' | file ptq/io/c.c
finds cycles 'cycle of calls through 3 files: ptq/io/a.c ptq/io/b.c ptq/io/c.c'

fresh    # a list makes no edges, a macro that writes functions does
printf 'CALM_PART(grid, absmax)\n' | file algorithms/parts.def
file algorithms/registry.c <<'END'
#define CALM_PART(kind, name) extern const calm_part calm_##kind##_##name;
#include "algorithms/parts.def"
int calm_part_count(void) { return 1; }
END
printf 'const calm_part calm_grid_absmax = {calm_part_count};\n' | file algorithms/grid_absmax.c
passes cycles
file cli/lists.c <<'END'
#define LIST_OF(what) \
    int calm_list_##what(void) \
    { \
        return calm_select_all(#what); \
    }
LIST_OF(runs)
END
printf 'int calm_select_all(const char *what) { return calm_list_jobs(); }\n' | file cli/select.c
passes cycles
printf 'int calm_select_all(const char *what) { return calm_list_runs(); }\n' | file cli/select.c
finds cycles '    cli/select.c -> cli/lists.c: calm_list_runs'

# ---- registries ----
fresh
printf '# comment\nCALM_PART(grid, absmax)\nCALM_PART(round, gptq)\n' | file algorithms/parts.def
: | file algorithms/grid_absmax.c
: | file algorithms/round_gptq.c
printf 'CALM_COMMAND(quantize, "text")\n' | file cli/commands.def
: | file cli/cmd_quantize.c
passes registries
rm "$scratch/tree/algorithms/round_gptq.c"
finds registries 'algorithms/parts.def: names round_gptq.c'
: | file algorithms/refit_ls.c
finds registries 'algorithms/refit_ls.c: has no line in algorithms/parts.def'
: | file cli/cmd_eval.c
finds registries 'cli/cmd_eval.c: has no line in cli/commands.def'
fresh
printf 'int main(void)\n{\n}\n' | file tests/unit/test_a.c
printf 'calm_test(unit test_b calm_base)\n' | file tests/unit/tests.cmake
finds registries 'tests/unit/test_a.c: is not in tests/unit/tests.cmake'
printf 'calm_test(unit test_a calm_base)\n' | file tests/unit/tests.cmake
passes registries

# ---- docstrings ----
fresh
file ptq/base/good.h <<'END'
/* About the file. */
typedef struct pair {
    int a, b;
} pair;

/* Add. */
int add(int a, int b);
int subtract(int a,
             int b);

const char *name(int a);    /* "one" */
const char *other(int a);
END
passes docstrings
printf '/* About the file. */\n\nint add(int a, int b);\n' | file ptq/base/bad.h
finds docstrings 'ptq/base/bad.h:3: no comment above: int add('
printf '/* Add. */\nint add(int a, int b);\n\nint other(void);\n' | file ptq/base/bad.h
finds docstrings 'ptq/base/bad.h:4: no comment above: int other('

fresh
printf '/* Public. */\n#ifdef __cplusplus\nextern "C" {\n#endif\n\nint calm_start(void);\n#ifdef __cplusplus\n}\n#endif\n' | file calm.h
finds docstrings 'calm.h:6: no comment above: int calm_start('

# ---- comments ----
# commented N M: writes N lines of code, M of them with a comment
commented() {
    awk -v n="$1" -v m="$2" 'BEGIN { for (i = 0; i < n; i++) if (i < m) print "    x++;    /* " i " */\n"; else print "    y++;\n" }'
}
fresh
commented 100 12 | file ptq/calib/gram.c
commented 100 0 | file cka/cka.c
printf '/* a header */\n' | file ptq/layers/block.h
passes comments
commented 100 11 | file ptq/calib/gram.c
finds comments 'ptq/calib: 11.0 % of the lines have a comment (11 of 100), less than 12 %'
{ commented 99 11; printf '/* first\n\n * second */\n'; } | file ptq/calib/gram.c    # 13 of 101
passes comments
{ commented 90 5; printf 'char *a = "/*", *b = "//";\n'; commented 9 6; } | file ptq/calib/gram.c
finds comments 'ptq/calib: 11.0 %'

# ---- sizes ----
# lines N: writes N lines of a function's body
lines() {
    awk -v n="$1" 'BEGIN { for (i = 0; i < n; i++) print "    x++;" }'
}
fresh
{ printf 'int f(void)\n{\n'; lines 97; printf '}\n'; } | file ptq/base/good.c
passes sizes
{ printf 'int f(void)\n{\n'; lines 98; printf '}\n'; } | file ptq/base/long.c
finds sizes 'ptq/base/long.c:1: 101 lines: int f(void)'
fresh
{ printf 'struct s {\n'; lines 600; printf '};\n'; } | file ptq/base/long.h
finds sizes 'ptq/base/long.h: over 600 lines'
fresh
{ printf 'struct s {\n'; lines 58; printf '};\n'; } | file ptq/families/arch_short.c
{ printf 'struct s {\n'; lines 59; printf '};\n'; } | file ptq/families/shared.h
passes sizes
{ printf 'struct s {\n'; lines 59; printf '};\n'; } | file ptq/families/arch_long.c
finds sizes 'ptq/families/arch_long.c: over 60 lines'

# ---- columns ----
# long N TEXT: writes a line of N times TEXT
long() {
    awk -v n="$1" -v text="$2" 'BEGIN { for (i = 0; i < n; i++) printf "%s", text; print "" }'
}
fresh
long 120 x | file ptq/base/text.c
long 120 '×' | file ptq/base/text.h
long 130 x | file tests/data/table.c
passes columns
long 121 x | file ptq/base/text.c
finds columns 'ptq/base/text.c:1: 121 columns'
fresh
long 121 '×' | file tests/unit/test_text.c
finds columns 'tests/unit/test_text.c:1: 121 columns'
fresh
long 60 'ab,' | file cli/commands.def
finds columns 'cli/commands.def:1: 180 columns'

# ---- skips ----
fresh
echo "echo 'SKIP: no fish (apt-get install fish)'" | file tests/program/good.sh
echo 'puts("SKIP: it needs root");' | file tests/unit/test_good.c
passes skips
echo "echo 'SKIP: no fish'" | file tests/program/silent.sh
finds skips 'tests/program/silent.sh:1: a skipped test'

# ---- forbidden ----
fresh
file ptq/base/good.c <<'END'
/* printf("in a comment") and exit(1) too,
 * rand() on a second line */
void f(char *s) { snprintf(s, 1, "exit(1) printf(2)"); my_exit(1); calm_text_printf(s); } // abort()
void g(void) __attribute__((format(printf, 1, 2)));
END
printf 'int main(void) { printf("hello"); exit(1); }\n' | file cli/main.c
printf 'add_compile_options(-O3)\n' | file CMakeLists.txt
passes forbidden
for call in 'exit(1)' 'printf("x")' 'rand()' 'abort()' 'puts("x")' 'fprintf(stderr, "x")'; do
    printf 'void f(void)\n{\n    %s;\n}\n' "$call" | file ptq/base/bad.c
    finds forbidden 'ptq/base/bad.c:3:'
done
fresh
printf 'add_compile_options(-ffast-math)\n' | file CMakeLists.txt
finds forbidden 'CMakeLists.txt:1:'
fresh
printf '__attribute__((optimize("fast-math"))) void f(void);\n' | file cli/fast.c
finds forbidden 'cli/fast.c:1:'

# ---- kinds ----
fresh
file ptq/calib/good.c <<'END'
/* CALM_ROLE_Q in a comment */
int f(void) { return CALM_N_ROLES + CALM_PLACE_DOWN; }
END
printf 'int g(void) { return CALM_ROLE_Q + CALM_JOB_QKV; }\n' | file ptq/kinds/good.c
passes kinds
for name in CALM_ROLE_DOWN CALM_JOB_GATE_UP CALM_PLAIN_Q_NORM; do
    printf 'int f(int x)\n{\n    return x == %s;\n}\n' "$name" | file ptq/calib/bad.c
    finds kinds 'ptq/calib/bad.c:3:'
done

# ---- names ----
fresh
: | file store/blob.c
passes names
: | file cka/blob.c
finds names 'store/blob.c: has the name of cka/blob.c'

# ---- tags ----
fresh
file ptq/base/text.h <<'END'
typedef struct calm_text {
    int n;
} calm_text;
typedef struct calm_store calm_store;
struct calm_other;
typedef void calm_tick_fn(void *user, int n);
typedef int (*calm_compare)(const void *a, const void *b);
/* struct calm_hidden { */
END
file store/store.h <<'END'
typedef struct calm_store calm_store;
void calm_store_use(struct calm_text *text, enum calm_mode mode);
END
printf 'struct calm_store { struct calm_text text; };\ntypedef struct options { int a; } options;\n' | file store/store.c
printf 'typedef struct options { int b; } options;\nconst char *s = "struct calm_text {";\n' | file store/blob.c
passes tags
printf 'struct calm_store\n{\n    int a;\n};\n' | file store/store_impl.h
finds tags 'store/store_impl.h:1: calm_store is defined in store/store.c:1 too'
rm "$scratch/tree/store/store_impl.h"
printf '\nenum calm_text { CALM_A };\n' | file cka/cka.c
finds tags 'calm_text is defined in cka/cka.c:2 too'
printf 'static void f(void)\n{\n    struct calm_store { int x; } s;\n}\n' | file cka/cka.c
finds tags 'store/store.c:1: calm_store is defined in cka/cka.c:3 too'
printf 'typedef int calm_compare;\n' | file cka/cka.c
finds tags 'ptq/base/text.h:7: calm_compare is defined in cka/cka.c:1 too'
printf 'typedef long\n    calm_tick_fn;\n' | file cka/cka.c
finds tags 'calm_tick_fn is defined in cka/cka.c:1 too'
printf 'typedef struct { int a; } calm_pair;\n' | file cka/cka.c
printf 'typedef union calm_pair { int b; } calm_pair;\n' | file tests/support/pair.h
finds tags 'tests/support/pair.h:1: calm_pair is defined in cka/cka.c:1 too'
fresh
printf 'typedef struct pair { int a; } pair;\n' | file tests/support/pair.h
printf 'typedef struct pair { int b; } pair;\n' | file tests/support/pair.c
passes tags
printf 'enum pair { A };\n' | file cka/cka.h
finds tags 'tests/support/pair.h:1: pair is defined in cka/cka.h:1 too'

# ---- prefixes ----
fresh
printf '# prefix folder\ncalm_text_ ptq/base\ncalm_text_table_ cli\ncalm_nearest ptq/base\n' | file tests/lint/prefixes.txt
file ptq/base/text.h <<'END'
void calm_text_printf(calm_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *calm_nearest(const char *word,
                         int (*compare)(int a));
typedef void calm_free_fn(void *user);
#define CALM_FREE(x) calm_free_all(x)
END
printf 'int calm_text_table_print(void);\n' | file cli/table.h
printf 'int calm_start(void);\n' | file calm.h
printf 'int slow_sum(void);\n' | file tests/support/slow.h
passes prefixes
printf 'int calm_text_tables(void);\n' | file cli/table.h
finds prefixes 'cli/table.h:1: calm_text_tables has a prefix of ptq/base (calm_text_)'
printf 'int a;\nint calm_nearest_table(void);\n' | file cli/table.h
finds prefixes 'cli/table.h:2: calm_nearest_table has no prefix of prefixes.txt'
printf 'int near(void);\n' | file cli/table.h
finds prefixes 'cli/table.h:1: near has no prefix of prefixes.txt'
printf 'int calm_text_table_print(void);\n' | file ptq/base/table.h
finds prefixes 'ptq/base/table.h:1: calm_text_table_print has a prefix of cli (calm_text_table_)'
rm "$scratch/tree/ptq/base/table.h" "$scratch/tree/cli/table.h"
printf 'calm_text_ ptq/base\ncalm_nearest ptq/base\ncalm_text_ cli\n' | file tests/lint/prefixes.txt
finds prefixes 'prefixes.txt:3: calm_text_ is listed twice'
# the table that --update makes: words that one folder has, and what else is needed
printf 'int calm_text_table_print(void);\nint calm_text_table(void);\n' | file cli/table.h
printf '# kept\ncalm_gone_ cka\n' | file tests/lint/prefixes.txt
printf 'int calm_text_one(void);\nint calm_text_two(void);\n' | file ptq/base/words.h
finds prefixes 'calm_text_one has no prefix'
"$here/lint.sh" prefixes --update "$scratch/tree"
passes prefixes
n_cases=$((n_cases + 1))
printf '# kept\ncalm_nearest ptq/base\ncalm_text_ ptq/base\ncalm_text_table cli\ncalm_text_table_ cli\n' |
    cmp - "$scratch/tree/tests/lint/prefixes.txt" || n_failed=$((n_failed + 1))

# ---- dead ----
fresh
printf 'int calm_a_used(int n);\nint calm_a_made(void);\nint calm_a_given(void);\n' | file ptq/base/a.h
printf 'int calm_a_listed_runs(void);\nint calm_a_inside(void);\n' | file ptq/base/more.h
file ptq/base/a.c <<'END'
int calm_a_used(int n) { return n; }
int calm_a_made(void) { return 1; }
int calm_a_given(void) { return 1; }
int calm_a_listed_runs(void) { return 1; }
int calm_a_inside(void) { return 1; }
END
printf '#define CALM_MAKE() calm_a_made()\nstatic inline int twice(void)\n{\n    return calm_a_inside();\n}\n' | file ptq/base/b.h
printf 'CALM_LISTED(runs)\n' | file cli/listed.def
file cli/main.c <<'END'
#define CALM_LISTED(name) calm_a_listed_##name,
static int (*const table[])(void) = {
#include "cli/listed.def"
    calm_a_given
};
int main(void) { return CALM_MAKE() + calm_a_used(1); }
END
passes dead
sed 's/calm_a_used(1)/0/' "$scratch/tree/cli/main.c" >"$scratch/main.c"
file cli/main.c <"$scratch/main.c"
finds dead 'ptq/base/a.h:1: calm_a_used: dead'
printf '/* calm_a_used(1) */ const char *s = "calm_a_used(1)";\n' | file cli/words.c
finds dead 'ptq/base/a.h:1: calm_a_used: dead'
printf 'int f(void) { return calm_a_used(2); }\n' | file tests/unit/test_a.c
finds dead 'ptq/base/a.h:1: calm_a_used: test-only'
printf 'int calm_a_used(int n);\n' | file calm.h
passes dead
printf 'int calm_a_used(int n);\nint calm_a_promised(void);\n' | file calm.h
finds dead 'calm.h:2: calm_a_promised: is defined nowhere'
rm "$scratch/tree/calm.h" "$scratch/tree/tests/unit/test_a.c"
echo 'static int f(void) { return calm_a_used(3); }' >>"$scratch/tree/ptq/base/a.c"
finds dead 'calm_a_used: dead outside of ptq/base/a.c'
echo 'int g(void) { return calm_a_used(3); }' >>"$scratch/tree/cli/main.c"
passes dead
: | file cli/listed.def
finds dead 'calm_a_listed_runs: dead'
printf 'CALM_LISTED(runs)\n' | file cli/listed.def
sed 's/CALM_MAKE()/0/' "$scratch/tree/cli/main.c" >"$scratch/main.c"
file cli/main.c <"$scratch/main.c"
finds dead 'calm_a_made: dead'    # the macro that names it is not used either
printf 'int calm_b_nowhere(void);\n' | file cli/b.h
finds dead 'cli/b.h:1: calm_b_nowhere: is defined nowhere'

# ---- untested ----
fresh
: | file ptq/base/text.c
: | file tests/unit/test_text.c
: | file algorithms/grid_ls.c
: | file cli/table.c
: | file tests/conformance/test_algorithms.c
finds untested 'algorithms/grid_ls.c: has neither tests/*/test_grid_ls.c nor a line in tests/covered.txt'
printf '# path  test  why\n\nalgorithms/grid_ls.c  tests/conformance/test_algorithms.c  every part\n' | file tests/covered.txt
passes untested
printf 'algorithms/grid_ls.c  tests/conformance/test_parts.c\n' | file tests/covered.txt
finds untested 'tests/covered.txt:1: there is no tests/conformance/test_parts.c'
printf 'algorithms/grid_ls.c\n' | file tests/covered.txt
finds untested 'tests/covered.txt:1: names no test of algorithms/grid_ls.c'
printf 'algorithms/grid_ls.c tests/conformance/test_algorithms.c\nptq/base/a.c tests/unit/test_text.c\n' | file tests/covered.txt
finds untested 'tests/covered.txt:2: there is no ptq/base/a.c'
printf 'algorithms/grid_ls.c tests/conformance/test_algorithms.c\nptq/base/text.c tests/unit/test_text.c\n' | file tests/covered.txt
finds untested 'tests/covered.txt:2: ptq/base/text.c has tests/unit/test_text.c'
printf 'algorithms/grid_ls.c tests/unit/test_text.c\nalgorithms/grid_ls.c tests/unit/test_text.c\n' | file tests/covered.txt
finds untested 'tests/covered.txt:2: algorithms/grid_ls.c is listed twice'

# ---- words ----
fresh
printf 'total 12\nREADME.md 8\ndocs/a.md 6 table\n' | file tests/lint/words.txt
printf '# Title\n\nOne two | --- | three `four`.\n' | file README.md
printf 'One two 3\n<!-- table -->\nmade by a program, of any length at all, and beside\n<!-- /table -->\nfour\n' | file docs/a.md
passes words
printf '# Title\n\nOne two three four five six seven eight.\n' | file README.md
finds words 'README.md: 9 words, more than the 8 of words.txt:2'
finds words 'all pages: 13 words, more than the 12 of words.txt:1'
printf '# Title\n<!-- table -->\nOne two three four five six seven eight.\n<!-- /table -->\n' | file README.md    # no part of this page
finds words 'README.md: 9 words, more than the 8 of words.txt:2'
printf 'One\n' | file README.md
printf 'One\n<!-- table -->\ntwo\n' | file docs/a.md
finds words 'docs/a.md: <!-- table --> has no end'
printf 'One\n' | file docs/a.md
printf 'One\n' | file docs/sub/b.md
finds words 'docs/sub/b.md: has no row in words.txt (1 words)'
rm -r "$scratch/tree/docs/sub"
printf 'total 12\nREADME.md 8\ndocs/a.md 6\ndocs/c.md 6\ndocs/a.md 7\n' | file tests/lint/words.txt
finds words 'words.txt:4: there is no docs/c.md'
finds words 'words.txt:5: docs/a.md is listed twice'
printf 'total 99\nREADME.md 50\n' | file tests/lint/words.txt
rm -r "$scratch/tree/docs"
printf 'beside = next to\nof its own = separate\nlies (in|on) = is in\nof it[.,;:)] = name the thing\n' | file tests/lint/banned_words.txt
printf '`beside` and [here](docs/beside) and besides, a part of it is fine.\n```\nbeside\n```\n' | file README.md
passes words
printf 'It stands\nBeside it.\n' | file README.md
finds words 'README.md:2: "beside": write next to'
printf 'A type of its\nown, and two of\nit.\n' | file README.md    # a phrase that two lines share
finds words 'README.md:2: "of its own": write separate'
finds words 'README.md:3: "of it": write name the thing'
printf 'One.\n' | file README.md
printf '/* The value\n * lies in a row. */\nint beside;    /* fine */\nstatic const char *s = "a \\"beside\\" b";\nint t;    // beside\n' | file store/a.c
CALM_LINT_PROSE=store finds words 'store/a.c:2: "lies in": write is in'
CALM_LINT_PROSE=store finds words 'store/a.c:4: "beside"'
CALM_LINT_PROSE=store finds words 'store/a.c:5: "beside"'
CALM_LINT_PROSE=README.md passes words    # only the named files are searched
finds words 'store/a.c:2: "lies in": write is in'    # the rooms of prose_sources are searched

# ---- lint.sh itself ----
fresh    # a file that cannot be read is no file without findings
ln -s nowhere "$scratch/tree/cli/gone.c"
finds columns 'gone.c'
finds tags 'gone.c'

echo "$n_cases cases, $n_failed failed"
[ "$n_failed" = 0 ]
