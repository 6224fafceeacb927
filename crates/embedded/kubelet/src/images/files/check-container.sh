#!/bin/bash
# Whether PostgreSQL accepts connections; with --live, whether it runs.
if [ "${1:-}" = --live ]; then
    kill -0 "$(head -n 1 /var/lib/pgsql/data/userdata/postmaster.pid)"
else
    psql --no-psqlrc --quiet --host=/var/run/postgresql --username=postgres --command="SELECT 1" postgres
fi
