"""nginx running the shipped front, deploy/nginx/petstore.conf, with nothing in it changed but where things are."""

import os
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from testing import needs
from testing.checked_clients import checked_client
from testing.subprocesses import await_ready, descendants, free_port, resident

SHIPPED = Path(__file__).parents[1] / "deploy" / "nginx" / "petstore.conf"
DEFAULT_PORT = 8080
"""Where the shipped front expects the service."""

# What surrounds the front where it is installed: the settings of Debian's own nginx.conf, which it has to hold against,
# with compression at its most eager.
_SURROUNDINGS = """
daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log info; {user}
events {{ worker_connections 768; }}
http {{
    sendfile on; tcp_nopush on; default_type application/octet-stream; access_log {folder}/other.log;
    ssl_protocols TLSv1 TLSv1.1 TLSv1.2 TLSv1.3; gzip on; gzip_types *; gzip_proxied any; gzip_vary on;
    client_body_temp_path {folder}/temp/body; proxy_temp_path {folder}/temp/proxy;
    fastcgi_temp_path {folder}/temp/fastcgi; uwsgi_temp_path {folder}/temp/uwsgi; scgi_temp_path {folder}/temp/scgi;
    include {folder}/petstore.conf;
}}
"""


@dataclass
class Front:
    """A running front."""

    port: int
    folder: Path
    process: "subprocess.Popen[bytes]"

    def client(self, key: str | None = None, address: str = "127.0.0.1", **options: Any) -> httpx2.Client:
        """A client that connects from that address, and holds every exchange to the contract."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        transport = httpx2.HTTPTransport(verify=self._trust(), local_address=address)
        base = f"https://localhost:{self.port}"
        return checked_client(transport, base_url=base, headers=headers, timeout=30.0, **options)

    def browser(self, **options: Any) -> httpx2.Client:
        """A client of pages that no contract describes."""
        transport = httpx2.HTTPTransport(verify=self._trust())
        return httpx2.Client(transport=transport, base_url=f"https://localhost:{self.port}", timeout=30.0, **options)

    def connect(self) -> ssl.SSLSocket:
        """A bare connection, for what no client would send."""
        plain = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        return self._trust().wrap_socket(plain, server_hostname="localhost")

    def written_to_disk(self) -> list[Path]:
        """The files in which nginx keeps bodies for the time being."""
        return [path for path in (self.folder / "temp").rglob("*") if path.is_file()]

    def memory(self) -> int:
        """Bytes resident, in the master and its worker."""
        return sum(map(resident, [self.process.pid, *descendants(self.process.pid)]))

    def log(self) -> str:
        return (self.folder / "access.log").read_text()

    def _trust(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "fullchain.pem"))


def nginx_command() -> str:
    """The path of nginx; openssl, which makes its certificate, is required too."""
    needs.program("openssl")
    return needs.program("nginx", "nginx-light")


def rendered(folder: Path, port: int, service_port: int) -> str:
    """The shipped file with ports, certificate and log put where a test can have them. Each must be found in it."""
    text, inner = SHIPPED.read_text(), free_port()
    for shipped, here in (
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("listen [::]:443 ssl http2 default_server;", ""),
        (f"server 127.0.0.1:{DEFAULT_PORT} max", f"server 127.0.0.1:{service_port} max"),
        ('"~^(DELETE|PUT)$" 127.0.0.1:8082;', f'"~^(DELETE|PUT)$" 127.0.0.1:{inner};'),
        ("listen 127.0.0.1:8082;", f"listen 127.0.0.1:{inner};"),
        ("/etc/petstore/tls/fullchain.pem", f"{folder}/fullchain.pem"),
        ("/etc/petstore/tls/privkey.pem", f"{folder}/privkey.pem"),
        ("/var/log/nginx/petstore.access.log", f"{folder}/access.log"),
    ):
        assert 1 == text.count(shipped), shipped
        text = text.replace(shipped, here)
    return text


def rendered_for(*service_ports: int) -> "Configuration":
    """The shipped file with a line for each of these hosts."""

    def configuration(folder: Path, port: int, service_port: int) -> str:
        lines = "".join(f"server 127.0.0.1:{each} max_fails=0;\n" for each in service_ports)
        return rendered(folder, port, service_port).replace(f"server 127.0.0.1:{service_port} max_fails=0;", lines)

    return configuration


Configuration = Callable[[Path, int, int], str]
"""Makes the text of a front, from its folder, its port and the port of the service."""


@contextmanager
def front(folder: Path, service_port: int, configuration: Configuration = rendered) -> Iterator[Front]:
    """The shipped front, or another, on a free port, before the service on that port; stopped at the end."""
    command = nginx_command()
    (folder / "temp").mkdir(parents=True)
    make_certificate(folder)
    port = free_port()
    (folder / "petstore.conf").write_text(configuration(folder, port, service_port))
    user = "user root;" if os.geteuid() == 0 else ""
    (folder / "nginx.conf").write_text(_SURROUNDINGS.format(folder=folder, user=user))
    arguments = [command, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", str(folder / "error.log")]
    checked = subprocess.run([*arguments, "-t"], capture_output=True, text=True, check=False)
    assert 0 == checked.returncode, checked.stderr
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            await_ready(process, lambda: _is_open(port), folder / "error.log")
            yield Front(port, folder, process)
        finally:
            process.terminate()


def make_certificate(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> None:
    """Put a certificate for the names, signed by itself, and its key into the folder."""
    key, certificate = folder / "privkey.pem", folder / "fullchain.pem"
    subject = ["-subj", "/CN=localhost", "-addext", f"subjectAltName={names}"]
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command = [needs.program("openssl"), "req", "-x509", *curve, "-days", "1", *subject]
    subprocess.run([*command, "-keyout", key, "-out", certificate], capture_output=True, check=True)


def _is_open(port: int) -> bool:
    with socket.socket() as trial:
        return trial.connect_ex(("127.0.0.1", port)) == 0
