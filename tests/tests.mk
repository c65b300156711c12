# Targets of tests and checks; included by the top Makefile. Nothing here needs an installed package to be parsed:
# `make check` starts on a machine that has git and make only.

# ---- unit tests: tests/unit/<dir>/test_x.c, one program each, linked with what <dir> belongs to --

unit_src := $(shell find tests/unit -name 'test_*.c' 2>/dev/null)
unit_bin := $(unit_src:%.c=build/$(BUILD)/%)
fakes_src := $(wildcard tests/fakes/*.c)
fakes_obj := $(fakes_src:%.c=$(OBJ)/%.o)
# All of the gateway but what starts it: app.o would pull in the agent.
gateway_test_obj := $(filter-out $(OBJ)/gateway/app.o,$(gateway_obj))

# Kept: make would delete the objects of programs as intermediate files.
.PRECIOUS: $(OBJ)/%.o

# What several tests of common/ use, such as a server in a thread.
unit_support_obj := $(patsubst %.c,$(OBJ)/%.o,$(wildcard tests/unit/common/support/*.c))

build/$(BUILD)/tests/unit/common/%: $(OBJ)/tests/unit/common/%.o $(unit_support_obj) $(common_obj)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(LDOPT) $^ -o $@ -lcmocka $(EXECD_LIBS)

build/$(BUILD)/tests/unit/execd/%: $(OBJ)/tests/unit/execd/%.o $(execd_obj) $(common_obj)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(LDOPT) $^ -o $@ -lcmocka $(EXECD_LIBS)

build/$(BUILD)/tests/unit/gateway/%: $(OBJ)/tests/unit/gateway/%.o $(fakes_obj) $(gateway_test_obj) $(common_obj)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(OPT) $(LDOPT) $^ -o $@ -lcmocka $(GATEWAY_LIBS)

# UNIT=common/http runs those below tests/unit/common/http only.
unit_run := $(if $(UNIT),$(filter build/$(BUILD)/tests/unit/$(UNIT)%,$(unit_bin)),$(unit_bin))

.PHONY: unit
unit: $(unit_run) ## unit tests; BUILD=asan or tsan for a sanitized run, UNIT=common/http for some of them
	$(Q)tests/run_unit.sh $(unit_run)

# ---- benchmarks: numbers are read, they never fail a run ---------------------------------------

build/$(BUILD)/bench/front_server: $(OBJ)/tests/bench/front_server.o $(common_obj)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(LDOPT) $^ -o $@ $(EXECD_LIBS)

.PHONY: bench-front
bench-front: build/$(BUILD)/bench/front_server ## the front against nginx and against libmicrohttpd alone
	$(Q)tests/bench/front.sh $<

.PHONY: bench-reads
bench-reads: all ## get and lists with 10, 1,000 and 10,000 records
	$(Q)tests/bench/reads.py --binary $(OUT)/sandgate

# what shells cost by themselves; static: it is put into sandboxes
build/$(BUILD)/bench/spawn: tests/bench/spawn.c
	@mkdir -p $(@D)
	$(Q)$(CC) -O2 -static $< -o $@

.PHONY: bench-command bench-files bench
bench-command: all build/$(BUILD)/bench/spawn ## commands and a million lines; OTHER=BINARY: beside another agent
	$(Q)tests/bench/command.py $(if $(OTHER),--other $(OTHER))

bench-files: all ## 300 MB up and down; OTHER=BINARY: beside another agent
	$(Q)tests/bench/files.py $(if $(OTHER),--other $(OTHER))

bench: bench-front bench-reads bench-command bench-files ## all of these

# ---- fuzzing: tests/fuzz/fuzz_<target>.c with clang's libFuzzer, seeds in tests/fuzz/corpus/<target>/ --

fuzz_targets := $(patsubst tests/fuzz/fuzz_%.c,%,$(wildcard tests/fuzz/fuzz_*.c))

ifeq ($(BUILD),fuzz)
# What a target needs beyond common/: named by file, wherever that lies.
fuzz_obj = $(patsubst %.c,$(OBJ)/%.o,$(filter $(patsubst %,\%/%.c,$(1)),$(execd_src) $(gateway_src)))
fuzz_extra_units := $(call fuzz_obj,units)
fuzz_extra_envfile := $(call fuzz_obj,envfile env expand)
fuzz_extra_session_state := $(call fuzz_obj,session_state env)
fuzz_extra_range := $(call fuzz_obj,range)
fuzz_extra_glob := $(call fuzz_obj,glob)
fuzz_extra_frames := $(filter %/docker/frames.o,$(gateway_obj))
fuzz_extra_progress := $(call fuzz_obj,progress)
fuzz_extra_engine_events := $(call fuzz_obj,event_feed)
fuzz_extra_image_ref := $(call fuzz_obj,image_ref)
fuzz_extra_container := $(call fuzz_obj,describe inspect)
fuzz_extra_tar := $(call fuzz_obj,tar)
fuzz_extra_resources := $(call fuzz_obj,resources metadata platform)
fuzz_extra_create_body := $(filter %/gateway/api/create_body.o %/gateway/api/encode.o \
  %/gateway/api/hooks_body.o %/gateway/api/event_body.o %/gateway/sandbox.o,$(gateway_obj)) $(call fuzz_obj,volume_body volume_rules host_path)
fuzz_extra_volumes := $(call fuzz_obj,volume_body volume_rules host_path)
fuzz_extra_agent_body := $(execd_obj)
fuzz_extra_pem := $(call fuzz_obj,pem)
fuzz_extra_metrics := $(call fuzz_obj,parse)
fuzz_extra_cron := $(call fuzz_obj,cron zone)
fuzz_extra_lifecycle := $(filter %/execd/exec/lifecycle.o %/exec/cron.o %/exec/zone.o,$(execd_obj))
fuzz_extra_kernel_frames := $(filter %/execd/code/frames.o,$(execd_obj))
fuzz_extra_jupyter := $(call fuzz_obj,jupyter_msg jupyter_replies)
fuzz_extra_pty := $(call fuzz_obj,message)
fuzz_extra_lines := $(call fuzz_obj,lines)
fuzz_extra_words := $(call fuzz_obj,words)
fuzz_extra_target := $(call fuzz_obj,target port_path)

fuzz_bin := $(fuzz_targets:%=build/fuzz/fuzz_%)

.SECONDEXPANSION:
$(fuzz_bin): build/fuzz/fuzz_%: $(OBJ)/tests/fuzz/fuzz_%.o $(common_obj) $$(fuzz_extra_$$*)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(LDOPT) -fsanitize=fuzzer $^ -o $@ $(EXECD_LIBS)

.PHONY: fuzz-bin
fuzz-bin: $(fuzz_bin)
endif

TARGET ?=
SECONDS ?= 60
unexport SECONDS

.PHONY: fuzz-smoke fuzz
fuzz-smoke: ## every fuzz corpus and 5 s of fuzzing per target
	$(Q)$(MAKE) --no-print-directory BUILD=fuzz fuzz-bin
	$(Q)tests/fuzz/run.sh 5 $(fuzz_targets)

fuzz: ## TARGET=jx SECONDS=600: a longer run of one target
	$(Q)$(if $(filter $(TARGET),$(fuzz_targets)),,echo 'TARGET= one of: $(fuzz_targets)' >&2; exit 1;) :
	$(Q)$(MAKE) --no-print-directory BUILD=fuzz fuzz-bin
	$(Q)tests/fuzz/run.sh $(SECONDS) $(TARGET)

# ---- style -------------------------------------------------------------------------------------

CLANG_FORMAT ?= clang-format-14
c_files = $(shell tests/lint/files.sh '*.c' '*.h' '*.cc')

.PHONY: fmt fmt-check lint tidy
fmt: ## lays out every C file with clang-format-14
	$(Q)$(CLANG_FORMAT) -i $(c_files)

fmt-check: ## fails when make fmt would change a file
	$(Q)$(CLANG_FORMAT) --dry-run -Werror --ferror-limit=1 $(c_files) || { echo 'fmt-check: run make fmt'; exit 1; }
	$(Q)echo 'fmt-check: $(words $(c_files)) files are clean'

lint: ## includes, banned functions, sizes, headers, words
	$(Q)tests/lint/run.sh

tidy: compile_commands.json ## clang-tidy, advisory (not part of check)
	$(Q)clang-tidy-14 -p . --quiet $(filter %.c,$(c_files))

.PHONY: compile_commands.json
compile_commands.json: ## for editors and clang-tidy
	$(Q)$(MAKE) -k -n -B Q= BUILD=debug all $(unit_src:%.c=build/debug/%) 2>/dev/null | tests/compile_commands.py > $@.tmp
	$(Q)mv $@.tmp $@

# ---- relinking: THIRD-PARTY.md -----------------------------------------------------------------

.PHONY: relink
relink: build/execd ## build/relink/: the agent's objects and link command, to link it with another libmicrohttpd
	$(Q)tests/relink.sh build/relink '$(CC) $(OPT) -static-pie $(HARDEN_LD) -Wl,--gc-sections -s' \
	  '$(EXECD_LIBS)' $(execd_all)

# ---- everything --------------------------------------------------------------------------------

# what looks at SANDGATE_SOAK
soak_tests := crash or soak or sanitized or load or hooks or burst or torture or expiry or restart or snapshots or streams or tls

.PHONY: soak
soak: ## what takes longer: the crash matrix, cycles and bursts with bigger counts (SOAK=50), longer fuzzing
	$(Q)SANDGATE_SOAK=$(or $(SOAK),50) tests/integration/run.sh -k '$(soak_tests)'
	$(Q)$(MAKE) --no-print-directory BUILD=fuzz fuzz-bin
	$(Q)tests/fuzz/run.sh 120 $(fuzz_targets)

.PHONY: check help
check: ## installs what is missing and runs every gate: what CI runs
	$(Q)MAKE='$(MAKE)' tests/check.sh

help: ## this list
	@echo 'make            the release programs: build/sandgate, build/execd'
	@awk -F ':.*## ' '/^[a-z][a-z_.-]*:.*## / { printf "make %-10s %s\n", $$1, $$2 }' Makefile tests/tests.mk
	@echo 'BUILD=release|debug|asan|tsan|fuzz picks the variant.'
