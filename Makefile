# Sandgate. `make help` lists the targets; HACKING.md explains them.
#
# One non-recursive file. BUILD picks the variant, each with an object tree of its own:
#   release (default)  debug  asan (ASan+UBSan)  tsan  fuzz (clang, libFuzzer)
# The release programs end in build/, those of other variants in build/$(BUILD)/.

BUILD ?= release
Q ?= @
ROOT := $(CURDIR)
OUT := $(if $(filter release,$(BUILD)),build,build/$(BUILD))
OBJ := build/obj/$(BUILD)
STATIC := build/static

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

# ---- flags -------------------------------------------------------------------------------------

CC := gcc
CXX := g++
CSTD := -std=gnu11 -D_GNU_SOURCE
WARN := -Wall -Wextra -Werror=return-type -Werror=incompatible-pointer-types \
  -Werror=int-conversion -Werror=implicit-function-declaration -Werror=missing-prototypes \
  -Werror=strict-prototypes -Werror=shadow -Werror=format=2 -Werror=undef -Werror=vla \
  -Werror=implicit-fallthrough -Werror=write-strings -Werror=pointer-arith \
  -Werror=unused -Werror=sign-compare -Werror=uninitialized -Werror=maybe-uninitialized
GCCWARN := -Werror=format-signedness -Werror=override-init -Werror=logical-op
HARDEN := -fstack-protector-strong -fstack-clash-protection -fcf-protection -D_FORTIFY_SOURCE=2
HARDEN_LD := -Wl,-z,relro,-z,now,-z,noexecstack

ifeq ($(BUILD),release)
  OPT := -O2 -g $(HARDEN) -fPIE
  LDOPT := -pie $(HARDEN_LD)
else ifeq ($(BUILD),debug)
  OPT := -O0 -g3 -fPIE
  LDOPT := -pie
else ifeq ($(BUILD),asan)
  OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
  LDOPT := -fsanitize=address,undefined
else ifeq ($(BUILD),tsan)
  OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=thread
  LDOPT := -fsanitize=thread
else ifeq ($(BUILD),fuzz)
  CC := clang
  CXX := clang++
  GCCWARN :=
  WARN := $(filter-out -Werror=maybe-uninitialized,$(WARN))
  OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link
  LDOPT := -fsanitize=address,undefined
else
  $(error BUILD=$(BUILD) is not one of release debug asan tsan fuzz)
endif

VERSION := $(shell cat VERSION)
DEFS := -DSANDGATE_VERSION='"$(VERSION)"'
CFLAGS := $(CSTD) $(OPT) $(WARN) $(GCCWARN) $(DEFS) -I. -MMD -MP
CXXFLAGS := -std=c++17 $(OPT) -Wall -Wextra -I. -MMD -MP

# ---- sources -----------------------------------------------------------------------------------

common_src := $(wildcard common/*/*.c)
gateway_src := $(filter-out gateway/main.c,$(wildcard gateway/*.c gateway/*/*.c gateway/*/*/*.c))
gateway_cxx := $(wildcard gateway/*.cc)
execd_src := $(filter-out execd/main.c,$(wildcard execd/*.c execd/*/*.c))

common_obj := $(common_src:%.c=$(OBJ)/%.o)
gateway_obj := $(gateway_src:%.c=$(OBJ)/%.o) $(gateway_cxx:%.cc=$(OBJ)/%.o) \
  $(OBJ)/gateway/migrations.gen.o
execd_obj := $(execd_src:%.c=$(OBJ)/%.o) $(OBJ)/execd/code/drivers.o

# curl and SQLite belong to the gateway alone (tests/lint/includes.sh)
GATEWAY_LIBS := -lmicrohttpd -lcurl -lsqlite3 -ljansson -lmd -lm -lpthread
EXECD_LIBS := -lmicrohttpd -ljansson -lmd -lm -lpthread

# ---- programs ----------------------------------------------------------------------------------

.PHONY: all
all: $(OUT)/sandgate $(OUT)/execd

