# Sourced by scripts that time the program; $1 is the folder for their files.  Sets $folder, CALM_HOME, and the programs $calm
# and $make, which the environment variables CALM and MAKE replace.

need()    # need PROGRAM...: ends the script if one is missing
{
    for program; do
        [ -x "$program" ] || { echo "$(basename "$0"): no $program" >&2; exit 2; }
    done
}

mkdir -p "$1"
folder=$(cd "$1" && pwd)
CALM_HOME=$(cd "$(dirname "$0")/../.." && pwd -P)
export CALM_HOME
calm=${CALM:-$CALM_HOME/build/release/calm}
make=${MAKE:-$CALM_HOME/build/release/tests/make_checkpoint}
need "$calm" "$make" /usr/bin/time
