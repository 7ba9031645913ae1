# The two commands of the README. Both install what they need and can be run again and again.
.ONESHELL:
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.PHONY: demo test build setup compile lint unit packages operating console simulation-compile simulation wheel wheels device device-bench \
	device-together soak

# What is made on the way can be read by others, also by those who may read nothing of whoever runs this.
set_up = umask 022; variables=$$(deploy/setup.sh $(1)); eval "$$variables"
# The binary as the tests are compiled with it: the same code as everywhere, debugged.
tested = export TESSERA_BIN="$$CARGO_TARGET_DIR/debug/tessera"
# Tests say how long they took.
timed = export CARGO_TARGET_$$(rustc --print host-tuple | tr a-z- A-Z_)_RUNNER=$(1)tests/timed.sh

## Brings up a pool on this machine, runs real work on it, kills the leader, and shows that nothing was lost.
demo:
	$(call set_up,demo)
	cargo build --release --locked -p tessera-cli
	exec python deploy/demo/demo.py --binary "$$CARGO_TARGET_DIR/release/tessera" $(DEMO)

## Everything that is checked, part by part, with what each took (tests/suite.py): format, lints, documents, protocol files, unit,
## property, models, end-to-end, what is deployed, dashboards, alerts and runbooks, the console in a browser, whole pools under seeded
## faults, and the device for PyTorch in jobs and by itself.
test: # PARTS="lint unit" for some of it
	command -v python3 >/dev/null || (umask 022; deploy/setup.sh build >/dev/null)
	exec python3 tests/suite.py $(PARTS)

build:
	$(call set_up,build)
	export TESSERA_REVISION="$$(git rev-parse --short=12 HEAD 2>/dev/null || true)"
	cargo build --release --locked -p tessera-cli
	echo "built $$CARGO_TARGET_DIR/release/tessera"

## Installs what the suite needs.
setup:
	umask 022
	deploy/setup.sh suite >/dev/null

## Everything that the tests run, the binary among it. Clippy is the compiler: what it finds is an error (deploy/setup.sh).
compile:
	$(call set_up,test)
	cargo test --workspace --locked --no-run
	cargo test --workspace --locked --no-run --benches

lint: compile
	$(call set_up,test)
	cargo fmt --all --check
	RUSTDOCFLAGS="-D warnings" RUSTDOC="$$PWD/tests/documents.sh" cargo test --workspace --doc --locked --quiet
	buf lint proto
	buf breaking proto --against proto/released.binpb
	# Each crate and module opens with the paragraph that a newcomer needs; files of unit tests need none.
	git ls-files 'crates/*/src/*.rs' 'crates/*/build.rs' 'chaos/*.rs' ':!*tests.rs' |
		xargs awk 'FNR == 1 && !/^\/\/! / { print FILENAME ": opens without a //! paragraph"; bad = 1 } END { exit bad }'
	# A file of tests that its executable does not name would never be compiled.
	git ls-files 'crates/*/tests/main.rs' tests/tests/main.rs | while read -r main; do
		for file in "$${main%main.rs}"*.rs "$${main%main.rs}"*/mod.rs; do
			module=$$(basename "$${file%/mod.rs}" .rs)
			[ -e "$$file" ] || continue
			[ "$$module" = main ] || grep -q "^mod $$module;" "$$main" || { echo "$$main does not name $$module"; exit 1; }
		done
	done
	python3 deploy/reasons.py --check
	python3 docs/benchmarks/tables.py --check
	python3 tests/suite.py --check
	cargo fetch --locked --quiet --target "$$(rustc --print host-tuple)"
	cargo deny --offline --locked --log-level error check --deny unmatched-skip licenses bans sources
	python3 tests/libraries.py
	python3 tests/proofs.py
	python3 tests/settings.py
	python3 tests/language.py

unit: compile
	$(call set_up,test)
	$(tested)
	$(call timed,)
	cargo test --workspace --locked --no-fail-fast

## What is deployed: units, the Debian package installed and run, an image, manifests, and three hosts 10 ms apart (deploy/README.md). Needs root.
packages: compile
	$(call set_up,test)
	$(tested)
	python deploy/manifests.py
	folder=$$(mktemp -d)
	trap 'rm -rf "$$folder"' EXIT
	TESSERA_PACKAGE=$$(PACKAGE_COMPRESSION=gz deploy/package/build.sh "$$TESSERA_BIN" "$$folder")
	export TESSERA_PACKAGE
	deploy/package/test.sh
	deploy/container/test.sh member
	deploy/systemd/test.sh
	python deploy/hosts/rehearse.py --binary "$$TESSERA_BIN" --package "$$TESSERA_PACKAGE" --round-trip 10

