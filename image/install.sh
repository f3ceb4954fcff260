#!/bin/sh
# Installs the picker into a folder as the container image holds it: exactly the locked packages, the picker's own wheel,
# what they are (SBOM) and under which licences. The Dockerfile runs this, and so does the test of the image.
#
#     image/install.sh PYTHON FOLDER
set -eu
python=$1
folder=$2
source=$(cd "$(dirname "$0")/.." && pwd)
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1 PIP_NO_CACHE_DIR="${PIP_NO_CACHE_DIR:-1}"

# what builds wheels stays out of the folder
"$python" -m venv "$built/venv"
builder="$built/venv/bin/python"
"$builder" -m pip install --require-hashes --only-binary :all: -r "$source/image/build.lock"
"$builder" -m pip wheel --require-hashes --no-deps --no-build-isolation --wheel-dir "$built/wheels" \
  -r "$source/image/requirements.lock"
"$builder" -m pip wheel --no-deps --no-build-isolation --wheel-dir "$built/wheels" "$source"

"$python" -m venv --without-pip "$folder"
"$builder" -m pip --python "$folder/bin/python" install --no-index --no-deps "$built"/wheels/*.whl
"$builder" -m pip --python "$folder/bin/python" check
"$folder/bin/python" "$source/image/bill.py" "$folder/share/picker" --lock "$source/image/requirements.lock"
# a root that is read only cannot keep what is compiled at the start
"$folder/bin/python" -m compileall -q "$folder/lib"
