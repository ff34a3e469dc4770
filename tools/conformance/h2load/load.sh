# SPDX-License-Identifier: Apache-2.0
# serve: --max-seqs 32 --max-queue 400
# h2load: many streams on few connections, with and without multiplexing; tls.sh runs this over TLS.
set -u
say() { printf '{"area":"%s","claim":"%s","good":%s,"seen":["%s"]}\n' "$1" "$2" "$3" "$(printf %s "${4:-}" | tr -d '"\\' | tr '\n' ' ' | cut -c1-600)"; }
check() { if [ "$3" = "$4" ]; then say "$1" "$2" true; else say "$1" "$2" false "got $3, want $4"; fi; }
metric() { curl -sk "$TOKENRING_URL/metrics" | awk -v name="tokenring_$1" '$1 == name { print $2 }'; }
running() { for _ in $(seq 300); do [ "$(metric requests_running) $(metric requests_waiting)" = "$1 0" ] && break; sleep 0.1; done; metric requests_running; }
case $TOKENRING_URL in https:*) over=", TLS" ;; *) over="" ;; esac
printf '{"client":"h2load%s","version":"%s"}\n' "$over" "$(h2load --version | awk '{ print $2 }' | cut -d/ -f2)"

body() { printf '{"model":"smollm2","prompt":"rings","temperature":0,"ignore_eos":true,"max_tokens":%s,"stream":%s}' "$1" "$2"; }
body 20 true >stream
body 20 false >whole
body -1 true >wrong
body 100000 true >long
load() {
  h2load "$@" -H 'Content-Type: application/json' >out
  awk -F'[:,]' '/^requests:/ { print $5 "," $6 "," $7 } /^status codes/ { print $2 "," $3 "," $4 "," $5 }' out | tr -d '\n '
}
good() { printf '%ssucceeded,0failed,0errored%s2xx,03xx,04xx,05xx' "$1" "$1"; }
ask="$TOKENRING_URL/v1/completions"
check stream "400 streams, 100 at a time on each of 4 connections" "$(load -n 400 -c 4 -m 100 -d stream "$ask")" "$(good 400)"
check stream "1200 streams, 100 at a time on each of 4 connections, by 2 threads" "$(load -t 2 -n 1200 -c 4 -m 100 -d stream "$ask")" "$(good 1200)"
check stream "100 streams on one connection with windows of 16 KiB" "$(load -n 100 -c 1 -m 100 -w 14 -W 14 -d stream "$ask")" "$(good 100)"
check stream "200 streams, one at a time on each of 20 connections" "$(load -n 200 -c 20 -m 1 -d stream "$ask")" "$(good 200)"
check whole "400 answers in one piece, 100 at a time on each of 4 connections" "$(load -n 400 -c 4 -m 100 -d whole "$ask")" "$(good 400)"
check whole "20,000 small answers" "$(load -n 20000 -c 10 -m 100 "$TOKENRING_URL/livez")" "$(good 20000)"
check whole "the same on HTTP/1.1" "$(load --h1 -n 20000 -c 10 "$TOKENRING_URL/livez")" "$(good 20000)"
check other "over HTTP/2" "$(load -n 1 "$TOKENRING_URL/livez"; sed -n 's/^Application protocol: //p' out)" "$(good 1)$([ "$over" ] && echo h2 || echo h2c)"
check error "2000 refusals" "$(load -n 2000 -c 4 -m 100 -d wrong "$ask")" "0succeeded,2000failed,0errored02xx,03xx,20004xx,05xx"

before=$(metric 'streams_ended_total{reason="client_disconnected"}')
load -c 4 -m 20 -D 2 -d long "$ask" >left
check cancel "80 streams that are left: nothing runs any more" "$(running 0)" 0
check cancel "the server saw all of them" "$(metric 'streams_ended_total{reason="client_disconnected"}')" $((before + 80))
check other "every stream had its end" "$(metric streams_without_terminal_total)" 0
exit 0
