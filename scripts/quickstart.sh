#!/usr/bin/env bash
# Installs what is missing, builds, and trains the small model of configs/quickstart.yaml on two ranks. Its text is what
# every machine with a compiler has: the headers of the C++ library. Arguments go to annulus: scripts/quickstart.sh
# train.steps=10. Results are in runs/quickstart of the folder it is called from.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

"$root/scripts/install_dependencies.sh"
"$root/scripts/build.sh"

# The compiler lists the folders it searches, one a line; the first that ends in c++/VERSION holds the library's headers.
folders=$("${CXX:-c++}" -x c++ -E -v /dev/null 2>&1 >/dev/null)
text=$(sed -n 's|^ \(/.*/c++/[^/]*\)$|\1|p' <<<"$folders" | sed -n 1p)
[[ -d $text ]] || {
  echo "quickstart.sh: error: ${CXX:-c++} names no folder of C++ headers; start build/annulus with data.train=FOLDER" >&2
  exit 1
}
"$root/build/annulus" train "$root/configs/quickstart.yaml" "data.train=$text" --ranks 2 "$@"
