{{/*
The picker's image. One that is another project's picker is replaced by ours, since it has other flags and no tiers,
unless `image.literal` says that it is meant.
*/}}
{{- define "tierwise.image" -}}
{{- $given := .epp.image -}}
{{- $own := .own.image | default dict -}}
{{- $registry := $given.registry | default $given.hub | default "" -}}
{{- $repository := $given.repository | default $given.name | default "" -}}
{{- $literal := $given.literal | default false -}}
{{- $foreign := has (last (splitList "/" $repository)) (list "epp" "llm-d-inference-scheduler" "llm-d-router-endpoint-picker" "lwepp") -}}
{{- $asked := printf "%s:%s" (trimPrefix "/" (printf "%s/%s" $registry $repository)) ($given.tag | default "") -}}
{{- if and $literal (not $given.tag) (not $given.digest) -}}
  {{- fail (printf "\nimage.literal is true, and neither image.tag nor image.digest says which %q to run" $repository) -}}
{{- end -}}
{{- $tag := $given.tag -}}
{{- if or (empty $repository) (and $foreign (not $literal)) -}}
  {{- if $foreign -}}
    {{- include "tierwise.note" (dict "v" . "text" (printf "The image %s is another picker and is replaced by Tierwise; image.literal=true would run it." $asked)) -}}
    {{- $tag = "" -}}
  {{- end -}}
  {{- $registry = ternary $registry ($own.registry | default "") (and (not $foreign) (not (empty $registry))) -}}
  {{- if not (or $registry $own.repository) -}}
    {{- include "tierwise.note" (dict "v" . "text" "No registry is given, and no image of Tierwise is published: the image tierwise/tierwise is found only where the nodes have it. Set tierwise.image.registry to the registry of your build, or tierwise.image.repository.") -}}
  {{- end -}}
  {{- $repository = $own.repository | default (ternary "tierwise/tierwise" "tierwise" (empty $registry)) -}}
{{- end -}}
{{- $version := printf ":%s" ($tag | default $own.tag | default .appVersion) -}}
{{- $digest := ternary "" ($given.digest | default "") (and $foreign (not $literal)) -}}
{{- if $digest -}}{{- $version = printf "@%s" $digest -}}{{- end -}}
{{- $image := printf "%s%s" (trimPrefix "/" (printf "%s/%s" $registry $repository)) $version -}}
{{- $_ := set . "image" $image -}}
{{- $_ := set . "literal" $literal -}}
{{- $_ := set . "pullPolicy" ($given.pullPolicy | default "IfNotPresent") -}}
{{- end -}}
