{{/*
The rights of the picker, each rule only where the chosen mode reads it. Names are those that other charts use, so that
a release can be upgraded in place.
*/}}
{{- define "tierwise.rights" -}}
{{- if .accountCreated }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ .accountName }}
  namespace: {{ .namespace }}
  labels: {{- toYaml .labels | nindent 4 }}
  {{- with (.own.serviceAccount | default dict).annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
---
{{- end }}
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
{{ include "tierwise.clusterRole" (dict "v" . "name" .clusterName "account" .accountName "rules" (list
  (dict "apiGroups" (list "authentication.k8s.io") "resources" (list "tokenreviews") "verbs" (list "create"))
  (dict "apiGroups" (list "authorization.k8s.io") "resources" (list "subjectaccessreviews") "verbs" (list "create"))
)) }}
{{- end }}
{{- if .readNodes }}
---
{{ include "tierwise.clusterRole" (dict "v" . "name" .nodesName "account" .accountName "rules" (list
  (dict "apiGroups" (list "") "resources" (list "nodes") "verbs" (list "get" "list" "watch"))
)) }}
{{- end }}
{{- end -}}

{{/* A ClusterRole with .rules, and its binding to the service account .account of the release's namespace. */}}
{{- define "tierwise.clusterRole" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ .name }}
  labels: {{- toYaml .v.labels | nindent 4 }}
rules: {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ .name }}
  labels: {{- toYaml .v.labels | nindent 4 }}
subjects:
  - {kind: ServiceAccount, name: {{ .account }}, namespace: {{ .v.namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ .name }}}
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
  - {kind: ServiceAccount, name: {{ .v.accountName }}, namespace: {{ .v.namespace }}}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ .name }}}
{{- end -}}
