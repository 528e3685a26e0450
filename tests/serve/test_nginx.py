"""The nginx example of docs/security.md, in front of a real service."""

import shutil
import socket
import ssl
import subprocess
import time
from pathlib import Path

import httpx
import pytest
from running_service import UNUSUAL_IDS, exercise, running

from metaxc.catalog import NewItem
from metaxc.errors import MetaxcError
from metaxc.serve.client import Client
from metaxc.serve.http_errors import ForbiddenError, UnauthorizedError
from metaxc.serve.serve_settings import ServeSettings

EXAMPLE = Path(__file__).parents[2] / "docs" / "nginx.conf"
READ, WRITE = "r" * 20, "w" * 20

pytestmark = pytest.mark.skipif(
    not shutil.which("nginx") or not shutil.which("openssl"), reason="nginx or openssl is not installed"
)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def front(catalog, tmp_path):
    """The addresses without and with TLS, the certificate that a client must trust, and nginx' log."""
    key, certificate = tmp_path / "privkey.pem", tmp_path / "fullchain.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=localhost",
        "-days",
        "2",
    ]
    names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names], check=True, capture_output=True)
    plain, secure, log = free_port(), free_port(), tmp_path / "access.log"
    with running(catalog, ServeSettings(tokens={"read": READ, "write": WRITE})) as url:
        text = EXAMPLE.read_text()
        for given, here in {
            "/etc/metaxc/": f"{tmp_path}/",
            "/var/log/nginx/metaxc.log": str(log),
            "listen 80;": f"listen 127.0.0.1:{plain};",
            "listen 443 ssl;": f"listen 127.0.0.1:{secure} ssl;",
            "http://127.0.0.1:8765": url,
        }.items():
            assert text.count(given) >= 1, given
            text = text.replace(given, here)
        (tmp_path / "nginx.conf").write_text(
            f"daemon off;\npid {tmp_path}/pid;\nerror_log {tmp_path}/error.log;\n{text}"
        )
        nginx = subprocess.Popen(["nginx", "-p", str(tmp_path), "-c", str(tmp_path / "nginx.conf")])
        try:
            context = ssl.create_default_context(cafile=str(certificate))
            addresses = f"http://localhost:{plain}", f"https://localhost:{secure}"
            for _ in range(100):
                with Client(addresses[1], WRITE, verify=context) as client:
                    try:
                        client.about()
                        break
                    except MetaxcError:
                        assert nginx.poll() is None, (tmp_path / "error.log").read_text()
                        time.sleep(0.1)
            yield *addresses, context, log
        finally:
            nginx.terminate()
            nginx.wait(20)


def test_the_service_is_reached_over_tls_only_and_every_id_arrives(front):
    plain, secure, context, log = front
    with Client(secure, WRITE, verify=context) as client:
        for name in UNUSUAL_IDS:
            exercise(client, name)
    answer = httpx.get(f"{plain}/v1/about", headers={"Authorization": f"Bearer {WRITE}"})
    assert (answer.status_code, answer.headers.get("location")) == (403, None)
    with Client(secure, verify=context) as nobody, pytest.raises(UnauthorizedError):
        nobody.about()
    with Client(secure, READ, verify=context) as reader:
        reader.search(["fresh bread"])
        with pytest.raises(ForbiddenError):
            reader.add([NewItem("new", "grey cat")])
    assert "/v1/about" in log.read_text()
    assert WRITE not in log.read_text()


def test_large_bodies_metrics_and_too_many_connections_end_at_the_proxy(front):
    _, secure, context, _ = front
    headers = {"Authorization": f"Bearer {WRITE}"}
    with httpx.Client(base_url=secure, headers=headers, verify=context) as http:
        assert http.post("/v1/search", content=b"x" * (1 << 20) + b"x").status_code == 413
        assert http.get("/metrics").status_code == 403
        answer = http.get("/healthz")
        assert (answer.status_code, answer.headers["strict-transport-security"]) == (200, "max-age=31536000")
    port, waiting = httpx.URL(secure).port, []
    try:
        for _ in range(32):
            one = context.wrap_socket(
                socket.create_connection(("127.0.0.1", port)), server_hostname="localhost"
            )
            one.sendall(b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
            waiting.append(one)
        deadline = time.monotonic() + 10
        while (status := httpx.get(f"{secure}/healthz", verify=context).status_code) != 429:
            assert time.monotonic() < deadline, status
    finally:
        for one in waiting:
            one.close()
