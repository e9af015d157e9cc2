{{/* The monitor of Prometheus's operator, and the token that Prometheus shows: one that may read metrics alone. */}}
{{- define "tierwise.monitor" -}}
{{- $prometheus := .monitoring.prometheus -}}
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata:
  name: {{ .name }}-monitor
  namespace: {{ .namespace }}
  labels: {{- toYaml (merge (dict) .labels $prometheus.extraLabels) | nindent 4 }}
spec:
  jobLabel: {{ .name }}
  namespaceSelector:
    matchNames: [{{ .namespace }}]
  selector:
    matchLabels: {app.kubernetes.io/name: {{ .name }}}
  endpoints:
    - port: http-metrics
      path: /metrics
      interval: {{ .monitoring.interval }}
      {{- if .monitoring.auth }}
      authorization:
        credentials: {name: {{ $prometheus.auth.secretName }}, key: token}
      {{- end }}
{{- if .monitoring.auth }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .readerName }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
automountServiceAccountToken: false
---
{{ include "tierwise.tokenSecret" (dict "v" . "name" $prometheus.auth.secretName "account" .readerName) }}
---
{{ include "tierwise.clusterRole" (dict "v" . "name" (printf "%s-metrics-reader" .clusterName) "account" .readerName "rules" (list
  (dict "nonResourceURLs" (list "/metrics") "verbs" (list "get"))
)) }}
{{- end }}
{{- end -}}

{{/* A secret that the cluster fills with the token of the service account .account. */}}
{{- define "tierwise.tokenSecret" -}}
apiVersion: v1
kind: Secret
metadata:
  name: {{ .name }}
  namespace: {{ .v.namespace }}
  labels: {{- toYaml .v.labels | nindent 4 }}
  annotations:
    kubernetes.io/service-account.name: {{ .account }}
type: kubernetes.io/service-account-token
{{- end -}}

{{/* Google's Managed Prometheus: a monitor of the pods, and a reader whose secret the collector may read. */}}
{{- define "tierwise.managedMonitor" -}}
{{- $reader := printf "%s-metrics-reader" .release -}}
{{- $collectors := ternary "gke-gmp-system" "gmp-system" .monitoring.autopilot -}}
apiVersion: monitoring.googleapis.com/v1
kind: PodMonitoring
metadata:
  name: {{ .release }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
spec:
  selector:
    matchLabels: {{- toYaml .selector | nindent 6 }}
  endpoints:
    - port: metrics
      scheme: http
      path: /metrics
      interval: {{ .monitoring.interval }}
      {{- if .monitoring.auth }}
      authorization:
        type: Bearer
        credentials:
          secret: {name: {{ $reader }}-secret, key: token}
      {{- end }}
{{- if .monitoring.auth }}
{{- $clusterWide := printf "%s-%s-metrics-reader" .namespace .release }}
---
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $reader }}-sa
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
---
{{ include "tierwise.tokenSecret" (dict "v" . "name" (printf "%s-secret" $reader) "account" (printf "%s-sa" $reader)) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $clusterWide }}
  labels: {{- toYaml .labels | nindent 4 }}
rules:
  - {nonResourceURLs: [/metrics], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $clusterWide }}-role-binding
  labels: {{- toYaml .labels | nindent 4 }}
subjects:
  - {kind: ServiceAccount, name: {{ $reader }}-sa, namespace: {{ .namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $clusterWide }}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $reader }}-secret-read
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
rules:
  - {apiGroups: [""], resources: [secrets], resourceNames: [{{ $reader }}-secret], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ printf "%s:collector:%s-%s-secret-read" $collectors .namespace $reader }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
subjects:
  - {kind: ServiceAccount, name: collector, namespace: {{ $collectors }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $reader }}-secret-read}
{{- end }}
{{- end -}}
