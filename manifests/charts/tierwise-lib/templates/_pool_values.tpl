{{/* Complete the values of the pool and of its pods: ports, labels or a selector, group, failure mode. */}}
{{- define "tierwise.pool.values" -}}
{{- $servers := .modelServers -}}
{{- $legacy := eq .tree "inferenceExtension" -}}
{{- $path := ternary "inferencePool.modelServers.matchLabels" "router.modelServers.matchLabels" $legacy -}}
{{- $labels := dict -}}
{{- range $key, $value := $servers.matchLabels -}}
  {{- $_ := set $labels $key (include "tierwise.text" $value) -}}
{{- end -}}
{{- $_ := set $servers "matchLabels" $labels -}}
{{- if and (empty $labels) (or .inferencePool.create (not $servers.selector)) -}}
  {{- $example := printf "--set-string '%s.llm-d\\.ai/guide=NAME'" $path -}}
  {{- fail (printf "\n%s is missing, so no pod would be an endpoint; add the labels of your model servers' pods, for example\n  %s" $path $example) -}}
{{- end -}}
{{- if not $servers.selector -}}
  {{- $terms := list -}}
  {{- range $key, $value := $labels -}}{{- $terms = append $terms (printf "%s=%s" $key $value) -}}{{- end -}}
  {{- $_ := set $servers "selector" (join "," $terms) -}}
{{- else if regexMatch "^[^!()=, ]+==?[^!()=, ]+(,[^!()=, ]+==?[^!()=, ]+)*$" $servers.selector -}}
  {{- range splitList "," $servers.selector -}}
    {{- $_ := set $labels (regexReplaceAll "=.*$" . "") (regexReplaceAll "^[^=]*==?" . "") -}}
  {{- end -}}
{{- end -}}

{{- $ports := list -}}
{{- range $servers.targetPorts -}}{{- $ports = append $ports (int .number) -}}{{- end -}}
{{- if empty $ports -}}{{- $ports = list (int ($servers.targetPortNumber | default 8000)) -}}{{- end -}}
{{- if gt (len $ports) 8 -}}
  {{- fail (printf "\n%d target ports are given (%s); an InferencePool has at most 8" (len $ports) (join ", " $ports)) -}}
{{- end -}}
{{- range $ports -}}
  {{- if or (lt . 1) (gt . 65535) -}}{{- fail (printf "\ntarget port %d is none; write a number from 1 to 65535" .) -}}{{- end -}}
{{- end -}}
{{- $_ := set $servers "ports" $ports -}}
{{- $_ := set $servers "type" (lower $servers.type) -}}
{{- $types := list "vllm" "sglang" "triton-tensorrt-llm" "triton" "trtllm-serve" -}}
{{- if not (has $servers.type $types) -}}
  {{- fail (printf "\nthe type of the model servers is %q; write one of %s" $servers.type (join ", " $types)) -}}
{{- end -}}
{{- if not (has ($servers.protocol | default "http") (list "http" "grpc")) -}}
  {{- fail (printf "\nthe protocol of the model servers is %q; write http or grpc" $servers.protocol) -}}
{{- end -}}

{{- $pool := .inferencePool -}}
{{- if not (has $pool.apiVersion (list "inference.networking.k8s.io/v1" "inference.networking.x-k8s.io/v1alpha2")) -}}
  {{- fail (printf "\ninferencePool.apiVersion is %q; write inference.networking.k8s.io/v1, or inference.networking.x-k8s.io/v1alpha2 for an old gateway" $pool.apiVersion) -}}
{{- end -}}
{{- $_ := set $pool "group" (first (splitList "/" $pool.apiVersion)) -}}
{{- if has $pool.failureMode (list "FailClosed" "FailOpened") -}}
  {{- $meant := ternary "FailClose" "FailOpen" (eq $pool.failureMode "FailClosed") -}}
  {{- include "tierwise.note" (dict "v" . "text" (printf "failureMode %s is written as %s, which is what an InferencePool accepts." $pool.failureMode $meant)) -}}
  {{- $_ := set $pool "failureMode" $meant -}}
{{- end -}}
{{- if not (has $pool.failureMode (list "FailOpen" "FailClose")) -}}
  {{- fail (printf "\nfailureMode is %q; write FailOpen or FailClose" $pool.failureMode) -}}
{{- end -}}
{{- end -}}
