{{/* Write every value of .over into .base, map by map; a null leaves the value of .base as it is. */}}
{{- define "tierwise.overlay" -}}
{{- $base := .base -}}
{{- range $key, $value := .over -}}
  {{- if and (kindIs "map" $value) (kindIs "map" (get $base $key)) -}}
    {{- include "tierwise.overlay" (dict "base" (get $base $key) "over" $value) -}}
  {{- else if not (kindIs "invalid" $value) -}}
    {{- $_ := set $base $key $value -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Add the sentence .text to what NOTES prints about the values. */}}
{{- define "tierwise.note" -}}
{{- $_ := set .v "notes" (append .v.notes .text) -}}
{{- end -}}

{{/* A value as the text of an argument: whole numbers without an exponent, lists with commas. */}}
{{- define "tierwise.text" -}}
{{- if kindIs "string" . -}}
  {{- . -}}
{{- else if kindIs "slice" . -}}
  {{- $words := list -}}
  {{- range . -}}{{- $words = append $words (include "tierwise.text" .) -}}{{- end -}}
  {{- join "," $words -}}
{{- else -}}
  {{- toJson . -}}
{{- end -}}
{{- end -}}

{{/* Fail unless .value, found at .path, is true or false: the text "false" would count as true. */}}
{{- define "tierwise.boolean" -}}
{{- if not (kindIs "bool" .value) -}}
  {{- fail (printf "\n%s is %s, which is not a boolean; write true or false without quotes, or use --set instead of --set-string" .path (toJson .value)) -}}
{{- end -}}
{{- end -}}
