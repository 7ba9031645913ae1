#!/usr/bin/env bash
# Builds the images where no registry of images can be reached: the member's from a binary and the libraries that it links, the
# agent's from a Debian that debootstrap makes. Needs root, podman, and debootstrap for the agent's.
#
#     deploy/container/scratch.sh target/release/tessera member tessera:0.1.0
#     deploy/container/scratch.sh target/release/tessera agent tessera-agent:0.1.0
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
binary=$(realpath "${1:?the binary}") target=${2:?member or agent} image=${3:?the name of the image}
suite=${SUITE:-bookworm} mirror=${MIRROR:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$work/context"

case $target in
member)
    install -d "$root"/{etc/ssl/certs,tmp,usr/bin,usr/lib,usr/lib64,var/lib}
    # As on every Debian of today: programs look for the loader in /lib64.
    ln -s usr/lib "$root/lib"
    ln -s usr/lib64 "$root/lib64"
    ldd "$binary" | grep -o '/[^ ]*' | sort -u | while read -r library; do
        place=$(sed 's#^/lib#/usr/lib#' <<<"$library")
        install -D -m 0755 "$library" "$root$place"
    done
    printf 'root:x:0:0::/:/sbin/nologin\ntessera:x:10001:10001::/var/lib/tessera:/sbin/nologin\n' >"$root/etc/passwd"
    printf 'root:x:0:\ntessera:x:10001:\n' >"$root/etc/group"
    # For backups and checkpoints in buckets.
    cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/" 2>/dev/null || true
    mode=0700
    ;;
agent)
    # The mirror that this host has its own Debian from, unless another one is named.
    [ -n "$mirror" ] || read -r mirror < <(
        apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 'Created-By: Packages'
    ) || { echo "$0: no mirror of Debian among the sources of apt; name one in MIRROR" >&2; exit 1; }
    debootstrap --variant=minbase --include=libstdc++6,python3-minimal "$suite" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 ||
        { tail -n 20 "$work/debootstrap.log" >&2; exit 1; }
    rm -rf "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/*
    chroot "$root" useradd --uid 10001 --user-group --no-create-home tessera
    mode=0711
    ;;
*)
    echo "$0: $target is neither member nor agent" >&2
    exit 2
    ;;
esac
install -m 0755 "$binary" "$root/usr/bin/tessera"
strip "$root/usr/bin/tessera" 2>/dev/null || true
install -d -o 10001 -g 10001 -m "$mode" "$root/var/lib/tessera"
tar --numeric-owner -C "$root" -cf "$work/context/$target.tar" .
# Nothing is run while it is built, so that no rights beyond those of this user are needed.
podman build --quiet --isolation=chroot --format oci --file "$here/Containerfile.scratch" --target "$target" --tag "$image" "$work/context"
