"""What the threads of one mount need to open: the store, the software, and files that requests to remote stores need.

Not here: how they are confined to that (`confinement.py`), what child processes need (the code that starts them tells them).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import fsbridge
from fsbridge.config import Config
from fsbridge.confinement import Needs

LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/usr/share/zoneinfo", "/etc/ld.so.cache")
"""Places of shared libraries, because some modules are imported only when first needed."""

MACHINE = ("/etc/localtime", "/dev/urandom", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/sys/devices/system/cpu")
"""What libraries look up about the machine."""

NETWORK = ("/etc", "/run/systemd/resolve", "/run/resolvconf", "/usr/share/ca-certificates", "/var/lib/ca-certificates")
"""Where name resolution and the check of certificates find their files."""

CREDENTIALS = ("~/.aws", "~/.config/gcloud", "~/.azure")
"""Folders in which the cloud providers' tools keep credentials."""

NAMED = (
    "AWS_CA_BUNDLE",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AZURE_FEDERATED_TOKEN_FILE",
    "GOOGLE_APPLICATION_CREDENTIALS",
    "GOOGLE_SERVICE_ACCOUNT",
    "GOOGLE_SERVICE_ACCOUNT_PATH",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
"""Variables that name files; tokens are replaced by renaming, so their folders are needed."""


def needs(config: Config) -> Needs:
    """Return the needs of the mount `config`. Spill files, the log and child processes are opened in front of the wall."""
    data = list(config.external_folders)
    if config.uses_network:
        named = (os.environ.get(name) for name in NAMED)
        folders = (path if os.path.isdir(path) else os.path.dirname(path) for path in named if path)
        data += [*NETWORK, *map(os.path.expanduser, CREDENTIALS), *filter(None, folders)]
    if not config.is_remote:
        data.append(config.source)
    software = [*_python(), *LIBRARIES, *MACHINE]
    writable = [os.devnull, *filter(None, [config.remote.block_cache if config.uses_network else ""])]
    return Needs(
        data=tuple(map(os.path.abspath, data)),
        software=tuple(dict.fromkeys(software)),
        writable=tuple(writable),
        network=config.uses_network,
    )


def _python() -> list[str]:
    """Return the places of Python and its modules, except the folder that the program happens to have been started from."""
    first = [] if sys.flags.safe_path else sys.path[:1]
    modules = [path for path in sys.path if path not in first or os.path.isfile(path)]
    package = str(Path(fsbridge.__file__).resolve().parent)
    libraries = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    found = [sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix, package, *modules, *libraries]
    return [path for path in map(os.path.abspath, filter(None, found)) if path != "/"]
