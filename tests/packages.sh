#!/bin/sh
# Checks the Debian packages: unpacks the source of the last commit in two folders and builds packages there without git, which
# must have the same bytes; lintian must find no error; then installs them into a
# minimal Debian, where the program quantizes the demo model, and removes them.  Needs root, debootstrap and calm's build
# packages; calm's dependencies come from the mirror of this machine's apt.
#
#   tests/packages.sh [--debian 12|13] [--base FOLDER] [--keep FOLDER] [COMMAND]
#
#   --debian 13     Debian 13 (trixie); 12 (bookworm) by default.  A release other than this machine's is built in a minimal system
#   --base FOLDER   a minimal system, made there if it is missing; the script changes only a copy of it
#   --keep FOLDER   copy tarball and packages there
#   COMMAND         command to run in the minimal system; by default the README's first one, with few windows
set -eu

CALM_HOME=$(cd "$(dirname "$0")/.." && pwd -P)
release=12 base= keep=
while [ $# -gt 0 ]; do
    case $1 in
        --debian) release=${2:?--debian needs a release, 12 or 13}; shift ;;
        --base) base=${2:?--base needs a folder}; shift ;;
        --keep) keep=${2:?--keep needs a folder}; shift ;;
        -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- 'calm quantize --model qwen --bits 4 --samples 16 --eval-samples 16'
[ "$(id -u)" = 0 ] || { echo "packages: needs root (chroot)" >&2; exit 77; }
for tool in debootstrap dpkg-shlibdeps git; do
    command -v "$tool" >/dev/null || { echo "packages: needs $tool" >&2; exit 77; }
done
. "$CALM_HOME/tests/bare.sh"
set_suite "$release"
fail() { echo "packages: $*" >&2; exit 1; }

echo 'packages: the source ...'
commit=$(git -C "$CALM_HOME" rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git -C "$CALM_HOME" log -1 --format=%ct "$commit")
version=$(sed -n 's/^project(calm VERSION \([0-9.]*\).*/\1/p' "$CALM_HOME/CMakeLists.txt")
export SOURCE_DATE_EPOCH
tarball=$scratch/calm-$version.tar.gz
for name in "$tarball" "$scratch/again.tar.gz"; do
    git -C "$CALM_HOME" archive --format=tar.gz --prefix="calm-$version/" -o "$name" "$commit"
done
cmp "$tarball" "$scratch/again.tar.gz" || fail 'the tarballs differ'

# Packages for a release other than this machine's are built in a minimal system of that release.
builder= place=$scratch
if [ "$suite" != "$here" ]; then
    make_bare_system "$base" builder
    builder=$system place=/srv/build
    tools=$(awk '!/^#/ && $2 == "build" { print $1 }' "$CALM_HOME/packages.txt" | tr '\n' ' ')
    chroot "$builder" sh -euc "export DEBIAN_FRONTEND=noninteractive
        apt-get -q update && apt-get -q -y install --no-install-recommends $tools dpkg-dev file" >"$scratch/tools.log" 2>&1 ||
        { tail -n 20 "$scratch/tools.log" >&2; fail 'installing build tools failed'; }
fi
building() { ${builder:+chroot "$builder"} sh -euc "$1"; }

# Hides git: a git that always fails comes first in PATH.
mkdir -p "$builder$place/bin"
printf '#!/bin/sh\nexit 127\n' >"$builder$place/bin/git"
chmod +x "$builder$place/bin/git"

make_packages() {    # make_packages FOLDER
    mkdir -p "$builder$1"
    tar -xzf "$tarball" -C "$builder$1"
    building "PATH=$place/bin:\$PATH SOURCE_DATE_EPOCH=$SOURCE_DATE_EPOCH
        export PATH SOURCE_DATE_EPOCH
        cd '$1/calm-$version'
        cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCALM_TESTS=OFF -DCALM_PACKAGED=ON -DCALM_WERROR=ON \
            -DCMAKE_INSTALL_PREFIX=/usr && cmake --build build --parallel $(nproc) && cd build && umask 022 && cpack -G DEB" \
        >"$scratch/build.log" 2>&1 || { tail -n 30 "$scratch/build.log" >&2; fail "building in $1 failed"; }
}
for folder in one second/copy; do
    echo "packages: building in $folder ..."
    make_packages "$place/$folder"
done
one=$builder$place/one/calm-$version/build two=$builder$place/second/copy/calm-$version/build
grep -q "\"$commit\"" "$one/generated/calm_commit.h" || fail "the build does not know its commit, $commit"
for package in "$one"/*.deb; do
    cmp "$package" "$two/$(basename "$package")" || fail "$(basename "$package"): other bytes in another folder"
    ! dpkg-deb --fsys-tarfile "$package" | grep -q -a -e "$scratch" -e "$place/" || fail "$(basename "$package") names the build's folder"
done
echo "packages: built twice, the same bytes:" "$(cd "$one" && echo *.deb)"
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "$one"/*.deb || fail 'lintian finds errors'
else
    echo 'packages: SKIPPED: lintian is not installed'
fi
if [ -n "$keep" ]; then
    mkdir -p "$keep"
    cp "$tarball" "$one"/*.deb "$keep/"
fi

make_bare_system "$base"
mkdir "$system/srv/packages"
cp "$one"/*.deb "$system/srv/packages/"
inside() { env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive chroot "$system" sh -euc "$1"; }
echo 'packages: installing ...'
inside 'apt-get -q update && apt-get -q -y install --no-install-recommends /srv/packages/*.deb' >"$scratch/apt.log" 2>&1 ||
    { tail -n 20 "$scratch/apt.log" >&2; fail 'installing failed'; }
inside 'command -v gcc cmake' && fail 'not bare'
inside 'mkdir /srv/work && ldconfig -p | grep -q libcalm.so.0' || fail 'the library is not found'
for file in share/man/man1/calm-quantize.1.gz share/doc/calm/docs/install.md include/calm.h; do
    [ -s "$system/usr/$file" ] || fail "not installed: /usr/$file"
done
echo "packages: $*"
inside "cd /srv/work && $*" || fail 'the program failed'
inside 'test -s /srv/work/calm-out/*/model.safetensors' || fail 'no checkpoint'
grep -q "$commit" "$system"/srv/work/calm-out/*.lock.json || fail "the lock does not name the commit $commit"
inside 'cd /srv/work && calm report && test -s report.html' || fail 'no page of the run'
inside 'bash -c ". /usr/share/bash-completion/completions/calm && complete -p calm"' || fail 'completion does not load'
# The other two find theirs where the package installed it.
inside 'apt-get -q -y install --no-install-recommends fish zsh' >"$scratch/apt.log" 2>&1 || { tail -n 20 "$scratch/apt.log" >&2; fail 'no shells'; }
[ "$(inside 'fish -c "complete -C \"calm quantize --unit jo\"" | cut -f 1')" = job ] || fail 'fish does not complete'
[ "$(inside 'zsh -c "autoload -U compinit; compinit -u; print \$_comps[calm]; autoload +X _calm"')" = _calm ] || fail 'zsh does not complete'
inside 'apt-get -q -y purge calm calm-demo-model libcalm-dev libcalm0' >"$scratch/apt.log" 2>&1 ||
    { tail -n 20 "$scratch/apt.log" >&2; fail 'removing failed'; }
inside '! test -e /usr/bin/calm && ! test -e /usr/share/calm && ! test -e /usr/include/calm.h' || fail 'files stay behind'
echo 'packages: ok'
