{{/* Bytes of a quantity such as 100Gi, 1.5Ti or 107374182400. */}}
{{- define "modelserver.bytes" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $units := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) | floor | int64 -}}
{{- end -}}

{{/* A quantity for bytes: whole mebibytes, rounded up, or gibibytes. */}}
{{- define "modelserver.quantity" -}}
{{- $mebibytes := div (add (int64 .) 1048575) 1048576 -}}
{{- if mod $mebibytes 1024 -}}{{ $mebibytes }}Mi{{- else -}}{{ div $mebibytes 1024 }}Gi{{- end -}}
{{- end -}}

{{/* Gibibytes of bytes, as a number with at most four decimals, rounded down. */}}
{{- define "modelserver.gibibytes" -}}
{{- $parts := div (mul (int64 .) 10000) 1073741824 -}}
{{- printf "%d.%04d" (div $parts 10000) (mod $parts 10000) | trimSuffix "0" | trimSuffix "0" | trimSuffix "0" | trimSuffix "0" | trimSuffix "." -}}
{{- end -}}

{{/*
Everything that follows from `cache.cpu`, in bytes: `cache` of the pod, `engine` (all workers of one engine), `worker`,
`shm`, and `memory` of the container. kvengine takes at most 80% of the memory that is left when it starts, so the
container's memory has a quarter of the cache more than the rest needs. vLLM's own connector keeps its tier in /dev/shm.
*/}}
{{- define "modelserver.sizes" -}}
{{- $values := .Values -}}
{{- $connector := required "\ncache.connector is empty; write kvengine, offloading, lmcache or none" $values.cache.connector -}}
{{- if and (ne $connector "none") (not $values.cache.cpu) -}}
  {{- fail "\ncache.cpu is empty; write the CPU memory for KV of a pod, such as 100Gi, or cache.connector: none" -}}
{{- end -}}
{{- $cache := ternary 0 (include "modelserver.bytes" $values.cache.cpu | int64) (eq $connector "none") -}}
{{- if and (ne $connector "none") (lt $cache 1073741824) -}}
  {{- fail (printf "\ncache.cpu is %v, which is below 1Gi; write it with its unit, such as 100Gi (Mi, Gi, Ti, M, G or T)" $values.cache.cpu) -}}
{{- end -}}
{{- $engine := div $cache (int64 $values.parallelism.data) -}}
{{- $worker := div $engine (int64 $values.parallelism.tensor) -}}
{{- $base := include "modelserver.bytes" $values.resources.shm | int64 -}}
{{- $headroom := ternary (div (add $cache 3) 4) 0 (eq $connector "kvengine") -}}
{{- dict "cache" $cache "engine" $engine "worker" $worker
      "shm" (add $base (ternary $cache 0 (eq $connector "offloading")))
      "memory" (add (include "modelserver.bytes" $values.resources.memory | int64) $base $cache $headroom) | toJson -}}
{{- end -}}
