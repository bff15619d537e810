# Everything a user or CI does, in front of CMake. `make demo` and `make test` are all that a fresh Debian 12 needs.
BUILD ?= build
JOBS ?= $(shell nproc)
PYTHON := /usr/bin/python3
PREFIX ?= /usr/local
# An existing mount with class folders of images, instead of the slow mount that the demo makes.
ORIGIN ?=
DEMO_FLAGS ?=
BENCH_FLAGS ?=

CLANG := 16
BUILD_PACKAGES := g++ make cmake ninja-build pkg-config libfmt-dev libxxhash-dev libexpected-dev nlohmann-json3-dev \
  libcli11-dev libfuse3-dev fuse3 libgtest-dev libbenchmark-dev liburing-dev
RUN_PACKAGES := python3-torch python3-torchvision python3-opencv python3-pil python3-numpy python3-matplotlib
TEST_PACKAGES := clang-$(CLANG) clang-tidy-$(CLANG) clang-format-$(CLANG) libclang-rt-$(CLANG)-dev libjemalloc2 \
  libmimalloc2.0 strace libpython3.11-testsuite libcap2-bin bc bsdextrautils busybox-static bzip2 cpio curl dash ed \
  ffmpeg file gdb git less nodejs openssh-client openssl patch perl procps python3-h5py python3-lmdb rsync ruby \
  sqlite3 unzip vim xz-utils zip zstd eatmydata faketime valgrind linux-perf musl-tools libaio1 man-db mandoc zsh fish
# A mount over sshfs, by a server of the bench's own on the loopback.
BENCH_PACKAGES := openssh-server openssh-client sshfs
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)

.PHONY: all demo test bench lint format deps deps-build deps-demo deps-test deps-bench install clean
all: deps-build $(BUILD)/build.ninja
	cmake --build $(BUILD) -j $(JOBS)

$(BUILD)/build.ninja: | deps-build
	cmake -S . -B $(BUILD) -G Ninja

# Installs what is missing, and asks apt for nothing where nothing is.
define install_packages
	@missing=$$(for p in $(1); do dpkg -s $$p 2>/dev/null | grep -q '^Status: .* installed$$' || echo $$p; done); \
	if [ -n "$$missing" ]; then echo "installing: $$missing"; \
	  $(SUDO) apt-get update -qq && $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; fi
endef
deps-build:
	$(call install_packages,$(BUILD_PACKAGES))
deps-demo: deps-build
	$(call install_packages,$(RUN_PACKAGES))
deps-test: deps-demo
	$(call install_packages,$(TEST_PACKAGES))
deps-bench: deps-demo
	$(call install_packages,$(BENCH_PACKAGES))
deps: deps-test deps-bench

# The main job on a real data set over a slow mount, with and without the shim.
demo: deps-demo all
	$(PYTHON) bench/demo.py --build $(BUILD) $(if $(ORIGIN),--origin $(ORIGIN)) $(DEMO_FLAGS)

# Lint, sanitizers, both compilers, all tests. The last line is the runner's.
test: deps-test lint all
	cmake -S . -B $(BUILD)-clang -G Ninja -DCMAKE_CXX_COMPILER=clang++-$(CLANG) -DCMAKE_C_COMPILER=clang-$(CLANG) -DCUBESHIM_WERROR=ON \
	  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DCMAKE_C_FLAGS_DEBUG=-O0
	cmake --build $(BUILD)-clang -j $(JOBS)
	cmake -S . -B $(BUILD)-asan -G Ninja -DCMAKE_CXX_COMPILER=clang++-$(CLANG) -DCMAKE_C_COMPILER=clang-$(CLANG) -DCUBESHIM_SANITIZE=address,undefined
	cmake --build $(BUILD)-asan -j $(JOBS)
	cmake -S . -B $(BUILD)-tsan -G Ninja -DCMAKE_CXX_COMPILER=clang++-$(CLANG) -DCMAKE_C_COMPILER=clang-$(CLANG) -DCUBESHIM_SANITIZE=thread
	cmake --build $(BUILD)-tsan -j $(JOBS)
	ctest --test-dir $(BUILD)-asan --output-on-failure -j $(JOBS)
	ctest --test-dir $(BUILD)-tsan --output-on-failure -j $(JOBS)
	ctest --test-dir $(BUILD) --output-on-failure -j $(JOBS)

bench: deps-bench all
	$(PYTHON) bench/run_bench.py --build $(BUILD) $(BENCH_FLAGS)

# A checkout may be another user's, as in a container.
SOURCES = $(shell git -c safe.directory='*' ls-files '*.cc' '*.h')
lint: deps-test $(BUILD)/build.ninja
	clang-format-$(CLANG) --dry-run --Werror $(SOURCES)
	run-clang-tidy-$(CLANG) -quiet -p $(BUILD) -j $(JOBS) '^$(CURDIR)/(cache|prefetch|shim)/.*\.cc$$' > $(BUILD)/clang-tidy.log 2>&1 \
	  || { grep -E 'warning|error' $(BUILD)/clang-tidy.log; exit 1; }
format: deps-test
	clang-format-$(CLANG) -i $(SOURCES)

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD) $(BUILD)-clang $(BUILD)-asan $(BUILD)-tsan
