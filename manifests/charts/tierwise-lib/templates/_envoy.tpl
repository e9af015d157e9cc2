{{/*
The configuration of the chart's own Envoy. Each request's body goes to the picker once, and its answer is the pod. The
answer is read from the dynamic metadata, which only filters can write: the header of the same name is removed from
clients' requests. Pods come from DNS (a headless Service), so that Envoy has where to go without a picker, and where to
turn if a pod that was picked does not accept the connection.
*/}}
{{- define "tierwise.envoy" -}}
{{- include "tierwise.envoy.paths" . -}}
{{- $unlimited := "[{max_connections: 1000000000, max_pending_requests: 1000000000, max_requests: 1000000000, max_retries: 1000000000}]" -}}
layered_runtime:
  layers:
    - name: own
      static_layer: {re2.max_program_size.error_level: 100000, re2.max_program_size.warn_level: 100000}
admin:
  address: {socket_address: {address: 127.0.0.1, port_value: 19000}}
{{ include "tierwise.envoy.overload" . }}
static_resources:
  listeners:
    - name: ready
      address: {socket_address: {address: 0.0.0.0, port_value: 19001}}
      ignore_global_conn_limit: true # a full Envoy is ready all the same, and shows how full it is
      bypass_overload_manager: true
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: ready
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        - match: {prefix: /stats/prometheus}
                          route: {cluster: admin}
                http_filters:
                  - name: envoy.filters.http.health_check
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck
                      pass_through_mode: false
                      headers: [{name: ":path", string_match: {exact: /ready}}]
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
    - name: clients
      address: {socket_address: {address: 0.0.0.0, port_value: 8081}}
      per_connection_buffer_limit_bytes: {{ int .envoyBodyBytes }}
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: clients
                use_remote_address: true
                internal_address_config: {}
                preserve_external_request_id: true
                normalize_path: true
                merge_slashes: true
                path_with_escaped_slashes_action: UNESCAPE_AND_FORWARD
                stream_idle_timeout: 86400s
                request_headers_timeout: 60s
                stream_error_on_invalid_http_message: true # else each 400, the picker's too, ends an HTTP/1.1 connection
                http_protocol_options: {accept_http_10: true, default_host_for_http_10: tierwise}
                http2_protocol_options: {allow_connect: true, max_concurrent_streams: 100000}
                upgrade_configs: [{upgrade_type: websocket, enabled: false}] # only on the route for them
                early_header_mutation_extensions: # a client must choose neither the pod nor the time limits
                  - name: envoy.http.early_header_mutation.header_mutation
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation
                      mutations:
                        - remove: x-gateway-destination-endpoint
                        - remove_on_match: {key_matcher: {prefix: x-envoy-}}
                local_reply_config: # Envoy's own answers in the form of the API
                  mappers:
                    {{- include "tierwise.envoy.refusalForms" . | nindent 20 }}
                    - filter:
                        and_filter:
                          filters:
                            - or_filter:
                                filters:
                                  - response_flag_filter: {flags: [UH, UF, UC, UR, LR]}
                                  - {{ include "tierwise.envoy.overloaded" . }}
                            - header_filter: # gRPC clients read the plain text
                                header:
                                  name: content-type
                                  string_match: {prefix: application/grpc}
                                  invert_match: true
                                  treat_missing_header_as_empty: true
                      body_format_override:
                        json_format:
                          error: {message: "%LOCAL_REPLY_BODY%", type: ServiceUnavailableError, param: null, code: 503}
                route_config:
                  virtual_hosts:
                    - name: all
                      domains: ["*"]
                      routes:
                        {{- with .closedPaths }}
                        {{- include "tierwise.envoy.refused" (dict "match" (printf "{safe_regex: {regex: %s}}" (toJson .))) | nindent 24 }}
                        {{- end }}
                        - match:
                            {{ include "tierwise.envoy.open" . }}
                            headers:
                              - {name: ":method", string_match: {exact: GET}}
                              - {name: upgrade, string_match: {exact: websocket, ignore_case: true}}
                          route:
                            {{- include "tierwise.envoy.route" . | nindent 28 }}
                            upgrade_configs: [{upgrade_type: websocket}]
                          typed_per_filter_config: # the picker would wait for a body that never ends
                            envoy.filters.http.ext_proc:
                              "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExtProcPerRoute
                              overrides:
                                processing_mode:
                                  request_header_mode: SEND
                                  request_body_mode: NONE
                                  request_trailer_mode: SKIP
                                  response_header_mode: SEND
                                  response_body_mode: NONE
                                  response_trailer_mode: SEND # keeps the stream open: the request counts until it ends
                        - match:
                            {{ include "tierwise.envoy.open" . }}
                          route:
                            {{- include "tierwise.envoy.route" . | nindent 28 }}
                        {{- if .openPaths }}
                        {{- include "tierwise.envoy.refused" (dict "match" "{prefix: /}") | nindent 24 }}
                        {{- end }}
                http_filters:
                  - name: envoy.filters.http.ext_proc
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor
                      grpc_service: {envoy_grpc: {cluster_name: picker}}
                      message_timeout: 10s
                      max_message_timeout: 3600s # which the picker asks for while a request waits in a queue
                      failure_mode_allow: {{ .proxy.failOpen }}
                      status_on_error: {code: ServiceUnavailable}
                      route_cache_action: RETAIN
                      processing_mode:
                        request_header_mode: SEND
                        request_body_mode: BUFFERED
                        request_trailer_mode: SKIP
                        response_header_mode: SEND
                        response_body_mode: STREAMED
                        response_trailer_mode: SEND
                      metadata_options:
                        forwarding_namespaces: {untyped: [envoy.lb.subset_hint, envoy.lb]}
                        receiving_namespaces: {untyped: [envoy.lb, tierwise]}
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
                      suppress_envoy_headers: true
  clusters:
    - name: admin
      type: STATIC
      load_assignment:
        cluster_name: admin
        endpoints:
          - lb_endpoints: [{endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 19000}}}}]
    - name: endpoints
      connect_timeout: 2s
      per_connection_buffer_limit_bytes: {{ int .envoyBodyBytes }}
      circuit_breakers: {thresholds: {{ $unlimited }}}
      upstream_connection_options:
        tcp_keepalive: {keepalive_probes: 3, keepalive_time: 60, keepalive_interval: 10}
      {{- if .endpointsService }}
      type: STRICT_DNS
      dns_lookup_family: ALL
      dns_refresh_rate: 2s
      dns_failure_refresh_rate: {base_interval: 1s, max_interval: 5s}
      common_lb_config: {healthy_panic_threshold: {value: 1}}
      outlier_detection: # a pod that cannot be reached is no fallback for 2 s
        split_external_local_origin_errors: true
        consecutive_local_origin_failure: 1
        enforcing_consecutive_local_origin_failure: 100
        interval: 0.5s
        base_ejection_time: 2s
        max_ejection_time: 2s
        max_ejection_percent: 100
        enforcing_success_rate: 0
        enforcing_local_origin_success_rate: 0
        enforcing_failure_percentage: 0
        enforcing_failure_percentage_local_origin: 0
      load_balancing_policy:
        policies:
          - typed_extension_config:
              name: envoy.load_balancing_policies.override_host
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost
                override_host_sources:
                  - metadata: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}
                fallback_policy:
                  policies:
                    - typed_extension_config:
                        name: envoy.load_balancing_policies.round_robin
                        typed_config:
                          "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin
      load_assignment:
        cluster_name: endpoints
        endpoints:
          - lb_endpoints:
              {{- range .modelServers.ports }}
              - endpoint: {address: {socket_address: {address: {{ $.endpointsHost }}, port_value: {{ . }}}}}
              {{- end }}
      {{- else }}
      type: ORIGINAL_DST
      lb_policy: CLUSTER_PROVIDED
      original_dst_lb_config:
        metadata_key: {key: envoy.lb, path: [{key: x-gateway-destination-endpoint}]}
      {{- end }}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          common_http_protocol_options: {idle_timeout: 4s} # engines close an idle connection after 5 s
          {{- if eq (.modelServers.protocol | default "http") "grpc" }}
          explicit_http_config: {http2_protocol_options: {}}
          {{- else }}
          explicit_http_config: {http_protocol_options: {}}
          {{- end }}
    - name: picker
      type: {{ ternary "STRICT_DNS" "STATIC" (eq .proxy.mode "service") }}
      connect_timeout: 1s
      per_connection_buffer_limit_bytes: {{ int .envoyBodyBytes }}
      circuit_breakers: {thresholds: {{ $unlimited }}}
      load_assignment:
        cluster_name: picker
        endpoints:
          - lb_endpoints:
              - endpoint:
                  address: {socket_address: {address: {{ .pickerHost }}, port_value: {{ .pickerPort }}}}
      typed_extension_protocol_options:
        envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
          "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
          common_http_protocol_options: {idle_timeout: 0s}
          explicit_http_config:
            http2_protocol_options:
              max_concurrent_streams: 1000000
              initial_stream_window_size: 1048576
              initial_connection_window_size: 67108864
      {{- if .pickerTls }}
      transport_socket:
        name: envoy.transport_sockets.tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext
          common_tls_context:
            alpn_protocols: [h2]
            tls_params: {tls_maximum_protocol_version: TLSv1_3}
      {{- end }}
{{- end -}}

{{/* Where a request goes, and again if no pod can have begun to work on it: a prompt must not be computed twice. */}}
{{- define "tierwise.envoy.route" -}}
cluster: endpoints
timeout: 0s
idle_timeout: 86400s
retry_policy:
  retry_on: connect-failure,refused-stream,reset-before-request
  num_retries: 16
  host_selection_retry_max_attempts: 8
  retry_host_predicate:
    - name: envoy.retry_host_predicates.previous_hosts
      typed_config:
        "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate
  retry_back_off: {base_interval: 0.005s, max_interval: 0.050s}
{{- end -}}
