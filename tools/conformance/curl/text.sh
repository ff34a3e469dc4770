# SPDX-License-Identifier: Apache-2.0
# curl, as somebody at a terminal uses it.
set -u
say() { printf '{"area":"%s","claim":"%s","good":%s,"seen":["%s"]}\n' "$1" "$2" "$3" "$(printf %s "${4:-}" | tr -d '"\\' | tr '\n' ' ' | cut -c1-600)"; }
check() { if [ "$3" = "$4" ]; then say "$1" "$2" true; else say "$1" "$2" false "got $3, want $4"; fi; }
metric() { curl -s "$TOKENRING_URL/metrics" | awk -v name="tokenring_$1" '$1 == name { print $2 }'; }
running() { for _ in $(seq 300); do [ "$(metric requests_running)" = "$1" ] && return; sleep 0.1; done; }
body() { printf '{"model":"smollm2","messages":[{"role":"user","content":"Tell me about rings."}],"temperature":0,"ignore_eos":true,"max_tokens":%s%s}' "$1" "${2:-}"; }
ask() { curl -sN "$TOKENRING_URL$1" -H 'Content-Type: application/json' -d "$2" "${@:3}"; }
printf '{"client":"curl","version":"%s"}\n' "$(curl --version | awk 'NR == 1 { print $2 }')"
chat=/v1/chat/completions

want=$(ask $chat "$(body 20)" | python3 -c 'import json, sys; print(json.load(sys.stdin)["choices"][0]["message"]["content"])')
joined='import json, sys
print("".join(json.loads(x[6:])["choices"][0]["delta"].get("content", "") for x in sys.stdin if x.startswith("data: {")))'
check stream "the text" "$(ask $chat "$(body 20 ',"stream":true')" | python3 -c "$joined")" "$want"
check stream "on HTTP/1.0" "$(ask $chat "$(body 20 ',"stream":true')" --http1.0 | python3 -c "$joined")" "$want"
check stream "on HTTP/2" "$(ask $chat "$(body 20 ',"stream":true')" --http2-prior-knowledge | python3 -c "$joined")" "$want"
check stream "read slowly" "$(ask $chat "$(body 20 ',"stream":true')" --limit-rate 1K | python3 -c "$joined")" "$want"
check whole "HEAD" "$(curl -sI "$TOKENRING_URL/health" | head -n 1 | tr -d '\r')" "HTTP/1.1 200 OK"
check whole "Expect: 100-continue" "$(ask $chat "$(body 3)" -H 'Expect: 100-continue' -o /dev/null -w '%{http_code}')" 200
check error "--fail shows a refusal" "$(ask $chat "$(body -1)" --fail -o /dev/null; echo $?)" 22
check error "an answer that cannot be finished in time" "$(ask $chat "$(body 100000 ',"timeout_s":0.3')" -o /dev/null -w '%{http_code}')" 504

before=$(metric 'streams_ended_total{reason="client_disconnected"}')
ask $chat "$(body 100000 ',"stream":true')" --max-time 1 >/dev/null
check cancel "--max-time" $? 28
running 0
check cancel "the server saw it" "$(metric 'streams_ended_total{reason="client_disconnected"}')" $((before + 1))

held=()
for _ in 1 2 3 4 5 6; do
  ask $chat "$(body 100000 ',"stream":true')" --max-time 3 >/dev/null &
  held+=($!)
done
running 4
for _ in $(seq 300); do [ "$(metric requests_waiting)" = 2 ] && break; sleep 0.1; done
check retry "no place" "$(ask $chat "$(body 3)" -o /dev/null -w '%{http_code}')" 503
check retry "--retry until there is one" "$(ask $chat "$(body 3)" --retry 9 -o last -w '%{http_code}')" 200
wait "${held[@]}"
exit 0
