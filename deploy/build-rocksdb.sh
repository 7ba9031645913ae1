#!/usr/bin/env bash
# Builds RocksDB's static library once, in release, and prints the variables that make cargo link it:
#
#     eval "$(deploy/build-rocksdb.sh)"
#
# RocksDB is 343 C++ files that read the same headers again and again: compiled one by one they take half an hour of
# processor time. This script has the very version that Cargo.lock names compiled in units, each of which includes many
# files of one folder, with the flags that the crate's own build script gives. It keeps the archive in a cache under
# its version, features and processor level, and does nothing when it is there. Should a version not compile in units,
# it is compiled file by file. Without this script cargo compiles RocksDB by itself, which works too.
#
# TESSERA_CACHE   cache folder (default: ~/.cache/tessera)
# TESSERA_CPU     processor level on x86_64 (default: x86-64-v2, which has the CRC32 instruction RocksDB wants)
#
# Needs: cargo, python3, a C++20 compiler, libclang (Debian: g++ libclang-dev). Messages go to stderr, variables to stdout.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${TESSERA_CACHE:-$HOME/.cache/tessera}
features=lz4,bindgen-runtime
# How many files of a folder make one unit: more compile faster and need more memory.
unit_files=20

fail() {
    echo "build-rocksdb: $*" >&2
    exit 1
}

# Version of librocksdb-sys in the lock file, without the part after "+" that cargo ignores.
locked=$(awk '$0 == "name = \"librocksdb-sys\"" { getline; gsub(/version = |"/, ""); print; exit }' "$root/Cargo.lock")
[ -n "$locked" ] || fail "no librocksdb-sys in $root/Cargo.lock: run 'cargo generate-lockfile' first"
version=${locked%%+*}

case $(uname -m) in
    x86_64) cpu=${TESSERA_CPU:-x86-64-v2} flags="-Ctarget-cpu=$cpu" ;;
    aarch64) cpu=aarch64-crc-aes flags="-Ctarget-feature=+crc,+aes" ;;
    *) cpu=$(uname -m) flags="" ;;
esac

lib=$cache/rocksdb/$version-${features//,/_}-$cpu/lib
build=$cache/rocksdb-build
log=$build/build.log

manifest() {
    cat <<TOML
[package]
name = "rocksdb-build"
version = "0.0.0"
edition = "2024"
[dependencies]
librocksdb-sys = { version = "=$version", default-features = false, features = ["lz4", "bindgen-runtime"] }
[profile.release.package.librocksdb-sys]
opt-level = 2
TOML
}

# Where cargo keeps the sources of the crate, once it has fetched them.
sources() {
    (cd "$build" && cargo metadata --format-version 1) |
        python3 -c 'import json, sys, os
print(*(os.path.dirname(p["manifest_path"]) for p in json.load(sys.stdin)["packages"] if p["name"] == "librocksdb-sys"))'
}

# A copy of the crate whose list of sources names units. The list is the only thing that is changed: flags, defines
# and what is left out on this platform stay the crate's own business.
write_units() {
    local from=$1 to=$build/librocksdb-sys
    rm -rf "$to"
    cp -r "$from" "$to"
    mkdir "$to/rocksdb/units"
    python3 - "$to" "$unit_files" <<'PYTHON'
import collections, os, sys
crate, most = sys.argv[1], int(sys.argv[2])
listing = os.path.join(crate, "rocksdb_lib_sources.txt")
folders = collections.defaultdict(list)
for source in open(listing).read().split():
    # The crate brings its own build_version.cc and leaves this one out by its name.
    if source != "util/build_version.cc":
        folders[os.path.dirname(source)].append(source)
units = []
for folder, files in sorted(folders.items()):
    for start in range(0, len(files), most):
        unit = f"units/{folder.replace('/', '_') or 'top'}_{start // most}.cc"
        with open(os.path.join(crate, "rocksdb", unit), "w") as out:
            out.writelines(f'#include "{name}"\n' for name in files[start : start + most])
        units.append(unit)
open(listing, "w").write("\n".join(units) + "\n")
PYTHON
}

# Cargo's variables for Tessera's own build would make librocksdb-sys link a library instead of building one.
build_crate() {
    (cd "$build" && env -u ROCKSDB_LIB_DIR -u ROCKSDB_STATIC -u CARGO_TARGET_DIR -u CARGO_BUILD_BUILD_DIR -u CARGO_BUILD_TARGET \
        -u CARGO_ENCODED_RUSTFLAGS -u RUSTC_WORKSPACE_WRAPPER RUSTFLAGS="$flags" cargo build --release "$@") >>"$log" 2>&1
}

# Copies an archive that the build script of a package left behind, in one step, so that no half copy is ever linked.
keep() {
    local package=$1 archive=$2 found
    found=$(find "$build/target/release/build" -path "*/$package-*/out/$archive" -printf '%T@ %p\n' | sort -n | tail -1 | cut -d' ' -f2-)
    [ -n "$found" ] || fail "the build left no $archive; see $log"
    cp "$found" "$lib/.$archive.$$"
    mv "$lib/.$archive.$$" "$lib/$archive"
}

compile() {
    mkdir -p "$build/src" "$lib"
    rm -rf "$build/target" "$build/Cargo.lock"
    manifest >"$build/Cargo.toml"
    : >"$build/src/lib.rs"
    echo "build-rocksdb: building librocksdb-sys $locked (once, some minutes); log: $log" >&2
    write_units "$(sources)" || fail "cannot read the sources of librocksdb-sys $locked below $build"
    if ! build_crate --config 'patch.crates-io.librocksdb-sys.path="librocksdb-sys"'; then
        echo "build-rocksdb: it does not compile in units (see $log); compiling file by file, which takes longer" >&2
        if ! build_crate; then
            tail -n 20 "$log" >&2
            fail "the build failed; see $log (a C++20 compiler and libclang are needed: g++ libclang-dev)"
        fi
    fi
    keep lz4-sys liblz4.a
    keep librocksdb-sys librocksdb.a
    rm -rf "$build/target" "$build/librocksdb-sys"
}

if [ ! -s "$lib/librocksdb.a" ]; then
    mkdir -p "$build"
    exec 9>"$build/lock"
    flock 9
    [ -s "$lib/librocksdb.a" ] || compile
fi

# lz4 needs no variable: the crate lz4-sys compiles its own in seconds and cargo links it; the copy beside
# librocksdb.a is for linkers that are called by hand.
cat <<VARIABLES
export ROCKSDB_LIB_DIR=$(printf %q "$lib")
export ROCKSDB_STATIC=1
VARIABLES
