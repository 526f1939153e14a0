# Runs one throw-away PgBouncer for the process at the other end of stdin, which reads one line of
# answer. When stdin ends, for whatever reason, this script stops the pooler and removes its
# directory.
# Arguments: this text, its port, the port of the server, further lines of its configuration.

fail() {
    echo "failed: $*"
    exit 1
}

# PgBouncer refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    user=nobody
    id -u postgres >/dev/null 2>&1 && user=postgres
    command -v setpriv >/dev/null || fail "PgBouncer does not run as root, and setpriv is not here to change the user"
    exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups sh -c "$1" "$0" "$@"
fi

trap '' PIPE
PATH=$PATH:/usr/sbin
command -v pgbouncer >/dev/null || fail "no PgBouncer found; install the package \`pgbouncer\`"
dir=$(mktemp -d /tmp/tenure-pgbouncer.XXXXXX) || fail "no temporary directory can be made"
cat >"$dir/ini" <<INI
[databases]
* = host=127.0.0.1 port=$3
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = $2
unix_socket_dir =
auth_type = trust
auth_file = $dir/users
$4
INI
echo '"postgres" ""' >"$dir/users"
pgbouncer "$dir/ini" </dev/null >"$dir/log" 2>&1 &
pid=$!
until grep -q 'process up' "$dir/log" 2>/dev/null; do
    kill -0 "$pid" 2>/dev/null || {
        words=$(tail -n 5 "$dir/log" | tr '\n' ' ')
        rm -rf "$dir"
        fail "PgBouncer: $words"
    }
    sleep 0.02
done
echo started
read -r _
kill -KILL "$pid"
wait "$pid" 2>/dev/null
rm -rf "$dir"
