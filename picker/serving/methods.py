"""The gRPC methods that are served, as paths."""

from __future__ import annotations

PROCESS = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
LOGS = "/envoy.service.accesslog.v3.AccessLogService/StreamAccessLogs"
CHECK = "/grpc.health.v1.Health/Check"
WATCH = "/grpc.health.v1.Health/Watch"

MAX_WATCHERS = 1_000
MAX_LOG_STREAMS = 1_000
