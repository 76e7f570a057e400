"""Runs Python commands in forks of one process, which has imported what a training imports.

A client (`client.py`) connects to the socket that the first argument names, and asks for one process at a time: a line
of JSON, with the descriptors of its streams and of a pipe, to which the wait status is written when the process ended.
The server ends when nobody is connected any more.
"""

import builtins
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import termios
import types
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

ROOMS = ("grid", "objectives", "retrieval", "results", "runners")
"""What is imported beforehand. What is above them reads the environment as it is imported: width and colours."""
DESCRIPTORS = 4
"""Of a request: the three streams, and the pipe for the wait status."""
LONGEST = 2**20
"""Bytes of a request."""


def import_rooms() -> None:
    """Import PyTorch, Ray and our own modules."""
    importlib.import_module("goalgrid.runners.launch.ray_tune")  # the first that imports Ray, which it prepares
    for room in ROOMS:
        package = importlib.import_module(f"goalgrid.{room}")
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if "pretend" not in found.name:
                importlib.import_module(found.name)
    importlib.import_module("torch._dynamo")  # as the first optimiser does


class Server:
    """Answers requests; in a fork, `serve` returns what the fork has to run."""

    def __init__(self, listener: socket.socket, imported: Mapping[str, str]) -> None:
        self.listener, self.imported = listener, dict(imported)
        self.selector = selectors.DefaultSelector()
        self.clients = set[socket.socket]()
        self.children = dict[int, tuple[int, int]]()
        """The pipe and the process of each descriptor of a process."""

    def serve(self) -> Callable[[], object] | None:
        """Answer until nobody is connected, then return None."""
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        while True:
            for key, _ in self.selector.select():
                if program := key.data(key.fileobj):
                    return program
            if not self.clients:
                return None

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        self.clients.add(client)
        self.selector.register(client, selectors.EVENT_READ, self._answer)

    def _answer(self, client: socket.socket) -> Callable[[], object] | None:
        line, descriptors, _, _ = socket.recv_fds(client, LONGEST, DESCRIPTORS)
        if not line:
            self.selector.unregister(client)
            self.clients.remove(client)
            client.close()
            return None
        *streams, pipe = descriptors
        pid = os.fork()
        if pid == 0:
            self._leave(pipe)
            return prepared(json.loads(line), streams, self.imported)
        for stream in streams:
            os.close(stream)
        process = os.pidfd_open(pid)
        self.children[process] = pipe, pid
        self.selector.register(process, selectors.EVENT_READ, self._reap)
        client.sendall(pid.to_bytes(8, "little"))
        return None

    def _reap(self, process: int) -> None:
        """Tell how a process ended before its id becomes free."""
        pipe, pid = self.children.pop(process)
        self.selector.unregister(process)
        ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        assert ended
        status = ended.si_status << 8 if ended.si_code == os.CLD_EXITED else ended.si_status
        with suppress(BrokenPipeError):
            os.write(pipe, status.to_bytes(4, "little"))
        os.waitpid(pid, 0)
        os.close(pipe)
        os.close(process)

    def _leave(self, pipe: int) -> None:
        """Close, in a fork, all that is the server's."""
        self.selector.close()
        self.listener.close()
        for client in self.clients:
            client.close()
        for process, (other, _) in self.children.items():
            os.close(process)
            os.close(other)
        os.close(pipe)


def prepared(request: dict[str, Any], streams: list[int], imported: Mapping[str, str]) -> Callable[[], object]:
    """Give this fork the streams, folder and environment of a new process; return what it runs."""
    if request["session"]:
        os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update({**request["environment"], **imported})
    sys.stdout.reconfigure(line_buffering=os.isatty(1))  # type: ignore[union-attr]
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()  # Python's generator does so by itself
    sys.path[0] = request["folder"] if request["module"] else ""
    sys.argv = ["-m" if request["module"] else "-c", *request["arguments"]]
    main = types.ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    sys.modules["__main__"] = main
    program: str = request["program"]
    if request["module"]:
        return lambda: runpy._run_module_as_main(program)  # type: ignore[attr-defined]
    return lambda: exec(compile(program, "<string>", "exec"), vars(main))


def main() -> Callable[[], object] | None:
    path = Path(sys.argv[1])
    before = dict(os.environ)
    import_rooms()
    imported = {name: value for name, value in os.environ.items() if before.get(name) != value}
    gc.collect()
    gc.freeze()  # a collection in a fork would copy every page
    signal.signal(signal.SIGINT, signal.default_int_handler)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path.with_suffix(".new")))
    listener.listen()
    path.with_suffix(".new").rename(path)  # whoever sees it can connect
    return Server(listener, imported).serve()


if __name__ == "__main__" and (program := main()):
    program()
