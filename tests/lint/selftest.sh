#!/bin/sh
# Show that each rule of lint.sh can fail: small bad trees with the finding that each must bring, and good ones.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
n_failed=0 n_cases=0

# fresh: begin a new tree
fresh() {
    rm -rf "$scratch/tree"
    mkdir -p "$scratch/tree/cli"
    printf 'int main(void);\n' >"$scratch/tree/cli/main.c"
}

# file PATH: put standard input there
file() {
    mkdir -p "$scratch/tree/$(dirname "$1")"
    cat >"$scratch/tree/$1"
}

# finds RULE TEXT: the rule fails on the tree, and one line of its output has TEXT
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

# passes RULE: nothing is found
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

# ---- sizes ----
# lines N: N lines of a function's body
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

# ---- names ----
fresh
: | file store/blob.c
passes names
: | file cka/blob.c
finds names 'store/blob.c: has the name of cka/blob.c'

echo "$n_cases cases, $n_failed failed"
[ "$n_failed" = 0 ]
