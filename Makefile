# The two commands of the README. Both install what they need and can be run again and again.
.ONESHELL:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo test build lint unit packages operating console simulation bench wheel device device-bench device-together

## Brings up a pool on this machine, runs real work on it, kills the leader, and shows that nothing was lost.
demo:
	eval "$$(deploy/setup.sh demo)"
	cargo build --release --locked -p tessera-cli
	exec python deploy/demo/demo.py --binary "$$CARGO_TARGET_DIR/release/tessera" $(DEMO)

## Everything that is checked: format, lints, documents, protocol files, unit, property, models, end-to-end, what is deployed,
## dashboards, alerts and runbooks, the console in a browser, whole pools under seeded faults, and the device for PyTorch in jobs
## and by itself.
test: lint unit packages operating console simulation device

build:
	eval "$$(deploy/setup.sh build)"
	export TESSERA_REVISION="$$(git rev-parse --short=12 HEAD 2>/dev/null || true)"
	cargo build --release --locked -p tessera-cli
	echo "built $$CARGO_TARGET_DIR/release/tessera"

lint:
	eval "$$(deploy/setup.sh test)"
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
	buf lint proto
	buf breaking proto --against proto/released.binpb
	# Each crate and module opens with the paragraph that a newcomer needs; files of unit tests need none.
	git ls-files 'crates/*/src/*.rs' 'crates/*/build.rs' 'chaos/*.rs' ':!*tests.rs' |
		xargs awk 'FNR == 1 && !/^\/\/! / { print FILENAME ": opens without a //! paragraph"; bad = 1 } END { exit bad }'
	python3 deploy/reasons.py --check
	python3 docs/benchmarks/tables.py --check

unit:
	eval "$$(deploy/setup.sh test)"
	# With the features of the whole workspace, so that the tests find everything built that the binary is built of.
	cargo build --locked --workspace --bin tessera
	export TESSERA_BIN="$$CARGO_TARGET_DIR/debug/tessera"
	cargo test --workspace --locked --no-fail-fast

## What is deployed: units, the Debian package installed and run, an image, manifests, and three hosts 10 ms apart (deploy/README.md). Needs root.
packages:
	eval "$$(deploy/setup.sh test)"
	cargo build --locked --workspace --bin tessera
	export TESSERA_BIN="$$CARGO_TARGET_DIR/debug/tessera"
	python deploy/manifests.py
	folder=$$(mktemp -d)
	trap 'rm -rf "$$folder"' EXIT
	TESSERA_PACKAGE=$$(PACKAGE_COMPRESSION=gz deploy/package/build.sh "$$TESSERA_BIN" "$$folder")
	export TESSERA_PACKAGE
	deploy/package/test.sh
	deploy/container/test.sh member
	deploy/systemd/test.sh
	python deploy/hosts/rehearse.py --binary "$$TESSERA_BIN" --package "$$TESSERA_PACKAGE" --round-trip 10

## The web console in a browser, on a real pool (docs/console.md). Screenshots lie in /tmp/tessera-console afterwards.
console:
	eval "$$(deploy/setup.sh console)"
	cargo build --locked --workspace --bin tessera
	timeout --signal=INT --kill-after=30 600 python tests/console/check.py --binary "$$CARGO_TARGET_DIR/debug/tessera" --axe "$$TESSERA_AXE" $(CONSOLE)

## Whole pools under faults, decided by seeds (chaos/sim/README.md): a bounded number of them, those that once found something, and
## planted bugs, each of which must be seen. Built apart from the rest, in a folder of its own.
simulation:
	eval "$$(deploy/setup.sh simulation)"
	cd chaos/sim
	cargo fmt --check
	# Clippy is the compiler here: all that this stands on would be read a second time for it otherwise.
	RUSTC_WORKSPACE_WRAPPER=clippy-driver cargo test --locked --no-fail-fast

## What operators see and are told (docs/observability.md): dashboards, rules and runbooks, against a real pool, Prometheus and
## Alertmanager.
operating:
	eval "$$(deploy/setup.sh test)"
	cargo build --locked --workspace --bin tessera
	export TESSERA_BIN="$$CARGO_TARGET_DIR/debug/tessera"
	timeout --signal=INT --kill-after=30 300 python -m unittest discover -s tests/operating

## The device for PyTorch (docs/device.md): its wheel, in an environment with PyTorch.
wheel:
	eval "$$(deploy/setup.sh torch)"
	cd crates/torch
	maturin build --release --locked --quiet --out "$$CARGO_TARGET_DIR/wheels"
	python -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$$CARGO_TARGET_DIR"/wheels/tessera-*.whl
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -m tessera.build >/dev/null

## What programs see of a virtual card, slice servers under good and bad programs, jobs on a pool, and a sample of PyTorch's own samples.
device: wheel
	eval "$$(deploy/setup.sh test)"
	cargo build --locked --workspace --bin tessera
	export TESSERA_BIN="$$CARGO_TARGET_DIR/debug/tessera"
	eval "$$(deploy/setup.sh torch)"
	cd crates/torch
	export TORCH_DEVICE_BACKEND_AUTOLOAD=0
	# Most of their time is that of one processor, which loads PyTorch.
	timeout --signal=INT --kill-after=30 1800 python -m pytest -q -p no:cacheprovider -m "not alone" -n 2 --dist worksteal
	timeout --signal=INT --kill-after=30 900 python -m pytest -q -p no:cacheprovider -m alone

## The figures of docs/benchmarks/device.md.
device-bench: wheel
	eval "$$(deploy/setup.sh torch)"
	python crates/torch/bench/measure.py --out docs/benchmarks/device.md

## What several unequal slices bring together: docs/benchmarks/device-together.md.
device-together: wheel
	eval "$$(deploy/setup.sh torch)"
	python crates/torch/bench/together.py --out docs/benchmarks/device-together.md
