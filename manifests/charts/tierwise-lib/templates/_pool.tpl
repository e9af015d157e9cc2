{{- define "tierwise.pool" -}}
apiVersion: {{ .inferencePool.apiVersion }}
kind: InferencePool
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
{{- if hasSuffix "v1alpha2" .inferencePool.apiVersion }}
  targetPortNumber: {{ first .modelServers.ports }}
  selector: {{- toYaml .modelServers.matchLabels | nindent 4 }}
  extensionRef:
    name: {{ .name }}
    portNumber: {{ int .epp.extProcPort }}
    failureMode: {{ .inferencePool.failureMode }}
{{- else }}
  targetPorts:
    {{- range .modelServers.ports }}
    - number: {{ . }}
    {{- end }}
  {{- /* http is the default, and definitions before v1.4 do not have the field */}}
  {{- if eq (.modelServers.protocol | default "http") "grpc" }}
  appProtocol: kubernetes.io/h2c
  {{- end }}
  selector:
    matchLabels: {{- toYaml .modelServers.matchLabels | nindent 6 }}
  endpointPickerRef:
    name: {{ .name }}
    port: {number: {{ int .epp.extProcPort }}}
    failureMode: {{ .inferencePool.failureMode }}
{{- end }}
{{- end -}}

{{/* One InferenceObjective for each entry of inferenceObjectives. */}}
{{- define "tierwise.objectives" -}}
{{- $v := . -}}
{{- range .inferenceObjectives }}
---
apiVersion: {{ ternary "llm-d.ai/v1alpha2" "inference.networking.x-k8s.io/v1alpha2" (eq $v.tree "router") }}
kind: InferenceObjective
metadata:
  name: {{ .name }}
  namespace: {{ $v.namespace }}
  labels: {{- toYaml $v.labels | nindent 4 }}
spec:
  {{- if hasKey . "priority" }}
  priority: {{ include "tierwise.text" .priority }}
  {{- end }}
  poolRef:
    group: {{ $v.inferencePool.group }}
    kind: InferencePool
    name: {{ $v.release }}
{{- end }}
{{- end -}}

{{- define "tierwise.route" -}}
{{- $route := .httpRoute -}}
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  parentRefs:
    - group: gateway.networking.k8s.io
      kind: Gateway
      name: {{ $route.inferenceGatewayName }}
      {{- with $route.inferenceGatewayNamespace }}
      namespace: {{ . }}
      {{- end }}
  rules:
    - backendRefs:
        - {group: {{ .inferencePool.group }}, kind: InferencePool, name: {{ .release }}}
      matches:
        - path: {type: PathPrefix, value: /}
          {{- if or $route.baseModel $route.headerMatches }}
          headers:
            {{- with $route.baseModel }}
            - {type: Exact, name: X-Gateway-Base-Model-Name, value: {{ . | quote }}}
            {{- end }}
            {{- range $name, $value := $route.headerMatches }}
            - {type: Exact, name: {{ $name }}, value: {{ include "tierwise.text" $value | quote }}}
            {{- end }}
          {{- end }}
      {{- if ne .provider.name "gke" }}
      timeouts: {request: {{ $route.requestTimeout | quote }}}
      {{- end }}
{{- end -}}
