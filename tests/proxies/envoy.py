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
        manager = f"""{{{HCM}, stat_prefix: x, http_filters: [{ROUTER}],
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
def ours():
    equal(everything(Envoy, "ours"), [True] * 3, "envoy: silence with our configuration")


@test
def further_ways():
    for way in (carriers, clear_http2, upstream_http2, over_http3):
        way(Envoy, "envoy", "ours")


@test
def default():
    everything(Envoy, "default")


if __name__ == "__main__":
    main()
