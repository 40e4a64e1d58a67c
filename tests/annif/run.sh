#!/bin/sh
# Tests the backend for Annif with the real Annif, in an environment of its own: it wants older versions of numpy and
# scipy than constraints.txt has. What follows the name is for pytest.
set -eu
cd "$(dirname "$0")/../.."
ENVIRONMENT=${ANNIF_ENVIRONMENT:-.venv-annif}
if [ ! -f "$ENVIRONMENT/.ready" ] || [ pyproject.toml -nt "$ENVIRONMENT/.ready" ]; then
    "${PYTHON:-python3}" -m venv "$ENVIRONMENT"
    "$ENVIRONMENT/bin/pip" install --quiet --editable '.[annif]' hypothesis pytest pytest-timeout
    touch "$ENVIRONMENT/.ready"
fi
exec "$ENVIRONMENT/bin/python" -m pytest tests/annif -W default "$@"
