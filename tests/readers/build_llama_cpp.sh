#!/bin/sh
# Builds llama.cpp's programs (llama-quantize, llama-imatrix, llama-perplexity, llama-simple, llama-bench) from the source in
# PyPI's llama-cpp-python; this takes about 15 minutes of CPU.
#
#   build_llama_cpp.sh FOLDER      prints CALM_LLAMA_CPP=FOLDER/llama_cpp_python-.../vendor/llama.cpp/build/bin
#
# Needs pip, cmake, ninja and g++.
set -eu

version=0.3.36
mkdir -p "${1:?usage: build_llama_cpp.sh FOLDER}"
cd "$1"
[ -f "llama_cpp_python-$version.tar.gz" ] || pip download --quiet --no-deps --no-binary llama-cpp-python "llama-cpp-python==$version"
[ -d "llama_cpp_python-$version" ] || tar xzf "llama_cpp_python-$version.tar.gz"
cd "llama_cpp_python-$version/vendor/llama.cpp"
cmake -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_SERVER=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_OPENSSL=OFF >/dev/null
ninja -C build llama-quantize llama-imatrix llama-perplexity llama-simple llama-bench >/dev/null
echo "CALM_LLAMA_CPP=$PWD/build/bin"
