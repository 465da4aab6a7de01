# Sourced: make_bare_system [BASE [NAME]] makes a minimal Debian in $system, which is removed when the script ends.  It copies
# the system BASE, or makes it there if it is missing.  $suite is the release's name, bookworm by default.
# Needs root and debootstrap.
suite=bookworm
here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
system=
scratch=$(mktemp -d)
leave_bare_system() {
    for mounted in "$scratch"/*/dev "$scratch"/*/proc; do
        mountpoint -q "$mounted" && umount -l "$mounted"
    done
    # never across an active mount
    rm -rf --one-file-system "$scratch"
}
trap leave_bare_system EXIT
trap 'exit 130' INT TERM

# set_suite 12|13: the release that make_bare_system makes
set_suite() {
    case $1 in
        12) suite=bookworm ;;
        13) suite=trixie ;;
        *) echo "${0##*/}: --debian $1: known are 12 and 13" >&2; exit 2 ;;
    esac
}

debootstrap_into() {    # debootstrap_into FOLDER
    rm -rf --one-file-system "$1.part"
    # the archive of this machine's release has the others too
    mirror=$(apt-get indextargets --format '$(REPO_URI)' "Codename: $here" 'Origin: Debian' 2>/dev/null | head -n 1)
    # shellcheck disable=SC2086    # empty: debootstrap's own
    debootstrap --variant=minbase --include=git,ca-certificates "$suite" "$1.part" $mirror >"$scratch/debootstrap.log" 2>&1 ||
        { tail -n 20 "$scratch/debootstrap.log" >&2; exit 1; }
    mv "$1.part" "$1"    # only a complete system has its final name
}

make_bare_system() {    # make_bare_system [BASE [NAME]]
    echo "${0##*/}: a bare Debian ($suite) ..."
    system=$scratch/${2:-system}
    if [ -n "${1-}" ]; then
        [ -d "$1/etc" ] || debootstrap_into "$1"
        grep -qx "VERSION_CODENAME=$suite" "$1/etc/os-release" ||
            { echo "${0##*/}: $1 is not Debian's $suite (/etc/os-release)" >&2; exit 2; }
        cp -a "$1" "$system"
    else
        debootstrap_into "$system"
    fi
    # the network settings of this machine
    cp /etc/resolv.conf /etc/hosts "$system/etc/"
    rm -rf "$system/etc/apt/sources.list"
    for part in sources.list sources.list.d apt.conf.d; do
        [ -e "/etc/apt/$part" ] && cp -r "/etc/apt/$part" "$system/etc/apt/"
    done
    # the same archives, for this release
    find "$system/etc/apt" -name '*.list' -o -name '*.sources' |
        while read -r list; do sed -i "s/\\b$here\\b/$suite/g" "$list"; done
    mount -t proc proc "$system/proc"
    mount --bind /dev "$system/dev"
}
