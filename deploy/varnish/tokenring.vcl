# SPDX-License-Identifier: Apache-2.0
# Varnish 7 in front of tokenring: varnishd -f tokenring.vcl -a :80 -p pipe_timeout=3600
vcl 4.1;

import directors;

probe ready {
    .url = "/readyz"; # 503 from the first moment of a drain: start tokenring with --drain-grace-s 5
    .interval = 1s;
    .timeout = 2s;
    .window = 2;
    .threshold = 1;
    .initial = 1;
}

backend a {
    .host = "127.0.0.1";
    .port = "8081";
    .probe = ready;
}

backend b {
    .host = "127.0.0.1";
    .port = "8082";
    .probe = ready;
}

sub vcl_init {
    new replicas = directors.round_robin();
    replicas.add_backend(a);
    replicas.add_backend(b);
}

sub vcl_recv {
    set req.backend_hint = replicas.backend();
    # Answers are passed through as bytes, both ways: an event leaves when it comes, and a client that leaves
    # is seen at once, also while nothing is written.  With "pass" Varnish sees it at the next event.
    return (pipe);
}

sub vcl_pipe {
    # One request for each connection: the bytes behind it are not looked at any more.  An Upgrade has its own.
    if (req.http.upgrade) {
        set bereq.http.upgrade = req.http.upgrade;
        set bereq.http.connection = "upgrade";
    } else {
        set bereq.http.connection = "close";
    }
}
