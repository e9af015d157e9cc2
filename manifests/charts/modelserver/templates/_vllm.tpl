{{/* The arguments of vLLM that switch the connector on, as a list in JSON. */}}
{{- define "modelserver.connectorArgs" -}}
{{- $sizes := include "modelserver.sizes" . | fromJson -}}
{{- $connector := .Values.cache.connector -}}
{{- if eq $connector "kvengine" -}}
  {{- range $size := list "max_local_cpu_size" "cpu_bytes_to_use" "num_cpu_blocks" -}}
    {{- if hasKey $.Values.kvengine.settings $size -}}
      {{- fail (printf "\nkvengine.settings has %s; the size is cache.cpu, for the whole pod" $size) -}}
    {{- end -}}
  {{- end -}}
  {{- $extra := merge (dict "cpu_bytes_to_use" (int64 $sizes.engine)) .Values.kvengine.settings -}}
  {{- $transfer := dict "kv_connector" "KVEngineConnector" "kv_role" "kv_both" "kv_connector_module_path" "kvengine.connector" "kv_load_failure_policy" "recompute" "kv_connector_extra_config" $extra -}}
  {{- list (printf "--kv-transfer-config=%s" (toRawJson $transfer)) | toRawJson -}}
{{- else if eq $connector "offloading" -}}
  {{- list (printf "--kv-offloading-size=%s" (include "modelserver.gibibytes" $sizes.engine)) "--kv-offloading-backend=native" | toRawJson -}}
{{- else if eq $connector "lmcache" -}}
  {{- list "--kv-transfer-config={\"kv_connector\":\"LMCacheConnectorV1\",\"kv_role\":\"kv_both\"}" | toRawJson -}}
{{- else -}}
  {{- list | toRawJson -}}
{{- end -}}
{{- end -}}

{{- define "modelserver.image" -}}
{{- $lmcache := eq .Values.cache.connector "lmcache" -}}
{{- $repository := .Values.image.repository | default (ternary "lmcache/vllm-openai" "vllm/vllm-openai" $lmcache) -}}
{{- printf "%s:%s" $repository (.Values.image.tag | default (ternary "v0.3.7" "v0.32.0" $lmcache)) -}}
{{- end -}}

{{- define "modelserver.selector" -}}
app.kubernetes.io/name: modelserver
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "modelserver.labels" -}}
{{ include "modelserver.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}
