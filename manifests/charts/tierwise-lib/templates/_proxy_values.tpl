{{/*
Complete the values of the proxy: its container, its volumes and its files. In the chart `standalone` it is our Envoy,
changed by the values; in `inferencepool` a container that the values describe as a whole.
*/}}
{{- define "tierwise.proxy.values" -}}
{{- $v := .v -}}
{{- $proxy := $v.proxy -}}
{{- $standalone := eq $v.chart "standalone" -}}
{{- $path := ternary "router.proxy" "inferenceExtension.sidecar" (eq $v.tree "router") -}}
{{- $_ := set $v "envoyBodyBytes" 33619968 -}}
{{- $_ := set $v "proxyFiles" dict -}}
{{- $_ := set $v "envoy" false -}}
{{- if not $proxy.enabled -}}
  {{- if and (not $standalone) (eq $v.tree "router") (.root.Values.router).proxy -}}
    {{- include "tierwise.note" (dict "v" $v "text" "router.proxy has no effect: this chart runs no proxy unless router.proxy.enabled is true; chart standalone brings an Envoy of its own.") -}}
  {{- end -}}
{{- else if not $standalone -}}
  {{- if or (not $proxy.name) (not $proxy.image) -}}
    {{- fail (printf "\n%s.enabled is true, and %s.name or %s.image is missing; chart standalone brings an Envoy of its own" $path $path $path) -}}
  {{- end -}}
  {{- $_ := set $proxy "mode" "sidecar" -}}
  {{- include "tierwise.proxy.files" . -}}
  {{- include "tierwise.proxy.container" (dict "v" $v "security" dict) -}}
  {{- $_ := set $v "proxyVolumes" (tpl (toYaml ($proxy.volumes | default list)) .root | fromYamlArray) -}}
{{- else -}}
  {{- include "tierwise.proxy.envoy" (dict "v" $v "root" .root "path" $path) -}}
{{- end -}}
{{- end -}}

{{/* The files of the proxy's ConfigMap, and its name: one of the release's own, unless the values name it. */}}
{{- define "tierwise.proxy.files" -}}
{{- $map := .v.proxy.configMap | default dict -}}
{{- $_ := set .v "proxyConfigMap" ($map.name | default (printf "%s-proxy-config" .v.name)) -}}
{{- range $file, $text := $map.data -}}{{- $_ := set $.v.proxyFiles $file $text -}}{{- end -}}
{{- end -}}

{{- define "tierwise.proxy.envoy" -}}
{{- $v := .v -}}
{{- $proxy := $v.proxy -}}
{{- if ne (lower $proxy.proxyType) "envoy" -}}
  {{- fail (printf "\n%s.proxyType is %q; this chart runs Envoy: leave it out, or use chart inferencepool with provider.name=agentgateway" .path $proxy.proxyType) -}}
{{- end -}}
{{- if not (has $proxy.mode (list "sidecar" "service")) -}}
  {{- fail (printf "\n%s.mode is %q; write sidecar (Envoy in the picker's pod) or service (pods of its own)" .path $proxy.mode) -}}
{{- end -}}
{{- if and $proxy.autoscaling.enabled (ne $proxy.mode "service") -}}
  {{- fail (printf "\n%s.autoscaling needs %s.mode=service: a sidecar has as many replicas as the picker" .path .path) -}}
{{- end -}}
{{- if not (kindIs "bool" $proxy.failOpen) -}}
  {{- $_ := set $proxy "failOpen" (eq $v.inferencePool.failureMode "FailOpen") -}}
{{- end -}}
{{- $service := eq $proxy.mode "service" -}}
{{- $_ := set $v "endpointsService" (not (empty $v.modelServers.matchLabels)) -}}
{{- $_ := set $v "endpointsHost" (printf "%s.%s.svc.%s." $v.endpointsName $v.namespace (trimSuffix "." $v.clusterDomain)) -}}
{{- $_ := set $v "pickerHost" (ternary (printf "%s.%s.svc.%s." $v.name $v.namespace (trimSuffix "." $v.clusterDomain)) "127.0.0.1" $service) -}}
{{- $_ := set $v "pickerPort" (ternary (int $v.epp.extProcPort) 9002 $service) -}}
{{- $_ := set $v "pickerTls" (ne (include "tierwise.text" (get $v.epp.flags "secure-serving")) "false") -}}
{{- if not $v.endpointsService -}}
  {{- include "tierwise.note" (dict "v" $v "text" (printf "The selector %q is no list of key=value, so no Service can select the same pods: without the picker, Envoy answers 503." $v.modelServers.selector)) -}}
{{- end -}}

