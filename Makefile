# Every target sets up what it needs (scripts/setup) and runs from a clean clone. docs/testing.md says what each one shows.

TARGET := $(or $(CARGO_TARGET_DIR),target)
FOREBAY := $(TARGET)/release/forebay

.PHONY: run test check clean

# Builds the appliance and starts it with a pool on files: something to look at. Ctrl-C stops it.
run:
	@scripts/setup run
	cargo build --locked --release -p forebay
	$(FOREBAY) demo --data .demo

# Everything that continuous integration runs. The last line is "N passed, N failed".
test:
	@scripts/run-steps \
	  'setup=scripts/setup test' \
	  'format=cargo fmt --all --check' \
	  'lint=cargo clippy --locked --workspace --all-targets --quiet -- -D warnings' \
	  'build=cargo build --locked --release -p forebay' \
	  'unit=cargo test --locked --workspace --quiet'

# What to run before every commit: a few minutes the first time, seconds afterwards.
check:
	@scripts/setup run
	@scripts/run-steps --stop \
	  'format=cargo fmt --all --check' \
	  'lint=cargo clippy --locked --workspace --all-targets --quiet -- -D warnings' \
	  'unit=cargo test --locked --quiet --workspace --lib --bins'

clean:
	cargo clean
	rm -rf .demo
