"""The utilisation of this machine's GPUs by nvidia-smi; empty without nvidia-smi."""

import shutil
import subprocess
import threading

LOOK_SECONDS = 5.0
"""Between two looks."""

QUERY = ("--query-gpu=index,utilization.gpu,memory.used,memory.total", "--format=csv,noheader,nounits")


class GpuUse:
    """Queries nvidia-smi repeatedly in a thread; `text` is its latest answer."""

    text = ""

    def __init__(self) -> None:
        self._program = shutil.which("nvidia-smi")
        self._over = threading.Event()

    def start(self) -> None:
        if self._program:
            threading.Thread(target=self._watch, name="gpu use", daemon=True).start()

    def stop(self) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            try:
                command = [str(self._program), *QUERY]
                asked = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
                self.text = utilisation(asked.stdout)
            except (OSError, subprocess.SubprocessError):
                self.text = ""
            self._over.wait(LOOK_SECONDS)


def utilisation(answer: str) -> str:
    """An answer of nvidia-smi in words; lines that hold no numbers, as of a GPU in parts (MIG), are left out.

    >>> utilisation("0, 87, 21810, 143771\\n1, [N/A], 3, 143771\\n2, 4, 1024, 81920\\n")
    'GPU 0: 87 %, 21.3 of 140.4 GiB; GPU 2: 4 %, 1.0 of 80.0 GiB'
    """
    rows = [[word.strip() for word in line.split(",")] for line in answer.splitlines()]
    gpus = [[int(word) for word in row] for row in rows if len(row) == 4 and all(word.isdecimal() for word in row)]
    return "; ".join(f"GPU {n}: {busy} %, {used / 1024:.1f} of {size / 1024:.1f} GiB" for n, busy, used, size in gpus)
