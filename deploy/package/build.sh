#!/usr/bin/env bash
# Makes the Debian package from a binary that is built, and prints where it is:
#
#     deploy/package/build.sh BINARY FOLDER
#
# PACKAGE_COMPRESSION=gz makes it quicker, and larger. The binary is packaged as it is. cargo-deb must be on the path (`eval "$(deploy/setup.sh test)"`).
set -euo pipefail
binary=$(realpath "${1:?usage: deploy/package/build.sh BINARY FOLDER}")
folder=${2:?usage: deploy/package/build.sh BINARY FOLDER}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
mkdir -p "$folder"
folder=$(realpath "$folder")

# cargo-deb takes what lies below `target/release` from where cargo would have built it.
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/release" "$stage/release/package/man"
strip --strip-debug -o "$stage/release/tessera" "$binary"
"$binary" man "$stage/release/package/man" >&2
"$binary" completions bash >"$stage/release/package/tessera.bash"
"$binary" completions zsh >"$stage/release/package/_tessera"
"$binary" completions fish >"$stage/release/package/tessera.fish"

cd "$root"
CARGO_TARGET_DIR=$stage cargo deb --locked --quiet --no-build --no-strip --package tessera-cli --output "$folder" \
    ${PACKAGE_COMPRESSION:+--fast --compress-type "$PACKAGE_COMPRESSION" --compress-system} >/dev/null
ls "$folder"/tessera_*.deb
