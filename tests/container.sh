#!/bin/sh
# Builds packages/Dockerfile without docker: each stage is a minimal Debian (debootstrap --variant=minbase), in which its
# instructions run by chroot, in order; then the image's entry point runs as the image's user, with a folder
# of the host at the image's working directory.  Needs root and debootstrap; packages come from the mirror of this
# machine's apt.
#
#   tests/container.sh [--debian 12|13] [--base FOLDER] [--file FILE] [ARGUMENT...]
#
#   --debian 13     --build-arg DEBIAN=13; 12 by default
#   --base FOLDER   a minimal system, made there if it is missing; the script changes only copies of it
#   --file FILE     another Dockerfile
#   ARGUMENT        arguments of the entry point; by default it quantizes the demo model
#
# As a test (ctest -R tools.container) it runs only if $CALM_BARE is set, because it builds everything again.  Exit status 77: skipped.
set -eu

CALM_HOME=$(cd "$(dirname "$0")/.." && pwd -P)
release=12 base='' file=$CALM_HOME/packages/Dockerfile
while [ $# -gt 0 ]; do
    case $1 in
        --debian) release=${2:?--debian needs a release, 12 or 13}; shift ;;
        --base) base=${2:?--base needs a folder}; shift ;;
        --file) file=${2:?--file needs a file}; shift ;;
        -*) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
        *) break ;;
    esac
    shift
done
[ $# -gt 0 ] || set -- quantize --model qwen --bits 4 --samples 16 --eval-samples 16
[ "$(id -u)" = 0 ] || { echo "SKIP: container: needs root (chroot)"; exit 77; }
command -v debootstrap >/dev/null || { echo "SKIP: container: needs debootstrap"; exit 77; }
. "$CALM_HOME/tests/bare.sh"
set_suite "$release"
fail() { echo "container: $*" >&2; exit 1; }

# Prints one instruction per line, without comments: joins continued lines, replaces ARG's value.
sed '/^#/d' "$file" | sed -e ':a' -e '/\\$/{N;s/\\\n */ /;ba' -e '}' | sed -e '/^$/d' -e "s/\${DEBIAN}/$release/g" >"$scratch/steps"

user=root folder=/ settings='' stage='' entry=''
in_stage() { # in_stage COMMAND: as the instructions so far have it
    # shellcheck disable=SC2086    # words
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME="$([ "$user" = root ] && echo /root || echo "/home/$user")" \
        DEBIAN_FRONTEND=noninteractive $settings chroot "$stage" \
        setpriv --reuid "$user" --regid "$user" --init-groups sh -euc "cd '$folder' && $1"
}
words_of() { printf '%s' "$1" | sed 's/^\["//; s/"\]$//; s/", *"/ /g'; }    # ["a", "b"]

copy() { # copy [--from=STAGE] SOURCE TARGET
    case $1 in
        --from=*) mkdir -p "$stage$3" && cp -a "$scratch/${1#--from=}$2/." "$stage$3" ;;
        .) mkdir -p "$stage$2" && git -C "$CALM_HOME" archive HEAD | tar -xf - -C "$stage$2" ;;
        *) fail "COPY $*: only . and --from" ;;
    esac
}

while read -r word rest; do
    echo "container: $word $(printf '%.90s' "$rest")"
    # shellcheck disable=SC2086    # words
    case $word in
        ARG) ;;
        FROM)
            name=${rest##* AS }
            [ "$name" != "$rest" ] || name=image
            case $rest in "debian:$release-slim"*) ;; *) fail "FROM $rest: only debian:$release-slim" ;; esac
            make_bare_system "$base" "$name" </dev/null
            stage=$system user=root folder=/ settings='' ;;
        COPY) copy $rest ;;
        ENV) settings="$settings $rest" ;;
        RUN) in_stage "$rest" </dev/null >"$scratch/run.log" 2>&1 || { tail -n 30 "$scratch/run.log" >&2; fail "RUN failed"; } ;;
        USER) user=$rest ;;
        WORKDIR) folder=$rest; mkdir -p "$stage$rest" ;;
        ENTRYPOINT) entry=$(words_of "$rest") ;;
        CMD) default=$(words_of "$rest") ;;
        *) fail "$word: not an instruction that this script knows" ;;
    esac
done <"$scratch/steps"

[ "$user" != root ] && [ "$(in_stage 'id -u' </dev/null)" != 0 ] || fail 'the image runs as root'
in_stage 'command -v gcc cmake' </dev/null && fail 'the image has what it was built with'
in_stage "$entry $default" </dev/null >"$scratch/help" || fail "$entry $default failed"
grep -q quantize "$scratch/help" || fail "$entry $default does not say what it does"
# docker run -v HOST:WORKDIR: a folder of the user's
mkdir "$scratch/host" && chown "$(in_stage 'id -u' </dev/null)" "$scratch/host"
mount --bind "$scratch/host" "$stage$folder"
trap 'umount -l "$stage$folder"; leave_bare_system' EXIT
echo "container: $entry $*"
in_stage "$entry $*" </dev/null || fail 'the program failed'
for written in "$scratch"/host/calm-out/*/model.safetensors; do
    [ -s "$written" ] || fail 'no checkpoint on the host'
    [ "$(stat -c %u "$written")" != 0 ] || fail "$written belongs to root"
done
echo 'container: ok'
