#!/bin/bash
# PostgreSQL of this machine, with the variables and the data directory of sclorg's images.
set -euo pipefail

data=/var/lib/pgsql/data/userdata
sockets=/var/run/postgresql

# The programs of the version that has made the data; at first, of the newest one.
programs() {
    local version=* found
    if [ -f "$data/PG_VERSION" ]; then version=$(cat "$data/PG_VERSION"); fi
    found=$(compgen -G "/usr/lib/postgresql/$version/bin" || compgen -G "/usr/pgsql-$version/bin" || true)
    found=$(sort -V <<<"$found" | tail -n 1)
    [ -n "$found" ] || found=$(dirname "$(command -v postgres || true)")
    if [ ! -x "$found/postgres" ]; then
        echo "PostgreSQL ${version#\*} is not installed on this machine (Debian and Ubuntu: apt install postgresql)" >&2
        exit 1
    fi
    echo "$found"
}

# Makes the database and its user. Names and passwords are variables of psql, which quotes them.
initialize() {
    : "${POSTGRESQL_USER:?names the user}" "${POSTGRESQL_PASSWORD:?is its password}" "${POSTGRESQL_DATABASE:?names the database}"
    # One that was interrupted is made again, and gets its name when it is complete.
    export PGDATA="$data.unfinished"
    rm -rf "$PGDATA"
    # Written to the disk once, when it is complete.
    initdb --no-sync --username=postgres --auth-local=trust --auth-host=scram-sha-256 --encoding=UTF8 --locale=C.UTF-8 >/dev/null
    echo "host all all all scram-sha-256" >>"$PGDATA/pg_hba.conf"
    # Where no probe and no client finds it.
    pg_ctl --wait --silent start -o "-c listen_addresses='' -c unix_socket_directories=$PGDATA -c fsync=off"
    sql postgres --set=user="$POSTGRESQL_USER" --set=password="$POSTGRESQL_PASSWORD" --set=database="$POSTGRESQL_DATABASE" <<'END'
CREATE USER :"user" PASSWORD :'password';
CREATE DATABASE :"database" OWNER :"user";
END
    if [ -n "${POSTGRESQL_ADMIN_PASSWORD:-}" ]; then
        sql postgres --set=password="$POSTGRESQL_ADMIN_PASSWORD" <<<"ALTER USER postgres PASSWORD :'password';"
    fi
    pg_ctl --wait --silent stop
    initdb --sync-only >/dev/null
    mv "$PGDATA" "$data"
}

sql() {
    psql --quiet --no-psqlrc --host="$PGDATA" --username=postgres --set=ON_ERROR_STOP=1 "$@"
}

found=$(programs)
export PATH="$found:$PATH"
mkdir -p "$sockets"
[ -d "$data" ] || initialize
exec postgres -D "$data" -c listen_addresses='*' -c unix_socket_directories="$sockets,/tmp"
