#!/bin/sh
# Creates or updates the two databases of Temporal; run it before every new version of the server. It can be
# repeated. Variables: SQL_HOST, SQL_PORT, SQL_USER, SQL_PASSWORD.
set -eu

for part in temporal visibility; do
    database=temporal
    [ "$part" = temporal ] || database=temporal_visibility
    tool() { temporal-sql-tool --plugin postgres12 --endpoint "$SQL_HOST" --database "$database" "$@"; }
    # It exists already after the first time.
    tool create-database --defaultdb postgres || echo "The database $database was not created"
    tool setup-schema --version 0.0 || echo "The schema of $database exists"
    tool update-schema --schema-name "postgresql/v12/$part"
done
