GO           ?= go
LINT_VERSION := v2.15.0
TOOLS        := $(CURDIR)/.tools
LINT         := $(TOOLS)/golangci-lint-$(LINT_VERSION)
VERSION      := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS      := -X github.com/slotcache/slotcache/cmd/flags.release=$(VERSION)
TRACE        ?= testdata/traces/mooncake-conversation.jsonl.gz
ROUNDS       ?= 100
LONG         ?= 1h

.DEFAULT_GOAL := help
.PHONY: help build run demo test bench torture lint fuzz clean

help: ## show this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build slotcached, slotcache and slotbench into bin/
	$(GO) build -buildvcs=false -ldflags '$(LDFLAGS)' -o bin/ ./cmd/slotcached ./cmd/slotcache ./cmd/slotbench

run: build ## start a server with its defaults; Ctrl-C stops it
	bin/slotcached

demo: build ## two workers share chunks, one is killed, the server is killed: nothing is lost
	bin/slotbench demo

test: $(LINT) ## every check: lint, vet, tests with the race detector, fuzzing, benchmarks once
	LINT=$(LINT) .ci/suite

bench: build ## some 10 minutes: the report of all figures into bin/report, the disk store against fio, a trace, micro benchmarks
	@.ci/benchtools
	@mkdir -p bin/report
	@echo "== 1 of 4: the report, into bin/report/report.html, figures.json and report.txt"
	bin/slotbench report --rounds 5 --time 300ms --json bin/report/figures.json --html bin/report/report.html >bin/report/report.txt; \
		echo $$? >bin/report/status; cat bin/report/report.txt
	@echo "== 2 of 4: the disk store against fio"
	bin/slotbench l2 --rounds 3 --bytes 512MiB
	@echo "== 3 of 4: a trace"
	$(if $(wildcard $(TRACE)),bin/slotbench replay --trace $(TRACE) --requests 2000 --workers 2 --l1-size 256MiB --l2-size 4GiB,@echo "there is no $(TRACE)")
	@echo "== 4 of 4: micro benchmarks"
	$(GO) test -run '^$$' -bench . -benchtime 100ms ./...
	@read -r status <bin/report/status; [ "$$status" -eq 0 ] || echo "the report lacks what it says has failed"; exit $$status

torture: build ## kill workers and servers by the hundred, damage files, simulate crashes by the thousand
	bin/slotbench torture --clients --loops $(ROUNDS)
	bin/slotbench crash server --rounds $(ROUNDS) $(if $(wildcard $(TRACE)),--trace $(TRACE))
	bin/slotbench torture --loops $(ROUNDS)
	$(GO) test ./l2 -count=1 -run 'FlippedBit|ManySmallValues'
	$(GO) test ./client -count=1 -v -run 'AlwaysFull|WhatExists|OverFourGiB' -timeout 4h -long $(LONG)
	$(GO) test ./l2/seglog -count=1 -run '^TestSimulation$$' -timeout 2h -sim.seeds 1000
	MODEL_SEEDS=10000 $(GO) test ./server/engine -count=1 -run '^TestModel$$' -timeout 2h

lint: $(LINT) ## only the linter
	$(LINT) run ./...

fuzz: ## fuzz every target for FUZZTIME (1m)
	@.ci/fuzztargets | while read -r dir target; do \
		$(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $${FUZZTIME:-1m} -fuzzminimizetime 10x ./$$dir || exit 1; \
	done

clean: ## remove what was built; the installed tools stay
	rm -rf bin

$(LINT):
	GOBIN=$(TOOLS)/new GOFLAGS= $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(LINT_VERSION)
	mv $(TOOLS)/new/golangci-lint $@
	rmdir $(TOOLS)/new
