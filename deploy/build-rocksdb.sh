#!/usr/bin/env bash
# Builds RocksDB's static library once, in release, and prints the variables that make cargo link it:
#
#     eval "$(deploy/build-rocksdb.sh)"
#
# RocksDB is 343 C++ files, about 25 CPU minutes per build profile and, with debug information, a gigabyte of archive.
# This script compiles the very version that Cargo.lock names, keeps the archive in a cache under its version, features
# and processor level, and does nothing when it is there. Without it cargo compiles RocksDB by itself, which works too.
#
# TESSERA_CACHE   cache folder (default: ~/.cache/tessera)
# TESSERA_CPU     processor level on x86_64 (default: x86-64-v2, which has the CRC32 instruction RocksDB wants)
#
# Needs: cargo, a C++20 compiler, libclang (Debian: g++ libclang-dev). Messages go to stderr, variables to stdout.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=${TESSERA_CACHE:-$HOME/.cache/tessera}
features=lz4,bindgen-runtime

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
TOML
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
    if ! manifest | cmp -s - "$build/Cargo.toml"; then
        rm -rf "$build/target" "$build/Cargo.lock"
        manifest >"$build/Cargo.toml"
    fi
    [ -e "$build/src/lib.rs" ] || : >"$build/src/lib.rs"
    echo "build-rocksdb: building librocksdb-sys $locked (once, about 25 CPU minutes); log: $log" >&2
    # The variables would make librocksdb-sys link a library instead of building one.
    if ! (cd "$build" && env -u ROCKSDB_LIB_DIR -u ROCKSDB_STATIC -u CARGO_TARGET_DIR -u CARGO_BUILD_TARGET -u CARGO_ENCODED_RUSTFLAGS \
        RUSTFLAGS="$flags" cargo build --release) >>"$log" 2>&1; then
        tail -n 20 "$log" >&2
        fail "the build failed; see $log (a C++20 compiler and libclang are needed: g++ libclang-dev)"
    fi
    keep lz4-sys liblz4.a
    keep librocksdb-sys librocksdb.a
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
