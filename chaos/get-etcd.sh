#!/usr/bin/env bash
# Unpacks Debian's etcd beside the build and prints the path of its binary:
#
#     --etcd "$(chaos/get-etcd.sh)"
#
# It is not installed, because the package would start a service. TESSERA_CACHE names the cache (default: ~/.cache/tessera).
set -euo pipefail

cache=${TESSERA_CACHE:-$HOME/.cache/tessera}/etcd
if [ ! -x "$cache/usr/bin/etcd" ]; then
    mkdir -p "$cache"
    cd "$cache"
    apt-get download -qq etcd-server >&2 || { apt-get update -qq >&2 && apt-get download -qq etcd-server >&2; }
    dpkg -x etcd-server_*.deb "$cache"
fi
echo "$cache/usr/bin/etcd"
