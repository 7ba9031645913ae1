#!/usr/bin/env bash
# Stands for rustdoc where cargo would run the examples of documents (cargo test --doc): writes the documents of the crate, from the
# very libraries that tests are linked with. `cargo doc` would have all that they stand on read once more.
set -euo pipefail

words=()
own=
for word in "$@"; do
    case $word in
        --test) ;;
        --test-*) own=next ;;
        *)
            [ -n "$own" ] || words+=("$word")
            own=
            ;;
    esac
done
exec rustdoc "${words[@]}" --out-dir "$CARGO_TARGET_DIR/doc"
