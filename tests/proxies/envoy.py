# SPDX-License-Identifier: Apache-2.0
"""Envoy, with deploy/envoy/envoy.yaml and with the least that it takes: a listener, a route, a cluster."""
from passing import *

HCM = '"@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager'
ROUTER = '{name: envoy.filters.http.router, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}'


def endpoint(port):
    return f"{{endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}}}}}"


class Envoy(Front):
    name, ports = "envoy", ("http", "https", "admin", "http3")

    def write(self):
        config = self.put("envoy.yaml", self.ours() if self.setting == "ours" else self.plain())
        return [os.path.join(PLACE, "bin/envoy"), "-c", config, "--use-dynamic-base-id", "--concurrency", "2", "--log-level", "warning"]

    def ours(self):
        http = "        - endpoint: {address: {socket_address: {address: 127.0.0.1, port_value: 8080}}}"
        return shipped("envoy/envoy.yaml", {
            "0.0.0.0, port_value: 80}": f"127.0.0.1, port_value: {self.at['http']}}}",
            "{address: 0.0.0.0, port_value: 443": f"{{address: 127.0.0.1, port_value: {self.at['https']}",
            "protocol: UDP, address: 0.0.0.0, port_value: 443": f"protocol: UDP, address: 127.0.0.1, port_value: {self.at['http3']}",
            "port_value: 9901": f"port_value: {self.at['admin']}",
            "/etc/tokenring/tls/cert.pem": TLS["cert"], "/etc/tokenring/tls/key.pem": TLS["key"],
            http: "\n".join("        - " + endpoint(p) for p in self.up),
            "port_value: 9000": f"port_value: {self.options.get('grpc', self.up[0])}",
            **({"{http_protocol_options: {}}": "{http2_protocol_options: {}}"} if self.options.get("h2") else {})})

    def plain(self):
        manager = f"""{{{HCM}, stat_prefix: x, http_filters: [{self.options.get("filters", "")}{ROUTER}],
          route_config: {{virtual_hosts: [{{name: x, domains: ["*"], routes: [{{match: {{prefix: /}}, route: {{cluster: up}}}}]}}]}}}}"""
        tls = f"""{{name: tls, typed_config: {{"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext,
          common_tls_context: {{alpn_protocols: [h2, http/1.1],
          tls_certificates: [{{certificate_chain: {{filename: {TLS['cert']}}}, private_key: {{filename: {TLS['key']}}}}}]}}}}}}"""
        return f"""static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {self.at['http']}}}}}
    filter_chains:
    - filters:
      - name: http
        typed_config: {manager}
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {self.at['https']}}}}}
    filter_chains:
    - transport_socket: {tls}
      filters:
      - name: http
        typed_config: {manager}
  clusters:
  - name: up
    type: STATIC
    load_assignment: {{cluster_name: up, endpoints: [{{lb_endpoints: [{", ".join(map(endpoint, self.up))}]}}]}}
"""


@test
def measured():
    for setting, make in makers(Envoy):
        figures(make, "envoy", setting)


@test
def conducted():
    """Its default cuts after 15 s for a request; ours leaves that to tokenring."""
    want = {"ours": [True] * 3, "default": [False, False, False]}
    both = makers(Envoy)
    ends = together([lambda s=setting, m=make: conduct(m, "envoy", s) for setting, make in both])
    for (setting, _), end in zip(both, ends):
        equal(end, want[setting], f"envoy, {setting}: which silences it bears")


@test
def further_ways():
    for way in (carriers, clear_http2, upstream_http2, over_http3):
        way(Envoy, "envoy", "ours")


@test
def traps():
    """Compression where it is switched on for streams: the answer says no-transform."""
    gzip = ('{name: gzip, typed_config: {"@type": type.googleapis.com/envoy.extensions.filters.http.compressor.v3.Compressor, '
            'response_direction_config: {common_config: {content_type: [text/event-stream], min_content_length: 30}}, '
            'compressor_library: {name: gzip, typed_config: {"@type": type.googleapis.com/envoy.extensions.compression.gzip.compressor.v3.Gzip}}}}, ')
    with Server(SLOW) as s, Envoy(s, setting="default", filters=gzip) as front:
        encoding, reads = compressed(front)
        tell("envoy", "default", "gzip for text/event-stream", f"encoding: {encoding}; 102 events in {reads} reads")
        equal(encoding, "none", "envoy: no-transform is respected")


if __name__ == "__main__":
    main()
