# Every target sets up what it needs (scripts/setup) and runs from a clean clone. docs/development/testing.md says what each one shows.

TARGET := $(or $(CARGO_TARGET_DIR),target)
FOREBAY := $(TARGET)/release/forebay
E2E := $(TARGET)/release/forebay-e2e --server $(FOREBAY)
BENCH := $(TARGET)/release/forebay-bench --server $(FOREBAY)
# Built as the tests are, and with them: optimised, with assertions, and a panic of the engine is a finding instead of the end. Worlds come and go by the
# thousand: the C library is told not to give their memory back to the system each time.
SIM := env MALLOC_MMAP_THRESHOLD_=1073741824 MALLOC_TRIM_THRESHOLD_=4294967296 $(TARGET)/debug/sim
TESTED := $(TARGET)/debug/forebay
TEST_E2E := $(TARGET)/debug/forebay-e2e --server $(TESTED)

.PHONY: run web test check sim fuzz bench e2e package package-test nightly clean

# Builds the appliance and starts it with a pool on files: something to look at. Ctrl-C stops it.
run: web
	@scripts/setup run
	@[ -e $(FOREBAY) ] || echo "The first build takes up to half an hour on two cores; later ones compile only what has changed."
	cargo build --locked --release -p forebay
	$(FOREBAY) demo --data .demo

# The browser interface, which the build of the daemon puts into it.
web: web/node_modules/.package-lock.json
	@# Cargo looks for files that were there: the first time, it has to be told.
	@[ -f web/dist/index.html ] || touch crates/forebay/build.rs
	cd web && npm run --silent build
web/node_modules/.package-lock.json: web/package-lock.json
	@scripts/setup web
	cd web && npm ci

# Everything that continuous integration runs, on one build. The tests of the program mostly wait for clocks, timeouts and disks, and the
# simulator for a processor: they run together, the simulator behind; what takes gigabytes of memory runs alone. The last line is "N passed, N failed".
test:
	@scripts/run-steps \
	  'setup=scripts/setup test' \
	  'web=make --no-print-directory web && cd web && npm run --silent check && npm test' \
	  'format=cargo fmt --all --check' \
	  'lint=cargo clippy --locked --workspace --all-targets --quiet -- -D warnings' \
	  'build=cargo build --locked --profile test --workspace --all-targets' \
	  'unit=cargo test --locked --workspace --quiet --no-fail-fast' \
	  --together 4 \
	  'e2e=$(TEST_E2E)' \
	  'browser=testing/browser/run --server $(TESTED)' \
	  'api=testing/api/run --server $(TESTED)' \
	  'package=testing/package/run --server $(TESTED)' \
	  'matrix=nice $(SIM) matrix --fresh 3' \
	  'planted=nice $(SIM) planted' \
	  'crash=nice $(SIM) crash --images 10000' \
	  --apart \
	  'numbers=$(SIM) numbers'

# What to run before every commit: a few minutes the first time, seconds afterwards.
check:
	@scripts/setup run
	@scripts/run-steps --stop \
	  'format=cargo fmt --all --check' \
	  'lint=cargo clippy --locked --workspace --all-targets --quiet -- -D warnings' \
	  'tidy=cargo test --locked --quiet -p forebay-tidy' \
	  'unit=cargo test --locked --quiet --workspace --lib --bins'

# The engine on simulated disks: every fault, every planted bug, crash images.
sim:
	@scripts/setup run
	cargo build --locked --profile test -p forebay-sim
	$(SIM) matrix
	$(SIM) planted
	$(SIM) numbers
	$(SIM) crash --images 20000

# Hostile bytes, a minute for each target. Needs nightly Rust and cargo-fuzz.
fuzz:
	@scripts/setup run
	scripts/fuzz 60

# Real clients against the real daemon: file systems, fio, nbdcopy, qemu, a Linux guest with multipath, kill -9.
e2e:
	@scripts/setup test
	cargo build --locked --release -p forebay -p forebay-e2e
	$(E2E)

# The device, the engine and its NBD server beside nbdkit and qemu-nbd, interleaved on files of one size; parity beside ISA-L;
# snapshots and formats of volumes beside none; what a second core brings; instructions of a request; whether service levels are kept.
bench:
	@scripts/setup test
	cargo build --locked --release -p forebay -p forebay-bench
	$(BENCH)
	$(BENCH) --import
	$(BENCH) --parity
	$(BENCH) --compression
	$(BENCH) --services
	$(BENCH) --scaling
	$(BENCH) --instructions
	$(BENCH) --levels
	$(BENCH) --analytics

# Debian packages of the appliance, in target/packages.
package: web
	@scripts/setup package
	cargo build --locked --release -p forebay
	rm -rf $(TARGET)/packages
	packaging/build $(FOREBAY) $(TARGET)/packages

# The packages on Debian: reproducible, installed, upgraded under load, killed, removed, on a virtual machine with systemd.
package-test: package
	@scripts/setup test
	testing/package/run --server $(FOREBAY) --twice
	testing/package/bare $(TARGET)/packages
	testing/package/guest $(TARGET)/packages

# What takes too long for every change. One step after the other: most of them measure.
nightly:
	@STEP_SECONDS=20000 scripts/run-steps \
	  'setup=scripts/setup test' \
	  'deny=scripts/deny' \
	  'build=cargo build --locked --release -p forebay -p forebay-e2e -p forebay-bench' \
	  'simulator=cargo build --locked --profile test -p forebay-sim' \
	  'crash=$(SIM) crash --images 400000 --seed 1000000' \
	  'matrix=$(SIM) matrix' \
	  'long=$(SIM) matrix --operations 2000 --seed 100' \
	  'scale=$(SIM) scale --volumes 100000 --snapshots 1000000 --chunks 40000 --shards 2' \
	  "fresh=$(SIM) matrix --minutes 180 --seed $$(date +%s)000" \
	  'fuzz=scripts/fuzz 600' \
	  'strangers=scripts/fuzz 3600 iscsi_login iscsi_chap iscsi_keys iscsi_text nbd_handshake' \
	  'e2e=$(E2E)' \
	  'api=testing/api/run --server $(FOREBAY) --examples 200 --seed 2' \
	  'guest=$(E2E) guest-long' \
	  'hostile=$(E2E) hostile' \
	  'package=make --no-print-directory package-test' \
	  'instructions=$(BENCH) --instructions-check' \
	  'import=$(BENCH) --import' \
	  'bench=$(BENCH) --json $(TARGET)/bench.json' \
	  'parity=$(BENCH) --parity' \
	  'compression=$(BENCH) --compression' \
	  'services=$(BENCH) --services' \
	  'scaling=$(BENCH) --scaling' \
	  'levels=$(BENCH) --levels' \
	  'analytics=$(BENCH) --analytics'

clean:
	cargo clean
	rm -rf .demo web/dist web/node_modules web/.generated testing/browser/node_modules
