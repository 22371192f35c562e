#!/usr/bin/env bash
# Installs what is missing, builds everything and runs all tests. Arguments go to ctest: scripts/test.sh -R launcher
set -euo pipefail
scripts=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

"$scripts/install_dependencies.sh" tests
"$scripts/build.sh" all
ctest --test-dir "$scripts/../build" --output-on-failure --no-tests=error -j 2 "$@"
