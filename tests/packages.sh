#!/bin/sh
# Show that the packages are whole: the source of the last commit is unpacked in two folders, built without git, and
# made into Debian packages, which must have the same bytes; lintian must find no error; then they are installed into a
# bare Debian 12, where the program quantizes the demo model, and removed.  Needs root, debootstrap and what calm is
# built with; the packages that calm depends on come from the mirror that this machine's apt is set to.
#
#   tests/packages.sh [--base FOLDER] [--keep FOLDER] [COMMAND]
#
#   --base FOLDER   a bare system made before (made there if absent); only a copy of it is changed
#   --keep FOLDER   copy tarball and packages there
#   COMMAND         what runs in the bare system; by default the README's first one, with few windows
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

# No git: one that always fails stands before the real one.
mkdir "$scratch/bin"
printf '#!/bin/sh\nexit 127\n' >"$scratch/bin/git"
chmod +x "$scratch/bin/git"

make_packages() {    # make_packages FOLDER
    mkdir "$1"
    tar -xzf "$tarball" -C "$1"
    (
        PATH=$scratch/bin:$PATH
        cd "$1/calm-$version"
        cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCALM_TESTS=OFF -DCALM_PACKAGED=ON -DCALM_WERROR=ON \
            -DCMAKE_INSTALL_PREFIX=/usr && cmake --build build --parallel "$(nproc)" && cd build && umask 022 && cpack -G DEB
    ) >"$1.log" 2>&1 || { tail -n 30 "$1.log" >&2; fail "building in $1 failed"; }
}
for folder in one second/copy; do
    echo "packages: building in $folder ..."
    mkdir -p "$scratch/$(dirname "$folder")"
    make_packages "$scratch/$folder"
done
one=$scratch/one/calm-$version/build two=$scratch/second/copy/calm-$version/build
grep -q "\"$commit\"" "$one/generated/calm_commit.h" || fail "the build does not know its commit, $commit"
for package in "$one"/*.deb; do
    cmp "$package" "$two/$(basename "$package")" || fail "$(basename "$package"): other bytes in another folder"
    ! dpkg-deb --fsys-tarfile "$package" | grep -q -a "$scratch" || fail "$(basename "$package") names the build's folder"
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
# The other two find theirs where the package put it.
inside 'apt-get -q -y install --no-install-recommends fish zsh' >"$scratch/apt.log" 2>&1 || { tail -n 20 "$scratch/apt.log" >&2; fail 'no shells'; }
[ "$(inside 'fish -c "complete -C \"calm quantize --unit jo\"" | cut -f 1')" = job ] || fail 'fish does not complete'
[ "$(inside 'zsh -c "autoload -U compinit; compinit -u; print \$_comps[calm]; autoload +X _calm"')" = _calm ] || fail 'zsh does not complete'
inside 'apt-get -q -y purge calm calm-demo-model libcalm-dev libcalm0' >"$scratch/apt.log" 2>&1 ||
    { tail -n 20 "$scratch/apt.log" >&2; fail 'removing failed'; }
inside '! test -e /usr/bin/calm && ! test -e /usr/share/calm && ! test -e /usr/include/calm.h' || fail 'files stay behind'
echo 'packages: ok'
