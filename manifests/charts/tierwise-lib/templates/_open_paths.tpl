{{/*
Which paths of the engines clients may use: inference and an engine's health, as `tierwise standalone` does. The
expressions are those of epp/standalone/paths.py, which a test compares. Set .openPaths (null: every path) and
.closedPaths (null: none) in the values.
*/}}
{{- define "tierwise.envoy.paths" -}}
{{- $opened := .own.openPaths | default list -}}
{{- $everything := false -}}
{{- $below := list -}}
{{- range $opened -}}
  {{- $path := . | toString -}}
  {{- if has $path (list "all" "/") -}}{{- $everything = true -}}
  {{- else if or (not (hasPrefix "/" $path)) (contains "//" $path) (regexMatch "[%?#*;\\\\ ]" $path) -}}
    {{- fail (printf "\ntierwise.openPaths has %q; write a path such as /metrics, without a pattern, a query or percent signs, or all for every path" $path) -}}
  {{- end -}}
  {{- $below = append $below (trimSuffix "/" $path) -}}
{{- end -}}
{{- $open := list
  "/v1/[\\w-]+(?:/[^;]*)?"
  "/v2/(?:chat|embed|rerank)"
  "/cohere/v[12]/[\\w-]+"
  "/inference/v1/[\\w-]+(?:/[\\w-]+)?"
  "/(?:v1/)?(?:tokenize|detokenize|render|derender)"
  "/(?:pooling|classify|score|rerank|generative_scoring|invocations)"
  "/(?:generate|encode)"
  "/(?:health|health_generate|ping|version)"
  "/vllm\\.grpc\\.engine\\.VllmEngine/(?:Generate|Embed|HealthCheck|GetModelInfo|GetTokenizer)"
  "/[\\w.]*PredictionService/\\w+"
-}}
{{- range $below -}}{{- $open = append $open (printf "%s(?:/.*)?" (regexQuoteMeta .)) -}}{{- end -}}
{{- $closed := list -}}
{{- range $hole := list "/v1/load_lora_adapter" "/v1/unload_lora_adapter" "/v1/loads" -}}
  {{- $meant := false -}}
  {{- range $below -}}{{- if hasPrefix (printf "%s/" .) (printf "%s/" $hole) -}}{{- $meant = true -}}{{- end -}}{{- end -}}
  {{- if not $meant -}}{{- $closed = append $closed (printf "%s(?:/.*)?" $hole) -}}{{- end -}}
{{- end -}}
{{- $_ := set . "openPaths" (ternary "" (join "|" $open) $everything) -}}
{{- $_ := set . "closedPaths" (ternary "" (printf "(?i:%s)" (join "|" $closed)) (or $everything (empty $closed))) -}}
{{- end -}}

{{/* The match of the paths that are open to clients, without the headers. */}}
{{- define "tierwise.envoy.open" -}}
{{- if .openPaths -}}safe_regex: {regex: {{ toJson .openPaths }}}{{- else -}}prefix: /{{- end -}}
{{- end -}}

{{/* A route that refuses requests and asks neither an engine nor the picker; .match is which. */}}
{{- define "tierwise.envoy.refused" -}}
- name: closed
  match: {{ .match }}
  direct_response:
    status: 404
    body: {inline_string: "this path is not open to clients; tierwise.openPaths of the release can open it"}
  typed_per_filter_config:
    envoy.filters.http.ext_proc:
      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute
      disabled: true
{{- end -}}

{{/* The form of that refusal: for clients of gRPC, of Anthropic's API, and of all others. */}}
{{- define "tierwise.envoy.refusalForms" -}}
{{- $direct := "{extension_filter: {name: envoy.access_loggers.extension_filters.cel, typed_config: {\"@type\": type.googleapis.com/envoy.extensions.access_loggers.filters.cel.v3.ExpressionFilter, expression: \"response.code_details.startsWith('direct_response')\"}}}" -}}
{{- $readable := "[{header: {key: access-control-allow-origin, value: \"*\"}, append_action: OVERWRITE_IF_EXISTS_OR_ADD}]" -}}
- filter:
    and_filter:
      filters:
        - header_filter: {header: {name: content-type, string_match: {prefix: application/grpc}}}
        - {{ $direct }}
  body_format_override: {text_format_source: {inline_string: "%LOCAL_REPLY_BODY%"}}
- filter:
    and_filter:
      filters:
        - or_filter:
            filters:
              - header_filter: {header: {name: ":path", string_match: {safe_regex: {regex: "[^?]*(/messages|/messages/count_tokens)(\\?.*)?"}}}}
              - header_filter: {header: {name: anthropic-version, present_match: true}}
        - {{ $direct }}
  headers_to_add: {{ $readable }}
  body_format_override:
    content_type: application/json
    json_format:
      type: error
      error: {type: not_found_error, message: "%LOCAL_REPLY_BODY%"}
      request_id: "%REQ(x-request-id)%"
- filter: {{ $direct }}
  headers_to_add: {{ $readable }}
  body_format_override:
    content_type: application/json
    json_format:
      error: {message: "%LOCAL_REPLY_BODY%", type: NotFoundError, param: null, code: "%RESPONSE_CODE%"}
{{- end -}}
