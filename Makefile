# Everything that a user or CI does, in front of CMake. A fresh Debian 12 needs only `make demo` and
# `make test`.
BUILD ?= build
JOBS ?= $(shell nproc)
PYTHON := /usr/bin/python3
PREFIX ?= /usr/local
# An existing mount with class folders of images, instead of the slow mount that the demo makes.
ORIGIN ?=
DEMO_FLAGS ?=
BENCH_FLAGS ?=

CLANG := 16
BUILD_PACKAGES := g++ make cmake ninja-build pkg-config libfmt-dev libxxhash-dev libexpected-dev \
  nlohmann-json3-dev libcli11-dev liburing-dev prometheus-cpp-dev libcurl4-openssl-dev \
  libmbedtls-dev
DEMO_PACKAGES := libfuse3-dev fuse3
RUN_PACKAGES := python3-torch python3-torchvision python3-opencv python3-pil python3-numpy \
  python3-matplotlib
TEST_PACKAGES := memcached prometheus chromium libunwind8 libgtest-dev libbenchmark-dev \
  clang-$(CLANG) clang-tidy-$(CLANG) clang-format-$(CLANG) libclang-rt-$(CLANG)-dev libjemalloc2 \
  libmimalloc2.0 libtcmalloc-minimal4 strace libpython3.11-testsuite libcap2-bin bc bsdextrautils \
  busybox-static bzip2 cpio curl dash ed ffmpeg file gdb git less nodejs openssh-client openssl \
  patch perl procps python3-h5py python3-lmdb rsync ruby sqlite3 unzip vim xz-utils zip zstd \
  eatmydata faketime valgrind linux-perf musl-tools python3-botocore python3-pyte libaio1 man-db \
  mandoc zsh fish openmpi-bin python3-yaml
# A mount over sshfs, from a server of the bench's own on the loopback.
BENCH_PACKAGES := libbenchmark-dev openssh-server openssh-client sshfs
# The compiler of a release comes from PyPI (packaging/requirements.txt).
DIST_PACKAGES := python3-venv binutils dpkg-dev rpm lintian git
SUDO := $(shell [ "$$(id -u)" = 0 ] || command -v sudo)

.PHONY: all demo test test-long bench dist docs lint check-format format deps deps-build deps-demo \
  deps-test deps-bench deps-dist install clean
# Builds what a user installs. A tree that was configured for more stays so.
CONFIGURE = cmake -S . -B $(BUILD) -G Ninja
NO_TESTS = $(if $(wildcard $(BUILD)/CMakeCache.txt),,-DCUBESHIM_TESTS=OFF -DCUBESHIM_BENCH=OFF \
  -DCUBESHIM_LAGFS=OFF)
all: deps-build
	$(CONFIGURE) $(NO_TESTS)
	cmake --build $(BUILD) -j $(JOBS) --target product

# Installs missing packages; does not call apt if none is missing.
IS_INSTALLED = dpkg -s $$p 2>/dev/null | grep -q '^Status: .* installed$$'
APT_INSTALL = $(SUDO) env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
  --no-install-recommends
define install_packages
	@missing=$$(for p in $(1); do $(IS_INSTALLED) || echo $$p; done); \
	if [ -n "$$missing" ]; then echo "installing: $$missing"; \
	  $(SUDO) apt-get update -qq && $(APT_INSTALL) $$missing; fi
endef
deps-build:
	$(call install_packages,$(BUILD_PACKAGES))
deps-demo: deps-build
	$(call install_packages,$(DEMO_PACKAGES) $(RUN_PACKAGES))
# Only tests run Prometheus, so the system must not start it as a service.
deps-test: deps-demo
	@[ ! -d /run/systemd/system ] || command -v prometheus > /dev/null || \
	  $(SUDO) systemctl mask prometheus.service
	$(call install_packages,$(TEST_PACKAGES))
deps-bench: deps-demo
	$(call install_packages,$(BENCH_PACKAGES))
deps-dist: deps-build
	$(call install_packages,$(DIST_PACKAGES))
deps: deps-test deps-bench deps-dist

# The main job on a real data set over a slow mount, with and without the shim.
demo: deps-demo
	@echo "== 1 of 2: building the library, the command and a slow mount (some two minutes on 2 cores)"
	$(CONFIGURE) $(NO_TESTS) -DCUBESHIM_LAGFS=ON
	cmake --build $(BUILD) -j $(JOBS) --target product lagfs
	@echo "== 2 of 2: training on it with and without cubeshim (some three minutes;" \
	  "it says what it does)"
	$(PYTHON) bench/demo/demo.py --build $(BUILD) $(if $(ORIGIN),--origin $(ORIGIN)) $(DEMO_FLAGS)

# Builds, static checks, sanitizers and tests: some 35 minutes on 2 cores. The runner prints the
# last line.
test: deps-test
	$(PYTHON) tests/run_all.py --build $(BUILD) --jobs $(JOBS)
# Everything, for releases and nights: takes hours.
test-long: deps-test
	$(PYTHON) tests/run_all.py --build $(BUILD) --jobs $(JOBS) --long

bench: deps-bench deps-demo
	$(CONFIGURE) $(NO_TESTS) -DCUBESHIM_LAGFS=ON -DCUBESHIM_BENCH=ON
	cmake --build $(BUILD) -j $(JOBS) --target all bench_programs
	$(PYTHON) bench/run_bench.py --build $(BUILD) $(BENCH_FLAGS)

# A release for each architecture: tar, wheel, deb, rpm, checksums and a list of the components, in
# $(BUILD)-dist/release.
dist: deps-dist
	$(PYTHON) packaging/dist.py --out $(BUILD)-dist --jobs $(JOBS)

# The website of the documents, in $(BUILD)-docs/site; fails on a link that leads nowhere.
docs:
	$(PYTHON) packaging/docs.py --out $(BUILD)-docs

# A checkout may belong to another user, as in a container.
SOURCES = $(shell git -c safe.directory='*' ls-files '*.cc' '*.h')
lint: deps-test check-format
	$(CONFIGURE) -DCUBESHIM_TESTS=ON -DCUBESHIM_BENCH=ON -DCUBESHIM_LAGFS=ON
	$(PYTHON) tests/lint.py $(BUILD) --jobs $(JOBS)
check-format:
	clang-format-$(CLANG) --dry-run --Werror $(SOURCES)
format: deps-test
	clang-format-$(CLANG) -i $(SOURCES)

install: all
	cmake --install $(BUILD) --prefix $(PREFIX)

clean:
	rm -rf $(BUILD) $(addprefix $(BUILD)-,dist docs clang asan tsan mutants)
