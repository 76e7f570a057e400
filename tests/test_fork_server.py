"""That a fork of the server is what a new process of Python is, seen from inside and from outside."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.fork_server import client
from tests.program import ROOT

INSIDE = """
import os, random, signal, sys, threading
open_files = [number for number in range(100) if os.path.exists(f"/proc/self/fd/{number}")]
print(__name__, sys.argv, sys.path[0], os.getcwd(), os.environ["CASE"], os.environ.get("RAY_AIR_NEW_OUTPUT"))
print(sys.modules["__main__"].__dict__ is globals(), open_files, threading.active_count(), input())
print(sys.stdout.line_buffering, sys.stdout.encoding, sys.stderr.errors, os.umask(0), os.getsid(0) == os.getpid())
print([signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE)])
print("to stderr", file=sys.stderr)
"""
ENDS = {
    "sys.exit(7)": 7,
    "sys.exit('in short')": 1,
    "1 / 0": 1,
    "os.kill(os.getpid(), 9)": -9,
    "os.abort()": -6,
    "import atexit; atexit.register(lambda: print('at the end'))": 0,
}


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(client, "READ_LATE", re.compile(f"CASE|{client.READ_LATE.pattern}"))
    return {**client.CLIENT.environment, "CASE": "of its own"}


@pytest.mark.gate
@pytest.mark.parametrize("session", [False, True])
def test_inside_it_is_a_new_process(session: bool, tmp_path: Path, environment: dict[str, str]) -> None:
    given = {"cwd": tmp_path, "env": environment, "start_new_session": session, "stdin": subprocess.PIPE}
    said = list[tuple[str, str]]()
    for kind in (subprocess.Popen, client.Popen):
        command = [sys.executable, "-c", INSIDE, "one", "two"]
        streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with kind(command, **given, **streams, text=True) as process:
            said.append(process.communicate("a line\n", timeout=60))
        assert (process.returncode, said[-1][1]) == (0, "to stderr\n")
    assert said[0][0].replace(" None\n", " 0\n") == said[1][0], "but for what our own modules set on import"


@pytest.mark.gate
def test_it_ends_as_a_new_process_does(environment: dict[str, str]) -> None:
    for line, code in ENDS.items():
        new, fork = (
            run([sys.executable, "-c", f"import os, sys\n{line}"], env=environment)
            for run in (lambda *told, **how: subprocess.run(*told, **how, capture_output=True, text=True), client.run)
        )
        assert (new.returncode, fork.returncode, fork.stdout) == (code, code, new.stdout), line
        assert fork.stderr.splitlines()[-1:] == new.stderr.splitlines()[-1:], line


@pytest.mark.gate
def test_it_is_waited_for_and_gets_signals(environment: dict[str, str], tmp_path: Path) -> None:
    script = f"import time; open({str(tmp_path / 'there')!r}, 'w'); time.sleep(100)"
    command = [sys.executable, "-c", script]
    with pytest.raises(subprocess.TimeoutExpired):
        client.run(command, env=environment, timeout=0.2)
    (tmp_path / "there").unlink(missing_ok=True)
    process = client.Popen(command, env=environment, stderr=client.PIPE, start_new_session=True)
    while not (tmp_path / "there").exists():
        time.sleep(0.01)
    assert process.poll() is None
    os.killpg(process.pid, signal.SIGTERM)
    assert process.communicate(timeout=60)[1] == ""
    assert process.returncode == -signal.SIGTERM
    assert not Path(f"/proc/{process.pid}").exists()


@pytest.mark.gate
def test_the_program_itself_says_the_same(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "goalgrid", "grids"]
    new = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    fork = client.run(command, env=environment, cwd=ROOT)
    assert (new.returncode, new.stdout, new.stderr) == (fork.returncode, fork.stdout, fork.stderr)
    assert "demo" in fork.stdout


@pytest.mark.gate
def test_what_may_be_read_on_import_gets_a_new_process(environment: dict[str, str], tmp_path: Path) -> None:
    """Another variable; and a folder with a program of its own."""
    asks = "import sys; print('torch' in sys.modules)"
    assert client.run([sys.executable, "-c", asks], env=environment).stdout == "True\n"
    assert client.run([sys.executable, "-c", asks], env={**environment, "LANG": "C"}).stdout == "False\n"
    (tmp_path / "goalgrid").mkdir()
    assert client.run([sys.executable, "-c", asks], env=environment, cwd=tmp_path).stdout == "False\n"


@pytest.mark.gate
def test_after_its_last_client_a_server_ends_and_the_next_command_starts_another(tmp_path: Path) -> None:
    script = (
        "import os, sys\nfrom tests.fork_server import client\n"
        f"client.CLIENT.share({str(tmp_path)!r})\n"
        "command = [sys.executable, '-c', 'import os; print(os.getppid())']\n"
        "servers = [client.run(command).stdout]\n"
        "client.CLIENT.leave()\n"
        "servers.append(client.run(command).stdout)\n"
        "print(servers[0] != servers[1])"
    )
    new = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert (new.stdout, new.stderr) == ("True\n", "")
