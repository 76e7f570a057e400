"""Runs a user-defined command when a trial fails and when a launch ends (`--notify`)."""

import os
import subprocess
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

SECONDS = 60.0
"""Timeout of the command in seconds."""


@dataclass
class Notify:
    """Runs `command` with `sh -c` (if not empty). If it fails, `warn` is called, and the launch continues.

    docs/watching.md lists its environment variables, e.g. GOALGRID_EVENT.
    """

    command: str
    grid: str
    warn: Callable[[str], None]
    _waiting: list[threading.Thread] = field(default_factory=list)

    def failed(self, message: str, counts: Mapping[str, int]) -> None:
        """Report a failed trial without blocking the launch; only the first call has an effect."""
        if self.command and not self._waiting:
            thread = threading.Thread(target=self._tell, args=("failed", "running", message, counts), name="notify")
            self._waiting.append(thread)
            thread.start()

    def ended(self, state: str, message: str, counts: Mapping[str, int]) -> None:
        """Report the end of the launch, after any pending report of a failure."""
        for thread in self._waiting:
            thread.join()
        if self.command:
            self._tell("ended", state, message, counts)

    def _tell(self, event: str, state: str, message: str, counts: Mapping[str, int]) -> None:
        facts = {"grid": self.grid, "event": event, "state": state, "message": message, **counts}
        environment = {f"GOALGRID_{name.upper()}": str(value).replace("\0", "") for name, value in facts.items()}
        try:
            subprocess.run(
                ["sh", "-c", self.command], env=os.environ | environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                timeout=SECONDS, check=True,
            )  # fmt: skip
        except subprocess.CalledProcessError as error:
            if last := str(error.stderr or "").strip().splitlines()[-1:]:
                self.warn(f"--notify {self.command!r} exited with {error.returncode}: {last[0]}")
            else:
                self.warn(f"--notify {self.command!r} exited with {error.returncode}")
        except subprocess.TimeoutExpired:
            self.warn(f"--notify {self.command!r} took more than {SECONDS:.0f} s and was killed")
        except OSError as error:
            self.warn(f"--notify {self.command!r} could not be run: {error}")
