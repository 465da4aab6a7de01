# Shell functions that install packages and build calm, for ./calm and tests/run.  They need only POSIX sh and the tools of a
# minimal system.  The caller sets CALM_HOME to the root of the checkout.

say() {
    printf 'calm: %s\n' "$*" >&2
}

# ---- what is missing ----

# is cmake's version at least $1 (major.minor)?
have_cmake() {
    cmake --version 2>/dev/null | awk -v need="$1" '
        NR == 1 { split($3, have, "."); split(need, least, ".")
                  ok = have[1] > least[1] || (have[1] == least[1] && have[2] + 0 >= least[2] + 0) }
        END { exit !ok }'
}

have_header() {
    printf '#include <%s>\n' "$1" | gcc -E -x c - >/dev/null 2>&1
}

have_any_command() {
    for have_name in $(printf '%s' "$1" | tr '|' ' '); do
        command -v "$have_name" >/dev/null 2>&1 && return 0
    done
    return 1
}

have_any_path() {
    for have_name in $(printf '%s' "$1" | tr '|' ' '); do
        [ -e "$have_name" ] && return 0
    done
    return 1
}

# present PACKAGE PROBE: is this row of packages.txt installed?  Without pkg-config or gcc it asks dpkg.
present() {
    case $2 in
        cmd:*) have_any_command "${2#cmd:}" ;;
        path:*) have_any_path "${2#path:}" ;;
        cmake:*) have_cmake "${2#cmake:}" ;;
        pkg:*) pkg-config --exists "${2#pkg:}" 2>/dev/null || { ! have_any_command pkg-config && in_dpkg "$1"; } ;;
        header:*) have_header "${2#header:}" || { ! have_any_command gcc && in_dpkg "$1"; } ;;
    esac
}

in_dpkg() {
    dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'install ok installed'
}

# missing USES COLUMN: prints names, from that column of packages.txt, of missing packages for any of the uses
missing() {
    while read -r apt use probe dnf pacman zypper brew; do
        case $apt in '#'* | '') continue ;; esac
        case " $1 " in *" $use "*) ;; *) continue ;; esac
        present "$apt" "$probe" && continue
        eval "missing_name=\$$2"
        [ "$missing_name" = - ] || printf '%s ' "$missing_name"
    done <"$CALM_HOME/packages.txt"
}

# ---- installing ----

package_manager() {
    for manager in apt-get dnf pacman zypper brew; do
        command -v "$manager" >/dev/null 2>&1 && { printf '%s' "$manager"; return; }
    done
}

# as_root: prints the prefix for a command that needs root ("" for root itself); fails if there is none
as_root() {
    [ "$(id -u)" = 0 ] && return 0
    sudo -n true 2>/dev/null && printf 'sudo -n'
}

say_what_to_install() {
    prefix=
    [ "$(id -u)" = 0 ] || prefix='sudo '
    case $(package_manager) in
        apt-get) set -- "$(missing "$1" apt)" "${prefix}apt-get update && ${prefix}apt-get install --no-install-recommends" ;;
        dnf) set -- "$(missing "$1" dnf)" "${prefix}dnf install" ;;
        pacman) set -- "$(missing "$1" pacman)" "${prefix}pacman -S" ;;
        zypper) set -- "$(missing "$1" zypper)" "${prefix}zypper install" ;;
        brew) set -- "$(missing "$1" brew)" "brew install" ;;
        *) set -- "$(missing "$1" apt)" "(Debian's names)" ;;
    esac
    say "these packages are needed and missing; install them, then run the same command again:"
    printf '    %s %s\n' "$2" "$1" >&2
}

