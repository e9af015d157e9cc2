{{/*
Which tree of keys the values have: "router" or "inferenceExtension". Values of both are refused, since nothing says
which of two settings wins.
*/}}
{{- define "tierwise.tree" -}}
{{- $older := list -}}
{{- $newer := list -}}
{{- range $key := list "inferenceExtension" "inferencePool" "inferenceObjectives" "experimentalHttpRoute" "istio" -}}
  {{- if get $.Values $key -}}{{- $older = append $older $key -}}{{- end -}}
{{- end -}}
{{- range $key := list "router" "httpRoute" -}}
  {{- if get $.Values $key -}}{{- $newer = append $newer $key -}}{{- end -}}
{{- end -}}
{{- if and $older $newer -}}
  {{- fail (printf "\nthe values have %s beside %s, which are two trees of keys for the same settings; write everything below one of them (`tierwise values` converts a file)" (first $newer) (first $older)) -}}
{{- end -}}
{{- ternary "inferenceExtension" "router" (not (empty $older)) -}}
{{- end -}}
