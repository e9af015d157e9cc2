{{/* The objects of the proxy: its files, the pods it falls back to, and its own pods in the mode `service`. */}}
{{- define "tierwise.proxy" -}}
{{- if .proxyFiles }}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .proxyConfigMap }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
data:
{{- range $file, $text := .proxyFiles }}
  {{ $file }}: |
    {{- $text | trimSuffix "\n" | nindent 4 }}
{{- end }}
{{- end }}
{{- if and .envoy .endpointsService }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .endpointsName }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  clusterIP: None
  selector: {{- toYaml .modelServers.matchLabels | nindent 4 }}
  ports:
    {{- range $index, $port := .modelServers.ports }}
    - {name: port-{{ $index }}, protocol: TCP, port: {{ $port }}}
    {{- end }}
{{- end }}
{{- if and .proxy.enabled (eq .proxy.mode "service") }}
---
{{ include "tierwise.proxy.workload" . }}
{{- end }}
{{- end -}}

{{- define "tierwise.proxy.workload" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ .proxyName }}
  namespace: {{ .namespace }}
  labels: {{- toYaml (merge (dict) .labels .proxySelector) | nindent 4 }}
spec:
  {{- if not .proxy.autoscaling.enabled }}
  replicas: {{ int .proxy.replicas }}
  {{- end }}
  strategy:
    type: RollingUpdate
    rollingUpdate: {maxSurge: 1, maxUnavailable: 0}
  selector:
    matchLabels: {{- toYaml .proxySelector | nindent 6 }}
  template:
    metadata:
      labels: {{- toYaml .proxySelector | nindent 8 }}
      annotations:
        checksum/proxy: {{ toJson .proxyFiles | sha256sum }}
    spec:
      automountServiceAccountToken: false
      terminationGracePeriodSeconds: {{ .proxyGraceSeconds }}
      {{- include "tierwise.pod.placement" (set (set (deepCopy .) "selector" .proxySelector) "several" (or .proxy.autoscaling.enabled (gt (int .proxy.replicas) 1))) | nindent 6 }}
      containers:
        {{- list .proxyContainer | toYaml | nindent 8 }}
      volumes: {{- toYaml .proxyVolumes | nindent 8 }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ .proxyName }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  type: ClusterIP
  selector: {{- toYaml .proxySelector | nindent 4 }}
  ports: {{- toYaml .extraServicePorts | nindent 4 }}
{{- end -}}
