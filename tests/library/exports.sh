#!/bin/sh
# Checks that libcalm.so exports exactly the functions that calm.h declares with CALM_API.
#   exports.sh LIBRARY HEADER
set -eu
export LC_ALL=C
declared=$(tr '\n' ' ' <"$2" | grep -oE 'CALM_API [^;]*;' | grep -oE 'calm_[a-z0-9_]+ *\(' | tr -d ' (' | sort -u)
exported=$(nm -D --defined-only "$1" | awk '{ print $3 }' | sort -u)
[ -n "$declared" ] || { echo "$2 declares nothing"; exit 1; }
[ "$declared" = "$exported" ] || { echo 'calm.h (left) and exports (right) differ:'; {
    echo "$declared" >"${TMPDIR:-/tmp}/declared.$$"; echo "$exported" | diff "${TMPDIR:-/tmp}/declared.$$" - || true
    rm -f "${TMPDIR:-/tmp}/declared.$$"; }; exit 1; }
echo "$exported" | wc -l
