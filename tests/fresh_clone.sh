#!/bin/sh
# Checks the README's first commands: makes a minimal Debian (debootstrap --variant=minbase, plus git), clones the last commit
# and runs the commands inside.  Needs root and debootstrap; packages come from the mirror of
# this machine's apt.
#
#   tests/fresh_clone.sh [--debian 12|13] [--base FOLDER] [--offline] [--user] [COMMAND...]
#
#   --debian 13     Debian 13 (trixie); 12 (bookworm) by default
#   --base FOLDER   a minimal system, made there if it is missing; the script changes only a copy of it
#   --offline       run the command without a network
#   --user          run the command as a user without rights
#   COMMAND         shell commands, run in the clone; by default the README's first one and then ./tests/run
set -eu

CALM_HOME=$(cd "$(dirname "$0")/.." && pwd -P)
release=12 base= offline= user=
while [ $# -gt 0 ]; do
    case $1 in
        --debian) release=${2:?--debian needs a release, 12 or 13}; shift ;;
        --base) base=${2:?--base needs a folder}; shift ;;
        --offline) offline='unshare -n' ;;
        --user) user=--userspec=65534:65534 ;;
        -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- './calm quantize --model qwen --bits 4 && ./tests/run'
[ "$(id -u)" = 0 ] || { echo "fresh_clone: needs root (chroot)" >&2; exit 77; }
command -v debootstrap >/dev/null || { echo "fresh_clone: needs debootstrap" >&2; exit 77; }

. "$CALM_HOME/tests/bare.sh"
set_suite "$release"
make_bare_system "$base"
git clone -q "file://$CALM_HOME" "$system/srv/calm"
chroot "$system" sh -c 'command -v gcc cmake ninja pkg-config' && { echo "fresh_clone: not bare" >&2; exit 1; }

echo "fresh_clone: commit $(git -C "$system/srv/calm" rev-parse --short HEAD): $*"
began=$(date +%s)
result=0
# shellcheck disable=SC2086    # empty or words
$offline env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    chroot $user "$system" sh -c "cd /srv/calm && $*" || result=$?
echo "fresh_clone: exit status $result after $(($(date +%s) - began)) s"
exit "$result"
