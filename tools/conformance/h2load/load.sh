# SPDX-License-Identifier: Apache-2.0
# serve: --max-seqs 32 --max-queue 400
# h2load: many streams on few connections, with and without multiplexing.
set -u
say() { printf '{"area":"%s","claim":"%s","good":%s,"seen":["%s"]}\n' "$1" "$2" "$3" "$(printf %s "${4:-}" | tr -d '"\\' | tr '\n' ' ' | cut -c1-600)"; }
check() { if [ "$3" = "$4" ]; then say "$1" "$2" true; else say "$1" "$2" false "got $3, want $4"; fi; }
metric() { curl -s "$TOKENRING_URL/metrics" | awk -v name="tokenring_$1" '$1 == name { print $2 }'; }
printf '{"client":"h2load","version":"%s"}\n' "$(h2load --version | awk '{ print $2 }' | cut -d/ -f2)"

printf '{"model":"smollm2","prompt":"rings","temperature":0,"ignore_eos":true,"max_tokens":20,"stream":true}' >body
load() { h2load "$@" -H 'Content-Type: application/json' | awk -F'[:,]' '/^requests:/ { print $5 "," $6 "," $7 } /^status codes/ { print $2 "," $3 "," $4 "," $5 }' | tr -d '\n '; }
good() { printf '%ssucceeded,0failed,0errored%s2xx,03xx,04xx,05xx' "$1" "$1"; }
check stream "400 streams, 50 at a time on each of 4 connections" "$(load -n 400 -c 4 -m 50 -d body "$TOKENRING_URL/v1/completions")" "$(good 400)"
check stream "200 streams, one at a time on each of 20 connections" "$(load -n 200 -c 20 -m 1 -d body "$TOKENRING_URL/v1/completions")" "$(good 200)"
check whole "20,000 small answers" "$(load -n 20000 -c 10 -m 100 "$TOKENRING_URL/livez")" "$(good 20000)"
check whole "the same on HTTP/1.1" "$(load --h1 -n 20000 -c 10 "$TOKENRING_URL/livez")" "$(good 20000)"
check other "every stream had its end" "$(metric streams_without_terminal_total)" 0
exit 0
