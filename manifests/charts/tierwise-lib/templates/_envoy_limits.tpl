{{/* Bytes of a quantity of Kubernetes such as 16Gi, 1.5Ti, 4e9 or 107374182400. */}}
{{- define "tierwise.bytes" -}}
{{- $text := toString . -}}
{{- $unit := regexFind "[A-Za-z]*$" $text -}}
{{- $units := dict "" 1 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "Pi" 1125899906842624 "Ei" 1152921504606846976 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $units $unit) | floor | int64 -}}
{{- end -}}

{{/*
Set .envoyHeapBytes (0: no limit) and .envoyConnections, which bound the chart's own Envoy. The heap stays a tenth below
the memory limit of the container, since the kernel counts more than the heap. A connection that waits costs Envoy some
tens of kilobytes, so the heap has room for one per 64 KiB; what bodies need beyond that, the limit of the heap holds.
*/}}
{{- define "tierwise.envoy.limits" -}}
{{- $given := .own.envoy | default dict -}}
{{- $limit := ((.proxy.resources | default dict).limits | default dict).memory -}}
{{- $heap := 0 -}}
{{- if not (kindIs "invalid" $given.maxMemory) -}}
  {{- $heap = include "tierwise.bytes" $given.maxMemory | int64 -}}
{{- else if $limit -}}
  {{- $heap = div (mul (include "tierwise.bytes" $limit | int64) 9) 10 -}}
{{- else -}}
  {{- include "tierwise.note" (dict "v" . "text" "Envoy's container has no memory limit, so nothing bounds the memory of Envoy; give its resources one, or set tierwise.envoy.maxMemory.") -}}
{{- end -}}
{{- $connections := ternary (div $heap 65536) 65536 (gt (int64 $heap) 0) -}}
{{- if not (kindIs "invalid" $given.maxConnections) -}}{{- $connections = $given.maxConnections -}}{{- end -}}
{{- $_ := set . "envoyHeapBytes" (int64 $heap) -}}
{{- $_ := set . "envoyConnections" (int64 $connections) -}}
{{- end -}}

{{/*
What Envoy does before it has too much: give memory back, refuse requests with 503, then end the streams that hold most
of it. The kernel would end all streams. A connection beyond the limit is closed at once.
*/}}
{{- define "tierwise.envoy.overload" -}}
overload_manager:
  refresh_interval: 0.25s
  resource_monitors:
    - name: envoy.resource_monitors.global_downstream_max_connections
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig
        max_active_downstream_connections: {{ int64 .envoyConnections }}
    {{- if .envoyHeapBytes }}
    - name: envoy.resource_monitors.fixed_heap
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.resource_monitors.fixed_heap.v3.FixedHeapConfig
        max_heap_size_bytes: {{ int64 .envoyHeapBytes }}
  buffer_factory_config: {minimum_account_to_track_power_of_two: 20}
  actions:
    - name: envoy.overload_actions.shrink_heap
      triggers: [{name: envoy.resource_monitors.fixed_heap, threshold: {value: 0.9}}]
    - name: envoy.overload_actions.stop_accepting_requests
      triggers: [{name: envoy.resource_monitors.fixed_heap, threshold: {value: 0.95}}]
    - name: envoy.overload_actions.reset_high_memory_stream
      triggers: [{name: envoy.resource_monitors.fixed_heap, scaled: {scaling_threshold: 0.97, saturation_threshold: 0.99}}]
    {{- end }}
{{- end -}}

{{/* The filter of local replies for the requests that Envoy refuses while its heap is full. */}}
{{- define "tierwise.envoy.overloaded" -}}
{extension_filter: {name: envoy.access_loggers.extension_filters.cel, typed_config: {"@type": type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter, expression: "response.code_details == 'overload'"}}}
{{- end -}}
