{{/* The arguments of the picker, as `.args`: those that other charts render, in their order and form. */}}
{{- define "tierwise.arguments" -}}
{{- $args := list -}}
{{- if .inferencePool.create -}}
  {{- $args = list "--pool-name" .release "--pool-namespace" .namespace "--pool-group" .inferencePool.group -}}
{{- else -}}
  {{- $args = list "--endpoint-selector" .modelServers.selector "--endpoint-target-ports" (join "," .modelServers.ports) -}}
{{- end -}}
{{- $args = concat $args (list "--zap-encoder" "json" "--config-file" (printf "/config/%s" .epp.pluginsConfigFile)) -}}
{{- if .election -}}{{- $args = append $args "--ha-enable-leader-election" -}}{{- end -}}
{{- if ne (int .epp.grpcHealthPort) 9003 -}}
  {{- $args = append $args (printf "--grpc-health-port=%d" (int .epp.grpcHealthPort)) -}}
{{- end -}}
{{- $snapshot := .own.indexSnapshot | default dict -}}
{{- if $snapshot.enabled -}}
  {{- $args = append $args "--index-snapshot=/var/lib/tierwise/index" -}}
  {{- with $snapshot.interval -}}{{- $args = append $args (printf "--index-snapshot-interval=%s" .) -}}{{- end -}}
{{- end -}}
{{- if and .envoy (not (hasKey .epp.flags "grpc-max-recv-msg-size")) -}}
  {{- $args = append $args (printf "--grpc-max-recv-msg-size=%d" (int .envoyBodyBytes)) -}}
{{- end -}}
{{- if and .drainTimeout (not .literal) (not (hasKey .epp.flags "drain-timeout")) -}}
  {{- $args = append $args (printf "--drain-timeout=%ds" (int .drainSeconds)) -}}
{{- end -}}
{{- if and .envoy (eq .proxy.mode "sidecar") (not .literal) (not (hasKey .epp.flags "proxy-admin-port")) -}}
  {{- $args = append $args "--proxy-admin-port=19000" -}}
{{- end -}}
{{- $args = concat $args (include "tierwise.arguments.engine" . | fromJsonArray) -}}
{{- range $name, $value := .epp.flags -}}
  {{- if ne $name "ha-enable-leader-election" -}}
    {{- $args = append $args (printf "--%s=%s" $name (include "tierwise.text" $value)) -}}
  {{- end -}}
{{- end -}}
{{- if not (hasKey .epp.flags "tracing") -}}
  {{- $args = append $args (printf "--tracing=%t" .tracing.enabled) -}}
{{- end -}}
{{- if and (not .monitoring.auth) (not (hasKey .epp.flags "metrics-endpoint-auth")) -}}
  {{- $args = append $args "--metrics-endpoint-auth=false" -}}
{{- end -}}
{{- $_ := set . "args" $args -}}
{{- end -}}

{{/* The names of the metrics of engines other than vLLM, for a configuration that is not ours. */}}
{{- define "tierwise.arguments.engine" -}}
{{- $names := dict -}}
{{- if .builtIn -}}
{{- else if eq .modelServers.type "sglang" -}}
  {{- $names = dict "total-queued-requests-metric" "sglang:num_queue_reqs" "total-running-requests-metric" "sglang:num_running_reqs" "kv-cache-usage-percentage-metric" "sglang:token_usage" "cache-info-metric" "sglang:cache_config_info" -}}
{{- else if eq .modelServers.type "trtllm-serve" -}}
  {{- $names = dict "total-queued-requests-metric" "trtllm_num_requests_waiting" "total-running-requests-metric" "trtllm_num_requests_running" "kv-cache-usage-percentage-metric" "trtllm_kv_cache_utilization" "cache-info-metric" "trtllm_cache_config_info" "model-server-metrics-path" "/prometheus/metrics" "lora-info-metric" "" -}}
{{- else if hasPrefix "triton" .modelServers.type -}}
  {{- $names = dict "total-queued-requests-metric" "nv_trt_llm_request_metrics{request_type=waiting}" "total-running-requests-metric" "nv_trt_llm_request_metrics{request_type=scheduled}" "kv-cache-usage-percentage-metric" "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=fraction}" "lora-info-metric" "" -}}
{{- end -}}
{{- $args := list -}}
{{- range $name, $value := $names -}}
  {{- if not (hasKey $.epp.flags $name) -}}{{- $args = append $args (printf "--%s=%s" $name $value) -}}{{- end -}}
{{- end -}}
{{- toJson $args -}}
{{- end -}}
