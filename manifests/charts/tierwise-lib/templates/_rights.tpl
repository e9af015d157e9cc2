{{/*
The rights of the picker, each rule only where the chosen mode reads it. Names are those that other charts use, so that
a release can be upgraded in place.
*/}}
{{- define "tierwise.rights" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
---
{{ include "tierwise.role" (dict "v" . "name" (printf "%s-sa" .name) "rules" (list (dict "apiGroups" (list "") "resources" (list "pods") "verbs" (list "get" "list" "watch")))) }}
{{- if .inferencePool.create }}
---
{{ $read := list "get" "list" "watch" }}
{{- $rules := list
  (dict "apiGroups" (list .inferencePool.group) "resources" (list "inferencepools") "verbs" $read)
  (dict "apiGroups" (list "llm-d.ai" "inference.networking.x-k8s.io") "resources" (list "inferenceobjectives" "inferencemodelrewrites") "verbs" $read)
}}
{{- if (.own.rights | default dict).writeStatus }}
{{- $rules = append $rules (dict "apiGroups" (list "llm-d.ai" "inference.networking.x-k8s.io") "resources" (list "inferenceobjectives/status" "inferencemodelrewrites/status") "verbs" (list "get" "patch" "update")) }}
{{- end }}
{{- include "tierwise.role" (dict "v" . "name" (printf "%s-non-sa" .name) "rules" $rules) }}
{{- end }}
{{- if .election }}
---
{{ include "tierwise.role" (dict "v" . "name" (printf "%s-leader-election" .name) "binding" (printf "%s-leader-election-binding" .name) "rules" (list
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "get" "list" "watch" "create" "patch"))
)) }}
{{- end }}
{{- if .monitoring.auth }}
---
{{- $own := and .monitoring.prometheus.enabled (eq .monitoring.collector "prometheusoperator") }}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .clusterName }}
  labels: {{- toYaml .labels | nindent 4 }}
rules:
  - {apiGroups: [authentication.k8s.io], resources: [tokenreviews], verbs: [create]}
  - {apiGroups: [authorization.k8s.io], resources: [subjectaccessreviews], verbs: [create]}
  {{- if $own }}
  - {nonResourceURLs: [/metrics], verbs: [get]}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .clusterName }}
  labels: {{- toYaml .labels | nindent 4 }}
subjects:
  - {kind: ServiceAccount, name: {{ .name }}, namespace: {{ .namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .clusterName }}}
{{- end }}
{{- end -}}

{{/* A Role with .rules and its binding to the picker's service account. */}}
{{- define "tierwise.role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .v.namespace }}
  labels: {{- toYaml .v.labels | nindent 4 }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .binding | default .name }}
  namespace: {{ .v.namespace }}
  labels: {{- toYaml .v.labels | nindent 4 }}
subjects:
  - {kind: ServiceAccount, name: {{ .v.name }}, namespace: {{ .v.namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
{{- end -}}
