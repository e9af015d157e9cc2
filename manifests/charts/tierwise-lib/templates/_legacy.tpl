{{/*
Fill .v with the values of .root whose keys are those of the `inferenceExtension` tree, moved to where the `router`
tree has them. Keys that mean the same in several versions of the older charts are taken in every form.
*/}}
{{- define "tierwise.legacy" -}}
{{- $values := .root.Values -}}
{{- $v := .v -}}
{{- $picker := $values.inferenceExtension | default dict -}}
{{- $pool := $values.inferencePool | default dict -}}
{{- $route := $values.experimentalHttpRoute | default dict -}}

{{- $epp := pick $picker "replicas" "image" "extProcPort" "metricsPort" "flags" "env" "metricsDataSource" "pluginsConfigFile" "pluginsCustomConfig" "extraContainerPorts" "resources" "affinity" "tolerations" "volumes" "volumeMounts" -}}
{{- $own := dict "epp" $epp -}}
{{- if $pool.parser -}}{{- $_ := set $epp "parsers" (list $pool.parser) -}}{{- end -}}
{{- range $key := list "extraServicePorts" "tracing" "latencyPredictor" -}}
  {{- if hasKey $picker $key -}}{{- $_ := set $own $key (get $picker $key) -}}{{- end -}}
{{- end -}}

{{- $sidecar := $picker.sidecar | default dict -}}
{{- $_ := set $own "proxy" $sidecar -}}

{{- $servers := dict -}}
{{- range $to, $from := dict "type" "modelServerType" "protocol" "modelServerProtocol" "targetPorts" "targetPorts" "targetPortNumber" "targetPortNumber" -}}
  {{- if hasKey $pool $from -}}{{- $_ := set $servers $to (get $pool $from) -}}{{- end -}}
{{- end -}}
{{- $_ := set $servers "matchLabels" ((($pool.modelServers | default dict).matchLabels) | default dict) -}}
{{- $_ := set $own "modelServers" $servers -}}

{{- $kept := pick $pool "apiVersion" -}}
{{- if $picker.failureMode -}}{{- $_ := set $kept "failureMode" $picker.failureMode -}}{{- end -}}
{{- $_ := set $own "inferencePool" $kept -}}
{{- if eq .root.Chart.Name "standalone" -}}
  {{- $endpoints := $picker.endpointsServer | default dict -}}
  {{- if hasKey $endpoints "createInferencePool" -}}
    {{- $_ := set $kept "create" $endpoints.createInferencePool -}}
  {{- end -}}
  {{- if eq (toString (get $kept "create")) "false" -}}
    {{- $_ := set $servers "selector" ($endpoints.endpointSelector | default "") -}}
    {{- if hasKey $endpoints "targetPorts" -}}
      {{- $ports := list -}}
      {{- range splitList "," (include "tierwise.text" $endpoints.targetPorts) -}}
        {{- $ports = append $ports (dict "number" (int (trim .))) -}}
      {{- end -}}
      {{- $_ := set $servers "targetPorts" $ports -}}
    {{- end -}}
    {{- if $endpoints.modelServerType -}}{{- $_ := set $servers "type" $endpoints.modelServerType -}}{{- end -}}
    {{- if $endpoints.modelServerProtocol -}}{{- $_ := set $servers "protocol" $endpoints.modelServerProtocol -}}{{- end -}}
  {{- end -}}
{{- end -}}

{{- include "tierwise.legacy.monitoring" (dict "v" $v "own" $own "monitoring" ($picker.monitoring | default dict)) -}}
{{- if $values.inferenceObjectives -}}{{- $_ := set $own "inferenceObjectives" $values.inferenceObjectives -}}{{- end -}}
{{- include "tierwise.overlay" (dict "base" $v "over" $own) -}}
{{- include "tierwise.overlay" (dict "base" $v "over" (pick $values "provider")) -}}
{{- with $values.istio -}}
  {{- include "tierwise.overlay" (dict "base" $v.provider.istio "over" .) -}}
{{- end -}}
{{- include "tierwise.overlay" (dict "base" $v.httpRoute "over" (omit $route "enabled")) -}}
{{- if hasKey $route "enabled" -}}{{- $_ := set $v.httpRoute "create" $route.enabled -}}{{- end -}}
{{- end -}}

{{/* The monitoring of the older tree: `enable` is a common slip for `enabled`, and `gke.enabled` an older switch. */}}
{{- define "tierwise.legacy.monitoring" -}}
{{- $prometheus := deepCopy (.monitoring.prometheus | default dict) -}}
{{- $gke := deepCopy (.monitoring.gke | default dict) -}}
{{- range $path, $map := dict "prometheus" $prometheus "gke" $gke -}}
  {{- if and (hasKey $map "enable") (not (hasKey $map "enabled")) -}}
    {{- $_ := set $map "enabled" $map.enable -}}
    {{- include "tierwise.note" (dict "v" $.v "text" (printf "inferenceExtension.monitoring.%s.enable is read as %s.enabled; the chart of the Gateway API inference extension ignores it." $path $path)) -}}
  {{- end -}}
  {{- $_ := unset $map "enable" -}}
{{- end -}}
{{- if hasKey $gke "enabled" -}}
  {{- include "tierwise.boolean" (dict "path" "inferenceExtension.monitoring.gke.enabled" "value" $gke.enabled) -}}
{{- end -}}
{{- $monitoring := omit .monitoring "gke" -}}
{{- $_ := set $monitoring "prometheus" $prometheus -}}
{{- if $gke.enabled -}}
  {{- $_ := set $prometheus "enabled" true -}}
  {{- $_ := set $monitoring "provider" (dict "name" "gmp") -}}
{{- end -}}
{{- $_ := set .own "monitoring" $monitoring -}}
{{- end -}}
