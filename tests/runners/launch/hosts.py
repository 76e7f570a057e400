"""Several hosts on this one: each in namespaces of its own, with its own network, name, processes and temporary files.

They see one another through a bridge, and one shared folder under the same path.
"""

import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from ...conftest import ROOT

PORT = 6379
RAY = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory=80000000"]


def permitted() -> bool:
    """Whether this user may make namespaces and bridges, the programs for it are here, and hosts see this checkout."""
    if ROOT.is_relative_to("/tmp"):  # each host has a /tmp of its own
        return False
    if not all(shutil.which(program) for program in ("ip", "unshare", "nsenter")):
        return False
    made = subprocess.run(["ip", "netns", "add", f"gg-try-{os.getpid()}"], capture_output=True)
    subprocess.run(["ip", "netns", "del", f"gg-try-{os.getpid()}"], capture_output=True)
    everything = ["unshare", "--net", "--uts", "--pid", "--fork", "--mount", "true"]
    return made.returncode == subprocess.run(everything, capture_output=True).returncode == 0


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@dataclass
class Host:
    """A host of its own: `start` gives it a command, `cut` and `join` pull and plug its cable."""

    name: str
    address: str
    cable: str
    init: "subprocess.Popen[bytes]"
    environment: Mapping[str, str]
    talk: Path
    commands: "list[subprocess.Popen[bytes]]" = field(default_factory=list)

    def start(self, *command: str, code: Path = ROOT, **more: str) -> "subprocess.Popen[bytes]":
        """Run a command here, with the sources in this folder."""
        child = next(iter(_children(self.init.pid)))
        enter = ["nsenter", f"--target={child}", "--net", "--uts", "--pid", "--mount"]
        environment = {**self.environment, **more, "PYTHONPATH": str(code)}
        with self.talk.open("ab") as log:
            started = subprocess.Popen([*enter, *command], stdout=log, stderr=log, env=environment, cwd=code)
        self.commands.append(started)
        return started

    def said(self) -> str:
        return self.talk.read_text(encoding="utf-8", errors="replace")

    def end(self) -> None:
        """Kill all that runs here."""
        for child in _children(self.init.pid):
            os.kill(child, signal.SIGKILL)
        for process in [*self.commands, self.init]:
            process.wait()

    def cut(self) -> None:
        ip("link", "set", self.cable, "down")

    def join(self) -> None:
        ip("link", "set", self.cable, "up")


def _children(pid: int) -> Sequence[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@dataclass(frozen=True)
class Hosts:
    """A network of hosts, the first of which is Ray's head."""

    shared: Path
    """The folder that all of them see under this path."""
    hosts: list[Host]

    @property
    def ray(self) -> str:
        return f"{self.hosts[0].address}:{PORT}"

    def join_ray(self, host: Host, *, cpus: int, code: Path = ROOT) -> "subprocess.Popen[bytes]":
        """`ray start` on this host, as docs/clusters.md says."""
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        where = head if host is self.hosts[0] else [f"--address={self.ray}"]
        own = f"--node-ip-address={host.address}"
        return host.start(*RAY, *where, own, f"--num-cpus={cpus}", code=code)


@contextmanager
def connected(count: int) -> Iterator[Hosts]:
    """So many hosts on one bridge; all that runs on them ends with them."""
    tag = secrets.token_hex(2)
    shared = Path(tempfile.mkdtemp(prefix="gg-hosts-", dir="/var/tmp"))
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(32),
        "RAY_USAGE_STATS_ENABLED": "0",
        "OMP_NUM_THREADS": "1",
    }
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, shared, ignore_errors=True)
        bridge = f"gg{tag}"
        ip("link", "add", bridge, "type", "bridge")
        stack.callback(ip, "link", "del", bridge)
        ip("link", "set", bridge, "up")
        hosts = []
        for number in range(1, count + 1):
            name, cable = f"gg-{tag}-{number}", f"gg{tag}{number}"
            ip("netns", "add", name)
            stack.callback(ip, "netns", "del", name)
            ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", cable, "master", bridge, "up")
            address = f"10.77.0.{number}"
            for words in (["addr", "add", f"{address}/24", "dev", "eth0"], ["link", "set", "eth0", "up"]):
                ip("-n", name, *words)
            ip("-n", name, "link", "set", "lo", "up")
            script = f"hostname host{number}; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /dev/shm; exec sleep inf"
            inside = ["unshare", "--uts", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script]
            init = subprocess.Popen(["ip", "netns", "exec", name, *inside])
            host = Host(f"host{number}", address, cable, init, environment, shared / f"host{number}.log")
            stack.callback(host.end)
            hosts.append(host)
        yield Hosts(shared, hosts)
