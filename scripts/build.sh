#!/usr/bin/env bash
# Builds the released binary into the file OUT: build.sh OUT [LDFLAGS]. No C compiler is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
# Code that runs a few times a request is not inlined, and functions begin at multiples of 16 bytes: that is 3.1 MB less.
rarely=(-gcflags={sheaf/internal/{api,command,docling,doctor,mcp},github.com/{antlr4-go,danielgtaylor/huma,elastic,go-sql-driver,google/{cel-go,jsonschema-go},jackc/pgx,jhillyerd/enmime,minio/minio-go,modelcontextprotocol/go-sdk,pdfcpu,pressly/goose,prometheus,redis/go-redis,segmentio/encoding,spf13,xuri/excelize,BurntSushi/toml},go.opentelemetry.io,go.yaml.in/yaml,google.golang.org/protobuf,gorm.io}/...=-l)
CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -funcalign=16 ${2:-}" "${rarely[@]}" -o "$1" ./cmd/sheaf
