# Sheaf. `make help` lists the targets.
.DEFAULT_GOAL := help
SERVICES ?= /tmp/sheaf-services

# What `sheaf version` says. Outside of git, as in the image, set them by hand.
VERSION ?= $(shell git describe --tags 2>/dev/null)
COMMIT ?= $(shell git describe --always --exclude='*' --abbrev=40 --dirty 2>/dev/null)
DATE ?= $(shell git log -1 --format=%cI 2>/dev/null)
BUILD := sheaf/internal/buildinfo

.PHONY: help build helper embedded size run test lint fuzz bench atscale services services-down images samples openapi screenshots chaos hostile

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  \1\t\2/' | expand -t 18

build: ## build bin/sheaf, one static binary, and bin/sheaf-embed, which runs embedding models; no C compiler needed
	scripts/build.sh bin/sheaf '-X $(BUILD).version=$(VERSION) -X $(BUILD).commit=$(COMMIT) -X $(BUILD).date=$(DATE)'
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o bin/sheaf-embed ./cmd/sheaf-embed

helper: ## build bin/sheaf-pdfium, with which bin/sheaf reads PDFs about twice as fast; needs Debian's wabt and musl-tools, and some minutes once
	env -u GOOS -u GOARCH go run parser/pdf/pdfiumhelper/host/build.go -o bin/sheaf-pdfium $(HELPER)

embedded: helper ## build bin/sheaf with sheaf-pdfium inside it, 6 MB larger
	cp bin/sheaf-pdfium parser/pdf/pdfium/sheaf-pdfium
	GOFLAGS=-tags=helper $(MAKE) build

check: ## format, vet, staticcheck, and the tests that need no service: within a minute, before each commit
	scripts/check.sh

run: build ## build, ingest the sample documents, print a search hit, and leave the server up
	bin/sheaf up --demo

test: ## run every test on every engine; installs and starts what it needs
	env -u CGO_ENABLED -u GOFLAGS scripts/test.sh

lint: ## gofmt, go vet, staticcheck, size, tsc, deploy/, tidy go.mod
	scripts/lint.sh

size: ## the size of the released binary, and of its largest parts
	scripts/size.sh parts

fuzz: ## run each fuzz target for FUZZTIME (default 1m), or those that FUZZ names: make fuzz FUZZTIME=1h FUZZ=parser/pdf
	FUZZTIME=$(or $(FUZZTIME),1m) FUZZ='$(FUZZ)' scripts/fuzz.sh

bench: build ## measure speed and memory against what a user would pick instead; writes bench/out/bench.json
	go run ./bench

chaos: ## inject N faults (default 1000) into a fleet, drawn from SEED; writes chaos/out/chaos.json, prints a table
	go run ./chaos -n $${N:-1000} -seed $${SEED:-0}

hostile: build ## send N damaged files (default 1000), drawn from SEED, to a Sheaf of its own; SHEAF_CORPUS names more files to damage
	go run ./chaos/hostile -n $${N:-1000} -seed $${SEED:-0}

mutants: ## take each guard out of a copy of the tree and show that a test fails
	go run ./chaos/mutants

atscale: ## run the calls of the store among ROWS tasks and events (default 10 million) on MariaDB and PostgreSQL; needs `make services`
	SHEAF_TEST_ROWS=$(or $(ROWS),10000000) SHEAF_TEST_REQUIRE=1 go test ./taskstore/sqlstore -run 'TestReadsDoNotGrow/(mysql|postgres)' -count=1 -v -timeout 2h

services: ## start private MariaDB, PostgreSQL, Redis, MinIO and Elasticsearch; prints their addresses
	@scripts/services.sh up $(SERVICES)

services-down: ## stop them
	@scripts/services.sh down $(SERVICES)

images: ## build the images of deploy/Dockerfile and try each, without Docker; IMAGES names some of small, models and office; needs root on Debian
	scripts/images.sh $(IMAGES)

samples: ## make the sample documents anew from samples/handbook.md
	go run ./samples/make

openapi: ## write docs/openapi.json from the code
	go test ./internal/api -run OpenAPI -update

notices: ## write THIRD_PARTY_NOTICES from the licences of what the binary contains
	scripts/notices.sh >THIRD_PARTY_NOTICES.new && mv THIRD_PARTY_NOTICES.new THIRD_PARTY_NOTICES

screenshots: ## write a picture of every view, light and dark, wide and narrow, to SCREENS (default bin/screens)
	mkdir -p $(or $(SCREENS),bin/screens)
	SHEAF_SCREENS=$(abspath $(or $(SCREENS),bin/screens)) go test ./e2e -run 'TestScreens|OnThePage$$' -count=1
