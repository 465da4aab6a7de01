#!/bin/sh
# Installs the build, then builds the examples of docs/library.md against the installed files and runs them: with the
# shared library by pkg-config, with the static library by pkg-config, and by the CMake package.
#   consumers.sh BUILD SOURCE [FLAGS of the compiler]
set -eu
build=$1 source=$2
shift 2
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
prefix=$root/prefix
cmake --install "$build" --prefix "$prefix" >"$root/log" 2>&1 || { cat "$root/log"; exit 1; }
for file in bin/calm include/calm.h share/calm/recipes/qwen-ci.json; do
    [ -e "$prefix/$file" ] || { echo "not installed: $file"; exit 1; }
done
# An installation that was moved uses the recipes and the demo model next to it, and no longer those of the source.
echo '== program, moved'
cp -r "$prefix" "$root/moved"
mv "$root/moved/share/calm/recipes/qwen-w4.json" "$root/moved/share/calm/recipes/moved-here.json"
(cd "$root" && unset CALM_HOME && moved/bin/calm recipe list) >"$root/list"
grep -q '^moved-here ' "$root/list" && ! grep -q '^qwen-w4 ' "$root/list" || { cat "$root/list"; exit 1; }
(cd "$root" && unset CALM_HOME && moved/bin/calm tokenize --model qwen "$prefix/share/doc/calm/README.md" >/dev/null)
rm -r "$root/moved/share/calm/recipes/models/qwen-demo"
if (cd "$root" && unset CALM_HOME && moved/bin/calm tokenize --model qwen "$prefix/share/doc/calm/README.md") 2>"$root/said"; then
    echo 'a model that is not installed was read'; exit 1
fi
grep -q 'not installed.*calm-demo-model' "$root/said" || { cat "$root/said"; exit 1; }
for file in man/man1/calm-quantize.1* bash-completion/completions/calm doc/calm/docs/commands.md; do
    [ -s "$root/moved/share/"$file ] || { echo "not installed: share/$file"; exit 1; }
done

libdir=$(dirname "$(find "$prefix" -name libcalm.so)")
pc=$libdir/pkgconfig
# The .pc file has the prefix of the build; pkg-config replaces it by the place of the file.
config() { PKG_CONFIG_PATH=$pc pkg-config --define-prefix "$@" calm; }
cd "$root"

echo '== shared, pkg-config'
for name in quantize matrix; do
    # The flags are not quoted, since each is a word of its own.
    cc -std=c11 -Wall -Wextra -Werror "$@" $(config --cflags) "$source/tests/library/$name.c" -o "$name" \
        $(config --libs) -Wl,-rpath,"$libdir"
done
CALM_HOME=$source ./quantize qwen out
[ -s out/model.safetensors ] || { echo 'no checkpoint'; exit 1; }
./matrix | tee matrix.txt
awk '{ error[$1] = $NF } END { exit !(error["gptq"] + 0 < error["rtn"] + 0) }' matrix.txt ||
    { echo 'gptq is no better than rtn'; exit 1; }

echo '== static, pkg-config'
# calm's private libraries are linked as shared ones, so that their own private libraries are not needed.
cc -std=c11 "$@" $(config --cflags) "$source/tests/library/matrix.c" -o static "$libdir/libcalm.a" \
    $(pkg-config --libs $(config --print-requires-private)) -fopenmp -lm
./static | cmp - matrix.txt

echo '== CMake package'
# With the generator of the build, since the machine may have no other.
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
cmake -G "$generator" -S "$source/tests/library" -B cmake -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$*" >log 2>&1 &&
    cmake --build cmake >>log 2>&1 || { cat log; exit 1; }
cmake/matrix | cmp - matrix.txt

echo '== header alone, as C11 and as C++'
echo '#include <calm.h>' >header.c
cc -std=c11 -Wall -Wextra -pedantic -Werror -I"$prefix/include" -fsyntax-only header.c
if command -v c++ >/dev/null; then
    c++ -Wall -Wextra -Werror -I"$prefix/include" -x c++ -fsyntax-only header.c
fi