## The web console in a browser, on a real pool (docs/console.md). Screenshots lie in target/console afterwards.
console: compile
	$(call set_up,console)
	$(tested)
	python tests/console/check.py --binary "$$TESSERA_BIN" --axe "$$TESSERA_AXE" --keep "$$CARGO_TARGET_DIR/console" $(CONSOLE)

## Whole pools under faults, decided by seeds (chaos/sim/README.md): a bounded number of them, those that once found something, and
## planted bugs, each of which must be seen. A workspace of its own, for it asks for other features of our own crates.
simulation: simulation-compile
	$(call set_up,simulation)
	cd chaos/sim
	cargo fmt --check
	$(call timed,../../)
	cargo test --locked --no-fail-fast

simulation-compile:
	$(call set_up,simulation)
	cd chaos/sim
	cargo test --locked --no-run

## A real pool under jobs of all kinds and under faults, for a minute (tests/soak/soak.py): each job has the end of its kind, and what
## must not grow does not. With MINUTES=30, what only rarely finds something: the same for a third of that time, and for the rest seeds
## of the simulation that nobody has run yet.
soak: compile $(if $(MINUTES),simulation-compile)
	$(call set_up,test)
	$(tested)
	minutes=$(MINUTES) failed=
	python tests/soak/soak.py --binary "$$TESSERA_BIN" --seconds "$$((minutes ? minutes * 20 : 60))" $(SOAK) || failed=1
	if [ -n "$$minutes" ]; then
		$(call set_up,simulation)
		cd chaos/sim
		first=$$(date +%s)
		cargo run --locked -- run --seeds "$$first..$$((first + 1000000))" --minutes "$$((minutes * 2 / 3))" --jobs 2 || failed=1
	fi
	[ -z "$$failed" ]

## What operators see and are told (docs/observability.md): dashboards, rules and runbooks, against a real pool, Prometheus and
## Alertmanager.
operating: compile
	$(call set_up,operating)
	$(tested)
	python -m unittest discover -s tests/operating

## The device for PyTorch (docs/device.md): its wheel, in an environment with PyTorch.
wheel:
	$(call set_up,torch)
	cd crates/torch
	maturin build --release --locked --quiet --out "$$CARGO_TARGET_DIR/wheels"
	python -m pip --python "$$TESSERA_TORCH" install -q --disable-pip-version-check --no-deps --force-reinstall "$$CARGO_TARGET_DIR"/wheels/tessera-*.whl
	TORCH_DEVICE_BACKEND_AUTOLOAD=0 python -m tessera.build >/dev/null

## The wheel of a release (docs/device-reference.md): it holds the dispatcher for the two newest minor versions of PyTorch (deploy/setup.sh).
wheels:
	$(call set_up,wheels)
	cd crates/torch
	trap 'rm -rf python/tessera/prebuilt' EXIT
	rm -rf python/tessera/prebuilt
	export PYTHONPATH=python
	python -m tessera.build --into python/tessera
	LD_LIBRARY_PATH="$$TESSERA_STUBS_BEFORE" "$$TESSERA_TORCH_BEFORE/bin/python" -m tessera.build --into python/tessera
	maturin build --release --locked --quiet --out "$$CARGO_TARGET_DIR/wheels/release"

## What programs see of a virtual card, slice servers under good and bad programs, jobs on a pool, and a sample of PyTorch's own samples.
device: compile wheel
	$(call set_up,test)
	$(call set_up,torch)
	$(tested)
	cd crates/torch
	export TORCH_DEVICE_BACKEND_AUTOLOAD=0
	failed=
	# Most of their time goes into loading PyTorch, the rest into waiting: with as many at once as processors, these are idle for a third of it.
	python -m pytest -q -p no:cacheprovider --durations=10 -m "not alone" -n "$$(($$(nproc) * 3 / 2))" --dist worksteal || failed=1
	python -m pytest -q -p no:cacheprovider --durations=10 -m alone || failed=1
	[ -z "$$failed" ]

## The figures of docs/benchmarks/device.md.
device-bench: wheel
	$(call set_up,torch)
	python crates/torch/bench/measure.py --out docs/benchmarks/device.md

## What several unequal slices bring together: docs/benchmarks/device-together.md.
device-together: wheel
	$(call set_up,torch)
	python crates/torch/bench/together.py --out docs/benchmarks/device-together.md
