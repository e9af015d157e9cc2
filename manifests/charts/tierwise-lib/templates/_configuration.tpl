{{/* The configuration files and the parts of the one in use that the picker reads at its start alone. */}}
{{- define "tierwise.configuration.values" -}}
{{- $v := . -}}
{{- $files := dict
  "default-plugins.yaml" (include "tierwise.configuration.default" .)
  "payload-agnostic.yaml" (include "tierwise.configuration.payloadAgnostic" .)
-}}
{{- range $file, $text := .epp.pluginsCustomConfig -}}
  {{- if not (kindIs "string" $text) -}}
    {{- fail (printf "\npluginsCustomConfig has %q with a %s; a file is a text, so write `%s: |` and the configuration indented below it" $file (kindOf $text) $file) -}}
  {{- end -}}
  {{- $_ := set $files $file $text -}}
{{- end -}}
{{- $used := .epp.pluginsConfigFile -}}
{{- with .epp.pluginsConfig -}}{{- $_ := set $files $used (toYaml .) -}}{{- end -}}
{{- if not (hasKey $files $used) -}}
  {{- fail (printf "\npluginsConfigFile is %q, and there is no such file; pluginsCustomConfig and the chart have %s" $used (join ", " (keys $files | sortAlpha))) -}}
{{- end -}}
{{- $_ := set . "files" $files -}}
{{- $_ := set . "builtIn" (and (has $used (list "default-plugins.yaml" "payload-agnostic.yaml")) (not (hasKey .epp.pluginsCustomConfig $used)) (empty .epp.pluginsConfig)) -}}
{{- $parsed := fromYaml (get $files $used) -}}
{{- if and (hasKey $parsed "Error") (not (hasKey $parsed "kind")) -}}
  {{- fail (printf "\nthe configuration %s is not YAML: %s" $used (get $parsed "Error")) -}}
{{- end -}}
{{- $start := dict "dataLayer" $parsed.dataLayer -}}
{{- $plugins := list -}}
{{- $nodes := false -}}
{{- range $parsed.plugins -}}
  {{- if kindIs "map" . -}}
    {{- if or (eq (toString .type) "topology-extractor") (and (eq (toString .type) "k8s-notification-source") (eq (toString (.parameters | default dict).kind) "Node")) -}}
      {{- $nodes = true -}}
    {{- end -}}
  {{- end -}}
  {{- if and (kindIs "map" .) (has .type (list "file-discovery" "metrics-data-source" "core-metrics-extractor" "precise-prefix-cache-producer" "k8s-notification-source" "topology-extractor")) -}}
    {{- $plugins = append $plugins . -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $start "plugins" $plugins -}}
{{- $asked := (.own.rights | default dict).readNodes -}}
{{- $_ := set . "readNodes" (ternary $nodes $asked (kindIs "invalid" $asked)) -}}
{{- if eq (include "tierwise.text" (get .epp.flags "watch-config")) "false" -}}
  {{- $_ := set $start "whole" (get $files $used) -}}
{{- end -}}
{{- $_ := set . "readAtStart" (toJson $start | sha256sum) -}}
{{- end -}}

{{/* The profile of `tierwise print default`, with the engine and the parsers of the values. */}}
{{- define "tierwise.configuration.default" -}}
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: served-model-filter
  - type: queue-scorer
  - type: kv-cache-utilization-scorer
  - type: approx-prefix-cache-producer
    name: gpu-prefix-cache-producer
    parameters: {tier: gpu}
  - type: prefix-cache-scorer
    name: gpu-prefix-cache-scorer
    parameters: {prefixMatchInfoProducerName: gpu-prefix-cache-producer}
  - type: approx-prefix-cache-producer
    name: cpu-prefix-cache-producer
    parameters: {tier: cpu}
  - type: prefix-cache-scorer
    name: cpu-prefix-cache-scorer
    parameters: {prefixMatchInfoProducerName: cpu-prefix-cache-producer}
{{ include "tierwise.configuration.engine" . }}
schedulingProfiles:
  - name: default
    plugins:
      - {pluginRef: served-model-filter}
      - {pluginRef: queue-scorer, weight: 2}
      - {pluginRef: kv-cache-utilization-scorer, weight: 2}
      - {pluginRef: gpu-prefix-cache-scorer, weight: 1}
      - {pluginRef: cpu-prefix-cache-scorer, weight: 1}
{{- with include "tierwise.configuration.parsers" . }}
{{ . }}
{{- end }}
{{- end -}}

{{/* For paths and protocols whose bodies the picker cannot read: by load alone. */}}
{{- define "tierwise.configuration.payloadAgnostic" -}}
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
plugins:
  - type: queue-scorer
  - type: kv-cache-utilization-scorer
  - type: passthrough-parser
{{ include "tierwise.configuration.engine" . }}
schedulingProfiles:
  - name: default
    plugins:
      - {pluginRef: queue-scorer, weight: 1}
      - {pluginRef: kv-cache-utilization-scorer, weight: 1}
requestHandler:
  parsers:
    - {pluginRef: passthrough-parser}
{{- end -}}

{{/* The source of the engines' metrics, as two plugins of a built-in configuration. */}}
{{- define "tierwise.configuration.engine" -}}
{{- $source := .epp.metricsDataSource -}}
{{- $path := ternary "/prometheus/metrics" $source.path (and (eq .modelServers.type "trtllm-serve") (eq $source.path "/metrics")) -}}
{{- $extractor := dict "type" "core-metrics-extractor" -}}
{{- if ne .modelServers.type "vllm" -}}
  {{- $_ := set $extractor "parameters" (dict "defaultEngine" .modelServers.type) -}}
{{- end -}}
{{- list (dict "type" "metrics-data-source" "parameters" (dict "scheme" $source.scheme "path" $path "insecureSkipVerify" $source.insecureSkipVerify)) $extractor | toYaml | indent 2 -}}
{{- end -}}

{{/* The parsers that the values name; for vLLM over gRPC its own. */}}
{{- define "tierwise.configuration.parsers" -}}
{{- $parsers := .epp.parsers -}}
{{- if and (empty $parsers) (eq ($.modelServers.protocol | default "http") "grpc") (eq .modelServers.type "vllm") -}}
  {{- $parsers = list "vllmgrpc-parser" -}}
{{- end -}}
{{- if $parsers -}}
  {{- $references := list -}}
  {{- range $parsers -}}{{- $references = append $references (dict "pluginRef" .) -}}{{- end -}}
  {{- dict "requestHandler" (dict "parsers" $references) | toYaml -}}
{{- end -}}
{{- end -}}

{{- define "tierwise.configmap" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
data:
{{- range $file, $text := .files }}
  {{ $file }}: |
    {{- $text | trimSuffix "\n" | nindent 4 }}
{{- end }}
{{- end -}}
