{{/*
Fill .v, an empty map, with all that the object templates read: the values of either tree in one form, the names, and
what follows from several values together. No other template reads .Values.
*/}}
{{- define "tierwise.values" -}}
{{- $v := .v -}}
{{- $root := .root -}}
{{- $_ := set $v "notes" list -}}
{{- include "tierwise.overlay" (dict "base" $v "over" (include "tierwise.defaults" . | fromYaml)) -}}
{{- $_ := set $v "tree" (include "tierwise.tree" $root) -}}
{{- $_ := set $v "chart" $root.Chart.Name -}}
{{- $_ := set $v "chartVersion" $root.Chart.Version -}}
{{- $_ := set $v "appVersion" $root.Chart.AppVersion -}}
{{- $_ := set $v "kubeVersion" $root.Capabilities.KubeVersion.Version -}}
{{- $_ := set $v "openShift" ($root.Capabilities.APIVersions.Has "security.openshift.io/v1") -}}
{{- if eq $v.chart "standalone" -}}
  {{- $_ := set $v.proxy "enabled" true -}}
  {{- $_ := set $v "extraServicePorts" (list (dict "name" "http" "port" 8081 "protocol" "TCP" "targetPort" 8081)) -}}
{{- end -}}
{{- if eq $v.tree "router" -}}
  {{- include "tierwise.overlay" (dict "base" $v "over" ($root.Values.router | default dict)) -}}
  {{- include "tierwise.overlay" (dict "base" $v "over" (pick $root.Values "provider" "httpRoute")) -}}
{{- else -}}
  {{- include "tierwise.legacy" . -}}
{{- end -}}
{{- $_ := set $v "own" ($root.Values.tierwise | default dict) -}}
{{- include "tierwise.names" . -}}
{{- include "tierwise.refusals" $v -}}
{{- include "tierwise.pool.values" $v -}}
{{- include "tierwise.monitoring.values" $v -}}
{{- include "tierwise.availability" $v -}}
{{- include "tierwise.image" $v -}}
{{- include "tierwise.configuration.values" $v -}}
{{- include "tierwise.proxy.values" (dict "v" $v "root" $root) -}}
{{- include "tierwise.arguments" $v -}}
{{- end -}}
