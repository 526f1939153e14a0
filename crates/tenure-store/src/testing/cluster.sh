# Runs one throw-away Patroni cluster for the process at the other end of stdin: an etcd and three
# PostgreSQL servers with synchronous replication. That process writes commands, one per line, and
# reads one line of answer for each:
#   kill N       ends Patroni and the postmaster of the Nth server with SIGKILL
#   start N      starts Patroni of a killed server again, which starts the server
# When stdin ends, for whatever reason, this script stops everything and removes its directory.
# Arguments: this text; the two ports of etcd; for each server its port and that of its Patroni.

fail() {
    echo "failed: $*"
    exit 1
}

# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    user=nobody
    id -u postgres >/dev/null 2>&1 && user=postgres
    command -v setpriv >/dev/null || fail "PostgreSQL does not run as root, and setpriv is not here to change the user"
    exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups sh -c "$1" "$0" "$@"
fi

# A write to a closed pipe must not end this shell before it has cleaned up.
trap '' PIPE
cd / || fail "the root directory is closed"
for program in patroni etcd; do
    command -v $program >/dev/null ||
        fail "no $program found; install the packages \`patroni\`, \`etcd-server\` and \`python3-etcd\`"
done
programs=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
[ -x "$programs/pg_rewind" ] || fail "no PostgreSQL server found; install the package \`postgresql\`"

etcd=$2
peer=$3
shift 3
dir=$(mktemp -d /tmp/tenure-cluster.XXXXXX) || fail "no temporary directory can be made"

etcd --data-dir "$dir/etcd" --logger zap --initial-cluster "default=http://127.0.0.1:$peer" \
    --listen-client-urls "http://127.0.0.1:$etcd" --advertise-client-urls "http://127.0.0.1:$etcd" \
    --listen-peer-urls "http://127.0.0.1:$peer" --initial-advertise-peer-urls "http://127.0.0.1:$peer" \
    </dev/null >"$dir/etcd.log" 2>&1 &
echo $! >"$dir/etcd.pid"

# Starts Patroni of a server, whose files are named after its number.
start() {
    patroni "$dir/$1.yml" </dev/null >>"$dir/$1.log" 2>&1 &
    echo $! >"$dir/$1.pid"
}

# Ends a process of this cluster, if it runs.
end() {
    [ -s "$1" ] && kill -KILL "$(head -n 1 "$1")"
    rm -f "$1"
}

end_server() {
    end "$dir/$1.pid"
    # Without Patroni nobody starts the server again. The file stays, as after any crash.
    [ ! -s "$dir/$1/postmaster.pid" ] || kill -KILL "$(head -n 1 "$dir/$1/postmaster.pid")"
}

count=0
while [ $# -gt 0 ]; do
    count=$((count + 1))
    cat >"$dir/$count.yml" <<YAML
scope: tenure
name: node$count
restapi: {listen: "127.0.0.1:$2", connect_address: "127.0.0.1:$2"}
etcd3: {host: "127.0.0.1:$etcd"}
bootstrap:
  dcs:
    ttl: 10
    loop_wait: 2
    retry_timeout: 3
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 200, wal_log_hints: "on"}
  initdb: [encoding: UTF8, locale: C]
  pg_hba:
    - host all all 127.0.0.1/32 trust
    - host replication all 127.0.0.1/32 trust
postgresql:
  listen: "127.0.0.1:$1"
  connect_address: "127.0.0.1:$1"
  data_dir: $dir/$count
  bin_dir: $programs
  pgpass: $dir/$count.pgpass
  authentication:
    superuser: {username: postgres, password: postgres}
    replication: {username: replicator, password: replicator}
  parameters: {unix_socket_directories: $dir}
YAML
    start $count
    shift 2
done
# From here on the shell prints only answers.
exec 2>/dev/null
echo "started in $dir"

while read -r verb number; do
    case $verb in
    kill) end_server "$number" && echo "killed" || echo "failed: $number does not run" ;;
    start) start "$number" && echo "started" ;;
    *) echo "failed: unknown command $verb" ;;
    esac
done

while [ $count -gt 0 ]; do
    end_server $count
    count=$((count - 1))
done
end "$dir/etcd.pid"
wait
rm -rf "$dir"
