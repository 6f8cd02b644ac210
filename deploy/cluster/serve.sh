#!/bin/sh
# Serves with the tokens that all servers share: the first one creates them in the folder TOKENS. The folder with
# the secret that signs them, XDG_STATE_HOME, must be shared too, and the project must have the same path.
set -eu
umask 077

if [ ! -e "$TOKENS/admin.token" ]; then
    python3 -c 'from pathlib import Path
from nerve.server.tokens import load_tokens
load_tokens(Path(".nerve/private"))'
    mkdir -p "$TOKENS"
    # admin.token last: it says that all are there.
    cp -p .nerve/private/read.token .nerve/private/run.token .nerve/private/answer.token "$TOKENS"
    cp -p .nerve/private/admin.token "$TOKENS"
fi
mkdir -p .nerve/private
cp -p "$TOKENS"/*.token .nerve/private
exec nerve serve "$@"
