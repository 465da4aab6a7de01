#!/bin/sh
# Install the build, build both examples of docs/library.md against what was installed - by pkg-config with the shared
# library, by pkg-config with the static one, by the CMake package - and run them.
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
# Moved elsewhere the program finds its recipes next to itself, the demo model among them, and those of the source no more.
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
# The prefix of the .pc is that of the build; pkg-config moves it to where the file is.
config() { PKG_CONFIG_PATH=$pc pkg-config --define-prefix "$@" calm; }
cd "$root"

echo '== shared, pkg-config'
for name in quantize matrix; do
    # The flags are their own words.
    cc -std=c11 -Wall -Wextra -Werror "$@" $(config --cflags) "$source/tests/library/$name.c" -o "$name" \
        $(config --libs) -Wl,-rpath,"$libdir"
done
CALM_HOME=$source ./quantize qwen out
[ -s out/model.safetensors ] || { echo 'no checkpoint'; exit 1; }
./matrix | tee matrix.txt
awk '{ error[$1] = $NF } END { exit !(error["gptq"] + 0 < error["rtn"] + 0) }' matrix.txt ||
    { echo 'gptq is no better than rtn'; exit 1; }

echo '== static, pkg-config'
# Their own private libraries are for those who link them statically too.
cc -std=c11 "$@" $(config --cflags) "$source/tests/library/matrix.c" -o static "$libdir/libcalm.a" \
    $(pkg-config --libs $(config --print-requires-private)) -fopenmp -lm
./static | cmp - matrix.txt

echo '== CMake package'
# With the generator of the build: a bare machine has no other.
generator=$(sed -n 's/^CMAKE_GENERATOR:INTERNAL=//p' "$build/CMakeCache.txt")
cmake -G "$generator" -S "$source/tests/library" -B cmake -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_FLAGS="$*" >log 2>&1 &&
    cmake --build cmake >>log 2>&1 || { cat log; exit 1; }
cmake/matrix | cmp - matrix.txt

# The ten lines of the first example are those of the documentation.
echo '== header alone, as C11 and as C++'
echo '#include <calm.h>' >header.c
cc -std=c11 -Wall -Wextra -pedantic -Werror -I"$prefix/include" -fsyntax-only header.c
if command -v c++ >/dev/null; then
    c++ -Wall -Wextra -Werror -I"$prefix/include" -x c++ -fsyntax-only header.c
fi
