#!/usr/bin/env bash
# The front against nginx (one worker) as a proxy to the same backend, and against libmicrohttpd alone for API requests.
# Runs are interleaved, medians are printed. Numbers only; nothing fails.
#
# Usage:        front.sh PROGRAM       (build/release/bench/front_server)
# Environment:  ROUNDS (5), SECONDS_EACH (3), CONNECTIONS ("16 64"), PORT (18120: the first of six), STREAMS (1000)
set -eu -o pipefail
export LC_ALL=C

program=$(readlink -f "$1")
rounds=${ROUNDS:-5} secs=${SECONDS_EACH:-3} connections=${CONNECTIONS:-16 64} port=${PORT:-18120} streams=${STREAMS:-1000}
backend=$port nginx=$((port + 1)) front=$((port + 2)) api=$((port + 3)) front_api=$((port + 4)) idle=$((port + 5))

for tool in wrk nginx curl python3; do
    command -v "$tool" >/dev/null || { echo "cannot run: no $tool" >&2; exit 2; }
done
dir=$(mktemp -d)
pids=()
# shellcheck disable=SC2317 # called by the trap
cleanup() {
    [ ${#pids[@]} = 0 ] || kill "${pids[@]}" 2>/dev/null || true
    wait 2>/dev/null || true
    rm -rf "$dir"
}
trap cleanup EXIT
trap 'exit 1' INT TERM

nginx_conf() {
    [ "$(id -u)" != 0 ] || echo "user root;"
    cat <<CONF
worker_processes 1;
daemon off;
pid $dir/nginx-$1.pid;
error_log $dir/nginx-$1.log error;
events { worker_connections 8192; }
http {
    access_log off;
    client_body_temp_path $dir/t;
    proxy_temp_path $dir/t;
    fastcgi_temp_path $dir/t;
    uwsgi_temp_path $dir/t;
    scgi_temp_path $dir/t;
    keepalive_requests 100000000;
    $2
}
CONF
}

start() {
    "$@" >"$dir/out" 2>&1 &
    pids+=($!)
}

serve() {
    mkdir -p "$dir/root/bytes"
    truncate -s 1G "$dir/root/bytes/1g"
    nginx_conf backend "server { listen 127.0.0.1:$backend backlog=1024; sendfile on; root $dir/root;
        location = / { return 200 ok; } location /bytes/ { } }" >"$dir/backend.conf"
    nginx_conf proxy "upstream b { server 127.0.0.1:$backend; keepalive 128; keepalive_requests 100000000; }
        upstream idle { server 127.0.0.1:$idle; }
        server { listen 127.0.0.1:$nginx backlog=1024;
        proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_max_temp_file_size 0;
        location / { proxy_pass http://b; }
        location /idle { proxy_pass http://idle; } }" >"$dir/proxy.conf"
    start nginx -c "$dir/backend.conf"
    start nginx -c "$dir/proxy.conf"
    start "$program" proxy "$front" "127.0.0.1:$backend"
    start "$program" api "$api"
    start "$program" front-api "$front_api"
    for p in $backend $nginx $front $api $front_api; do
        curl -s -o "$dir/probe" --retry 20 --retry-connrefused --retry-delay 1 "http://127.0.0.1:$p/health"
    done
}

measure() {
    wrk -t1 -c"$2" -d"$secs"s "http://127.0.0.1:$1$3" >"$dir/wrk" 2>&1 || true
    grep -E 'Socket errors|Non-2xx' "$dir/wrk" | sed "s/^ */  port $1: /" >&2 || true
    awk '/^Requests\/sec:/ { v = $2 } END { printf "%.0f\n", v }' "$dir/wrk"
}

median() { sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

# compare LABEL PORT LABEL PORT PATH
compare() {
    local c
    for c in $connections; do
        rm -f "$dir"/m.*
        for _ in $(seq "$rounds"); do
            measure "$2" "$c" "$5" >>"$dir/m.a"
            measure "$4" "$c" "$5" >>"$dir/m.b"
            paste "$dir/m.a" "$dir/m.b" | tail -1 | awk '{ print $1 / $2 }' >>"$dir/m.ratio"
        done
        printf '%-8s %3s connections: %s %s/s, %s %s/s, median ratio %.2f\n' "$5" "$c" "$1" "$(median <"$dir/m.a")" \
            "$3" "$(median <"$dir/m.b")" "$(median <"$dir/m.ratio")"
    done
}

bulk() {
    rm -f "$dir"/m.*
    for _ in $(seq "$rounds"); do
        for p in $front $nginx; do
            curl -s -o /dev/null -w '%{speed_download}\n' "http://127.0.0.1:$p/bytes/1g" >>"$dir/m.$p"
        done
    done
    awk -v a="$(median <"$dir/m.$front")" -v b="$(median <"$dir/m.$nginx")" \
        'BEGIN { printf "1 GiB: front %.0f MB/s, nginx %.0f MB/s, ratio %.2f\n", a / 1e6, b / 1e6, a / b }'
}

idle_streams() {
    local idle_front=$((port + 6))
    start "$program" proxy "$idle_front" "127.0.0.1:$idle"
    local front_pid=${pids[-1]}
    ulimit -n 20000 || true
    python3 "$(dirname "$0")/idle_streams.py" "$idle" "$streams" \
        "front:$idle_front:$front_pid" "nginx:$nginx:$(pgrep -P "$(cat "$dir/nginx-proxy.pid")")"
}

serve
compare front "$front" nginx "$nginx" /
bulk
compare "front+mhd" "$front_api" "mhd alone" "$api" /health
idle_streams
