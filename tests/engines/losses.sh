#!/bin/sh
# Compares the loss of each checkpoint of rows.txt in the engines of $CALM_ENGINES (Python environments, separated by spaces):  losses.sh FOLDER-OF-CALM
#
# Skipped (exit status 77) without CALM_ENGINES.
set -eu
[ -n "${CALM_ENGINES:-}" ] || { echo "SKIP: no engines (CALM_ENGINES names Python environments)"; exit 77; }
# shellcheck disable=SC2086
CALM_PROGRAM=$1/calm exec "$(dirname "$0")/run" $CALM_ENGINES
