#!/bin/sh
# Creates the namespace of Nerve, when the server answers. A run that has ended is in the database of Nerve, so
# its history is kept for seven days only. Variables: TEMPORAL_ADDRESS, NAMESPACE.
set -eu

attempts=60
until temporal operator cluster health >/dev/null 2>&1; do
    attempts=$((attempts - 1))
    [ "$attempts" -gt 0 ] || { echo "Temporal does not answer at $TEMPORAL_ADDRESS" >&2; exit 1; }
    sleep 2
done
temporal operator namespace describe --namespace "$NAMESPACE" >/dev/null 2>&1 ||
    temporal operator namespace create --namespace "$NAMESPACE" --retention 7d
