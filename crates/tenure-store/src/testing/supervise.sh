# Runs one throw-away PostgreSQL server for the process at the other end of stdin.
# That process writes commands, one per line, and reads one line of answer for each:
#   start PORT   starts the server and waits until it accepts connections
#   kill         ends the postmaster with SIGKILL and waits until it is gone
#   stop         shuts the server down immediately and waits until it is gone
#   promote      makes a replica the primary and waits until it accepts writes
# When stdin ends, for whatever reason, this script stops the server and removes its directory: a
# server never outlives the test that started it, even a test killed with SIGKILL.
# Arguments: this text, `on` or `off` for fsync; for a server from the files of another, the port of that
# one, and -R for a replica.

fail() {
    echo "failed: $*"
    exit 1
}

# PostgreSQL refuses to run as root.
if [ "$(id -u)" = 0 ]; then
    user=nobody
    id -u postgres >/dev/null 2>&1 && user=postgres
    if command -v setpriv >/dev/null; then
        exec setpriv --reuid="$user" --regid="$(id -g "$user")" --clear-groups sh -c "$1" "$0" "$@"
    elif command -v runuser >/dev/null; then
        exec runuser -u "$user" -- sh -c "$1" "$0" "$@"
    fi
    fail "PostgreSQL does not run as root, and neither setpriv nor runuser is here to change the user"
fi

fsync=$2
# A write to a closed pipe must not end this shell before it has cleaned up.
trap '' PIPE
cd / || fail "the root directory is closed"

# Debian keeps the server's programs out of PATH, one directory per version.
PATH=$PATH:$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -rV | tr '\n' ':')
command -v initdb >/dev/null && command -v postgres >/dev/null ||
    fail "no PostgreSQL server found; install the package \`postgresql\`, or name a server in TENURE_TEST_POSTGRES"

# Memory, if there are 4 GiB of it, for a server that need not last: tests make and drop many files.
base=${TMPDIR:-/tmp}
if [ "$fsync" = off ] && [ -w /dev/shm ]; then
    free=$(df -Pk /dev/shm | while read -r _ _ _ free _; do echo "$free"; done | tail -n 1)
    [ "${free:-0}" -lt 4194304 ] || base=/dev/shm
fi
dir=$(mktemp -d "$base/tenure-postgres.XXXXXX" 2>/dev/null || mktemp -d /tmp/tenure-postgres.XXXXXX) ||
    fail "no temporary directory can be made"
db=$dir/db
log=$dir/log
pid=

alive() {
    [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null
}

# Checks the pid as well: a killed server leaves its file behind, which also says ready.
ready() {
    [ "$(sed -n 1p "$db/postmaster.pid" 2>/dev/null)" = "$pid" ] &&
        grep -q -e '^ready' -e '^standby' "$db/postmaster.pid"
}

# Prints the last lines of the log as one line of answer.
last_words() {
    tail -n 5 "$log" | tr '\n' ' '
}

# After a kill, orphaned processes of the old server may hold its shared memory for a moment, and
# a start in that moment fails; so retry.
start() {
    tries=0
    while [ "$tries" -lt 100 ]; do
        postgres -D "$db" -c port="$1" -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
            -c max_connections=200 -c fsync="$fsync" -c full_page_writes="$fsync" \
            </dev/null >>"$log" 2>&1 &
        pid=$!
        while alive; do
            ready && return 0
            sleep 0.05
        done
        wait "$pid"
        # A killed server's port is free at once; a port that stays taken belongs to another process.
        [ "$tries" -gt 20 ] && tail -n 5 "$log" | grep -q 'Address already in use' && return 1
        tries=$((tries + 1))
        sleep 0.1
    done
    return 1
}

end() {
    alive && kill -"$1" "$pid" && wait "$pid"
    pid=
}

if [ -n "$3" ]; then
    pg_basebackup -D "$db" -h 127.0.0.1 -p "$3" -U postgres ${4:+"$4"} -c fast --no-sync >"$log" 2>&1
else
    initdb -D "$db" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$log" 2>&1
fi || {
    words=$(last_words)
    rm -rf "$dir"
    fail "initdb: $words"
}
# From here on the shell prints only answers.
exec 2>/dev/null
echo "ready in $dir"

while read -r verb port; do
    case $verb in
    start) if start "$port"; then echo "started $pid"; else echo "failed: $(last_words)"; fi ;;
    kill) if alive; then end KILL; echo "killed"; else echo "failed: it is not running"; fi ;;
    stop) if alive; then end QUIT; echo "stopped"; else echo "failed: it is not running"; fi ;;
    promote) if pg_ctl -D "$db" -w promote >>"$log"; then echo "promoted"; else echo "failed: $(last_words)"; fi ;;
    *) echo "failed: unknown command $verb" ;;
    esac
done

end QUIT
rm -rf "$dir"