$(OBJ)/%.o: %.c
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -c $< -o $@

$(OBJ)/%.o: %.cc
	@mkdir -p $(@D)
	$(Q)$(CXX) $(CXXFLAGS) -c $< -o $@

$(OBJ)/%.gen.o: $(OBJ)/%.gen.c
	$(Q)$(CC) $(CFLAGS) -c $< -o $@

# The SQL files become a table of strings; they are immutable once merged.
$(OBJ)/gateway/migrations.gen.c: $(wildcard migrations/*.sql) deploy/embed_sql.sh
	@mkdir -p $(@D)
	$(Q)deploy/embed_sql.sh $(sort $(wildcard migrations/*.sql)) > $@

# The agent carries the drivers of its embedded kernels.
build/obj/%/execd/code/drivers.o: execd/code/drivers.S $(wildcard execd/code/driver.*)
	@mkdir -p $(@D)
	$(Q)$(CC) -c $< -o $@

# The release gateway carries the static agent. Other variants carry the release agent as well;
# a sanitized agent is handed over with [agent] dir (HACKING.md).
$(OBJ)/gateway/agent_blob.o: deploy/agent_blob.S build/execd
	@mkdir -p $(@D)
	$(Q)$(CC) -c -DAGENT_FILE='"build/execd"' $< -o $@

$(OUT)/sandgate: $(OBJ)/gateway/main.o $(gateway_obj) $(common_obj) $(OBJ)/gateway/agent_blob.o
	@mkdir -p $(@D)
	$(Q)$(CXX) $(OPT) $(LDOPT) $^ -o $@ $(GATEWAY_LIBS)

# The release agent is one static file (design decision 1): its libmicrohttpd is built without
# GnuTLS, and with an object tree of its own because the header may differ.
ifeq ($(BUILD),release)
EXECD_OBJ := build/obj/static
EXECD_CFLAGS := -I$(STATIC)/include
else
EXECD_OBJ := $(OBJ)
endif
execd_all := $(patsubst $(OBJ)/%,$(EXECD_OBJ)/%,$(OBJ)/execd/main.o $(execd_obj) $(common_obj))

ifeq ($(BUILD),release)
$(STATIC)/lib/libmicrohttpd.a: deploy/static/libmicrohttpd.sh
	$(Q)deploy/static/libmicrohttpd.sh $(STATIC)

$(EXECD_OBJ)/%.o: %.c | $(STATIC)/lib/libmicrohttpd.a
	@mkdir -p $(@D)
	$(Q)$(CC) -Os -ffunction-sections -fdata-sections $(filter-out -O2,$(CFLAGS)) $(EXECD_CFLAGS) -c $< -o $@

build/execd: $(execd_all) $(STATIC)/lib/libmicrohttpd.a
	$(Q)$(CC) $(OPT) -static-pie $(HARDEN_LD) -Wl,--gc-sections -s $(execd_all) -o $@ \
	  -L$(STATIC)/lib $(EXECD_LIBS)
	$(Q)tests/lint/static.sh $@
else
$(OUT)/execd: $(execd_all)
	@mkdir -p $(@D)
	$(Q)$(CC) $(OPT) $(LDOPT) '-Wl,-rpath,$$ORIGIN' $^ -o $@ $(EXECD_LIBS)
endif

.PHONY: agent-release
agent-release:
	$(Q)$(MAKE) --no-print-directory BUILD=release build/execd
ifneq ($(BUILD),release)
build/execd: agent-release ;
endif

# ---- demo --------------------------------------------------------------------------------------

.PHONY: demo
demo: ## the official SDK's quick start against a gateway of this build, from nothing
	$(Q)deploy/setup/packages.sh build demo
	$(Q)$(MAKE) --no-print-directory -j2 all
	$(Q)deploy/demo/run.sh

.PHONY: clean
clean: ## removes build/
	$(Q)rm -rf build compile_commands.json

-include $(shell find build/obj -name '*.d' 2>/dev/null)

include tests/tests.mk