# install USES: installs everything for these uses, or names the packages and fails
install_missing() {
    wanted=$(missing "$1" apt)
    [ -n "$wanted" ] || return 0
    if [ "$(package_manager)" != apt-get ] || ! root=$(as_root); then
        say_what_to_install "$1"
        return 1
    fi
    log=$CALM_HOME/build/install.log
    mkdir -p "$CALM_HOME/build" || return 1
    say "installing build tools (once; log: build/install.log): $wanted"
    # shellcheck disable=SC2086    # both are lists of words
    {
        $root apt-get -q update
        $root env DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=300 \
            install --no-install-recommends $wanted
    } >"$log" 2>&1 </dev/null
    if [ -n "$(missing "$1" apt)" ]; then
        say "installing did not work; the end of build/install.log:"
        tail -n 5 "$log" | sed 's/^/    /' >&2
        say_what_to_install "$1"
        return 1
    fi
}

# ---- building ----

n_cores() {
    nproc 2>/dev/null || getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2
}

# up_to_date PRESET TARGET: was it built since the last change of a source?  The stamp has the time when the build began.
up_to_date() {
    stamp=$CALM_HOME/build/$1/.built-$2
    sources='CMakeLists.txt CMakePresets.json packages ptq algorithms cka store cli'
    [ "$2" = calm ] || sources="$sources tests"
    [ -e "$stamp" ] && [ -x "$CALM_HOME/build/$1/calm" ] || return 1
    # shellcheck disable=SC2086    # a list of words
    [ -z "$(cd "$CALM_HOME" && find $sources -newer "$stamp" 2>/dev/null | head -n 1)" ]
}

# configure PRESET ON|OFF: configures with or without tests; keeps settings of a configured folder
configure() {
    folder=build/$1
    cache=$folder/CMakeCache.txt
    if [ ! -e "$folder/build.ninja" ] && [ ! -e "$folder/Makefile" ] ||
        ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$(pwd -P)" "$cache"; then
        rm -rf "$folder"    # partly configured, or moved from another place
        if have_any_command ninja; then
            cmake --preset "$1" -DCALM_TESTS="$2"
        else
            cmake --preset "$1" -G 'Unix Makefiles' -DCALM_TESTS="$2"
        fi
    elif [ "$2" = ON ] && ! grep -q '^CALM_TESTS:[A-Z]*=ON' "$cache"; then
        cmake -DCALM_TESTS=ON "$folder"
    fi
}

# locked_build PRESET TARGET USES: the part of `build` under the lock
locked_build() {
    up_to_date "$1" "$2" && return 0
    install_missing "$3" || return 1
    tests=OFF
    case " $3 " in *' tests '*) tests=ON ;; esac
    mkdir -p "$CALM_HOME/build"
    log=$CALM_HOME/build/build-$1.log
    fresh=$CALM_HOME/build/.begun-$1
    say "building $2 (once, and after changes; log: build/build-$1.log)"
    began=$(date +%s)
    : >"$fresh"
    if ! (cd "$CALM_HOME" && configure "$1" "$tests" &&
        cmake --build "build/$1" --target "$2" --parallel "$(n_cores)") >"$log" 2>&1 </dev/null; then
        say "the build failed; the end of $log:"
        tail -n 30 "$log" >&2
        return 1
    fi
    [ "$2" = calm ] || cp -p "$fresh" "$CALM_HOME/build/$1/.built-calm"
    mv "$fresh" "$CALM_HOME/build/$1/.built-$2"
    say "built in $(($(date +%s) - began)) s"
}

# build PRESET TARGET USES: installs missing packages and builds build/PRESET.  One caller at a time: a second
# caller waits and then finds it built.
build() {
    up_to_date "$1" "$2" && return 0
    if [ -n "$(missing "$3" apt)" ] && { [ "$(package_manager)" != apt-get ] || ! as_root >/dev/null; }; then
        say_what_to_install "$3"
        return 1
    fi
    mkdir -p "$CALM_HOME/build" || return 1
    if ! have_any_command flock; then
        locked_build "$@"
        return
    fi
    (
        flock -n 9 || { say "waiting: another command is building"; flock 9; }
        locked_build "$@" 9>&-
    ) 9>"$CALM_HOME/build/.lock"
}
