"""`Popen` and `run` as `subprocess` has them, for Python that would import PyTorch: a fork of a process that has.

A fork is what a new process would be: its streams, folder, arguments, environment, session, signals, exit code and
`__main__` are its own. Where a test is about what a new process imports, or reads on import, it takes `subprocess`; so
does a script given by `-c` that Ctrl-C ends, since it would die of the signal, and a fork exits with 1.
"""

import atexit
import fcntl
import hashlib
import inspect
import json
import os
import re
import select
import socket
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from filelock import FileLock

ROOT = Path(__file__).parents[2]
READ_LATE = re.compile(
    "GOALGRID_RUNS|COLUMNS|RAY_ADDRESS|XDG_(CACHE|STATE)_HOME|PYTEST_.*|MLFLOW_.*|_RJEM_MALLOC_CONF|TORCHINDUCTOR_CACHE_DIR"
)
"""Variables that nothing of what the server imports reads on import. Where another differs, a process is new."""
PIPE = subprocess.PIPE
SECONDS = 120
"""In which a server has imported everything, at the longest."""
_EXECUTE = tuple(inspect.signature(subprocess.Popen._execute_child).parameters)[1:]  # type: ignore[attr-defined]


class _Client:
    """The connection of this process to the server, which the first process that needs it starts."""

    def __init__(self) -> None:
        self.environment = dict[str, str]()
        self.path = Path()
        self.socket: socket.socket | None = None
        self.server: subprocess.Popen[bytes] | None = None
        self.pid = os.getpid()

    def share(self, folder: str) -> None:
        """Keep the environment for the server, and where its socket is: in a folder of this test run, for this code."""
        self.path = Path(folder) / f"forks-{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}"
        self.environment = dict(os.environ)

    def alike(self, environment: Mapping[str, str]) -> bool:
        """Whether a process of this environment imports the same as the server did."""
        names = environment.keys() | self.environment.keys()
        differing = [name for name in names if environment.get(name) != self.environment.get(name)]
        return all(READ_LATE.fullmatch(name) for name in differing)

    def ask(self, request: dict[str, Any], descriptors: Sequence[int]) -> int:
        """The id of a new fork."""
        for _ in range(2):  # a server ends when its last client leaves, even if another one is about to ask
            if self.socket is None:
                self.socket = self._connect()
            with suppress(ConnectionError):
                socket.send_fds(self.socket, [json.dumps(request).encode()], descriptors)
                if answer := self.socket.recv(8):
                    return int.from_bytes(answer, "little")
            self.socket.close()
            self.socket = None
        raise AssertionError("the server of forks dies")

    def _connect(self) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with FileLock(self.path.with_suffix(".lock")):
            try:
                connection.connect(str(self.path))
            except OSError:
                self._start()
                connection.connect(str(self.path))
        return connection

    def _start(self) -> None:
        self.path.unlink(missing_ok=True)
        self.server = subprocess.Popen(
            [sys.executable, "-m", "tests.fork_server.server", str(self.path)],
            cwd=ROOT, env=self.environment, stdin=PIPE, stdout=PIPE, stderr=PIPE,
        )  # fmt: skip
        until = time.monotonic() + SECONDS
        while not self.path.exists():
            assert self.server.poll() is None, self.server.communicate()[1].decode()
            assert time.monotonic() < until, "the server of forks did not start in time"
            time.sleep(0.02)

    def leave(self) -> None:
        """Let the server end, unless others are connected to it."""
        if self.socket and self.pid == os.getpid():
            self.socket.close()
            if self.server:
                self.server.communicate()
            self.socket = self.server = None


CLIENT = _Client()
atexit.register(CLIENT.leave)


class Popen(subprocess.Popen[str]):
    """A fork of the server, or a new process where the server's imports are not what it would import.

    `terminal`: stdin becomes the controlling terminal of the session.
    """

    _status: IO[bytes] | None = None
    """What the server writes the wait status to; None: this is a new process."""

    def __init__(self, *arguments: Any, terminal: bool = False, **how: Any) -> None:
        self._terminal = terminal
        super().__init__(*arguments, **{"text": True, **how})

    def _execute_child(self, *values: Any) -> None:
        given = dict(zip(_EXECUTE, values, strict=True))
        environment = os.environ if given["env"] is None else given["env"]
        folder, command = Path(given["cwd"] or Path.cwd()).resolve(), [str(word) for word in given["args"]]
        own_code = folder != ROOT and (folder / "goalgrid").exists()
        assert command[0] == sys.executable
        assert command[1] in ("-m", "-c")
        if own_code or not CLIENT.alike(environment):
            if self._terminal:
                given["preexec_fn"] = _take_terminal
            super()._execute_child(*given.values())  # type: ignore[misc]
            return
        request = {
            "module": command[1] == "-m", "program": command[2], "arguments": command[3:], "folder": str(folder),
            "environment": dict(environment), "session": given["start_new_session"], "terminal": self._terminal,
        }  # fmt: skip
        ours = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        streams = [number if stream == -1 else stream for number, stream in enumerate(ours)]
        reading, writing = os.pipe()
        self._status = os.fdopen(reading, "rb")
        try:
            self.pid = CLIENT.ask(request, [*streams, writing])
        finally:
            os.close(writing)
            ends = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
            self._close_pipe_fds(*(given[name] for name in ends))  # type: ignore[attr-defined]
        self._child_created = True

    def _internal_poll(self, *arguments: Any, **how: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(*arguments, **how)  # type: ignore[misc]
        if self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None and (ended := self._try_wait(os.WNOHANG))[0]:
                    self._handle_exitstatus(ended[1])  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(wait_flags)  # type: ignore[misc]
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        with self._status:
            status = self._status.read(4)
        assert status, "the server of forks has died"
        return self.pid, int.from_bytes(status, "little")


def run(
    command: Sequence[str | Path], timeout: float | None = None, check: bool = False, **how: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with what is printed captured."""
    with Popen(command, stdout=PIPE, stderr=PIPE, **how) as process:
        try:
            said = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    finished = subprocess.CompletedProcess(command, process.returncode, *said)
    if check:
        finished.check_returncode()
    return finished


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
