#!/bin/sh -p
# CRIU of a newer Debian on this one, for the tests: run by the loader and with the libraries that came with it. It lies in
# TESSERA_CACHE/bin beside TESSERA_CACHE/criu, where deploy/setup.sh test puts both. (-p: it keeps its effective user.)
here=$(readlink -f "$0")
root=${here%/bin/criu}/criu

# CRIU keeps what it found out about the kernel in /run, if that is in memory only. Where it is not, looking at the kernel
# each time takes rights that it has not got when it runs for a worker: what is kept is put there, and made anew for
# another kernel or CRIU.
kept=/run/criu.kdat
if [ "$1" = check ] && [ "$(stat -f -c %T /run)" != tmpfs ]; then
    stamp="$(uname -r) $(cat /proc/sys/kernel/random/boot_id) $(stat -c %Y "$root/usr/sbin/criu")"
    if [ ! -e "$kept" ] || [ "$(cat "$kept.of" 2>/dev/null)" != "$stamp" ]; then
        # shellcheck disable=SC2016 # what is expanded there is not to be expanded here
        made=$(mktemp) && unshare -m sh -c 'mount -t tmpfs none /run && "$@" >/dev/null && cat /run/criu.kdat' sh "$0" check >"$made" \
            && mv "$made" "$kept" && echo "$stamp" >"$kept.of"
    fi
fi
# In the place of this script: what is restored becomes a child of whoever started it.
exec "$root/usr/lib64/ld-linux-x86-64.so.2" --library-path "$root/usr/lib/x86_64-linux-gnu" "$root/usr/sbin/criu" "$@"