{{- $_ := set $proxy "resources" ($proxy.resources | default (dict "requests" (dict "cpu" "100m" "memory" "512Mi") "limits" (dict "memory" "4Gi"))) -}}
{{- include "tierwise.proxy.files" . -}}
{{- if hasKey $v.proxyFiles "envoy.yaml" -}}
  {{- include "tierwise.note" (dict "v" $v "text" (printf "%s.configMap.data has an envoy.yaml of yours, which is used as it is." .path)) -}}
{{- else -}}
  {{- $_ := set $v "envoy" true -}}
  {{- include "tierwise.envoy.limits" $v -}}
  {{- $_ := set $v.proxyFiles "envoy.yaml" (include "tierwise.envoy" $v) -}}
{{- end -}}

{{- $_ := set $proxy "name" ($proxy.name | default (ternary "envoy-proxy" "envoy-sidecar" (eq $v.tree "router"))) -}}
{{- $_ := set $proxy "image" ($proxy.image | default "docker.io/envoyproxy/envoy:distroless-v1.37.0") -}}
{{- $minor := regexFind "v1\\.[0-9]+" $proxy.image | trimPrefix "v1." -}}
{{- if and $v.envoy $minor (lt (int $minor) 34) -}}
  {{- fail (printf "\n%s.image is %q; the chart's configuration needs Envoy 1.34 or newer, so leave the image out or give %s.configMap.data a configuration of yours" .path $proxy.image .path) -}}
{{- end -}}
{{- $_ := set $proxy "command" ($proxy.command | default (list "envoy")) -}}
{{- $_ := set $proxy "args" ($proxy.args | default (list "--service-node" $proxy.name "--log-level" "warn" "--concurrency" "4" "--drain-strategy" "immediate" "--drain-time-s" "60" "-c" "/etc/envoy/envoy.yaml")) -}}
{{- if has "trace" $proxy.args -}}
  {{- include "tierwise.note" (dict "v" $v "text" (printf "%s.args lets Envoy log at trace, which costs a multiple of the CPU of the requests." .path)) -}}
{{- end -}}
{{- $_ := set $proxy "env" ($proxy.env | default (list
  (dict "name" "NS_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.namespace")))
  (dict "name" "POD_NAME" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name"))))) -}}
{{- $_ := set $proxy "ports" ($proxy.ports | default (list (dict "name" "http-8081" "containerPort" 8081) (dict "name" "metrics-19001" "containerPort" 19001))) -}}
{{- $_ := set $proxy "readinessProbe" ($proxy.readinessProbe | default (dict "httpGet" (dict "path" "/ready" "port" 19001) "periodSeconds" 5 "timeoutSeconds" 1 "failureThreshold" 1)) -}}
{{- $mounts := $proxy.volumeMounts | default list -}}
{{- $volumes := tpl (toYaml ($proxy.volumes | default list)) .root | fromYamlArray -}}
{{- $mounted := false -}}
{{- range $mounts -}}{{- if eq (trimSuffix "/" .mountPath) "/etc/envoy" -}}{{- $mounted = true -}}{{- end -}}{{- end -}}
{{- if not $mounted -}}
  {{- $mounts = append $mounts (dict "name" "proxy-config" "mountPath" "/etc/envoy" "readOnly" true) -}}
  {{- $volumes = append $volumes (dict "name" "proxy-config" "configMap" (dict "name" $v.proxyConfigMap)) -}}
{{- end -}}
{{- $_ := set $proxy "volumeMounts" $mounts -}}
{{- $_ := set $v "proxyVolumes" $volumes -}}
{{- include "tierwise.proxy.container" (dict "v" $v "security" (include "tierwise.container.security" . | fromYaml)) -}}
{{- if $v.proxyPreStopSeconds -}}
  {{- $_ := set $v.proxyContainer "lifecycle" (dict "preStop" (dict "sleep" (dict "seconds" $v.proxyPreStopSeconds))) -}}
{{- end -}}
{{- end -}}

{{/* Set .v.proxyContainer to the container that the values of the proxy describe. */}}
{{- define "tierwise.proxy.container" -}}
{{- $proxy := .v.proxy -}}
{{- $container := dict "name" $proxy.name "image" $proxy.image "imagePullPolicy" ($proxy.imagePullPolicy | default "IfNotPresent") -}}
{{- range $key := list "args" "env" "ports" "livenessProbe" "readinessProbe" "startupProbe" "resources" "volumeMounts" -}}
  {{- with get $proxy $key -}}{{- $_ := set $container $key . -}}{{- end -}}
{{- end -}}
{{- with $proxy.command -}}
  {{- $_ := set $container "command" (ternary (list .) . (kindIs "string" .)) -}}
{{- end -}}
{{- $security := .security -}}
{{- include "tierwise.overlay" (dict "base" $security "over" $proxy.securityContext) -}}
{{- with $security -}}{{- $_ := set $container "securityContext" . -}}{{- end -}}
{{- $_ := set .v "proxyContainer" $container -}}
{{- end -}}
