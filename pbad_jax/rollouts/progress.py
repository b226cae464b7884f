"""A progress bar for loops inside jit: a host callback now and then, nothing else."""

import sys
import time

import jax

BAR = 30  # characters


class ProgressBar:
    """Called from a traced loop with the index of a step; draws on stderr once two seconds have passed."""

    def __init__(self):
        self.began = 0.0
        self.drawn = False

    @staticmethod
    def wanted(choice: bool | None) -> bool:
        """The user's choice, or whether stderr is a terminal."""
        return sys.stderr.isatty() if choice is None else choice

    def __call__(self, i, n: int) -> None:
        """Report step i (traced) of n, at most about 100 times a loop."""
        every = max(1, n // 100)
        jax.lax.cond(
            (i % every == 0) | (i == n - 1),
            lambda: jax.debug.callback(self._draw, i, n),
            lambda: None,
        )

    def _draw(self, i, n) -> None:
        i, n = int(i) + 1, int(n)
        if i == 1 or self.began == 0.0:
            self.began, self.drawn = time.monotonic(), False
        self.show(i, n, self.began)
        if i == n:
            self.began = 0.0

    def show(self, i: int, n: int, began: float, note: str = "") -> None:
        """Draw i of n steps, once two seconds have passed since `began` (time.monotonic)."""
        elapsed = time.monotonic() - began
        if elapsed < 2.0 and not self.drawn:
            return
        done, left = BAR * i // n, elapsed / i * (n - i)
        bar, note = "█" * done + "·" * (BAR - done), f", {note}" if note else ""
        print(f"\r{bar} {i}/{n} steps, {elapsed:.0f} s, {left:.0f} s left{note} ", end="", file=sys.stderr, flush=True)
        self.drawn = i < n
        if i == n:
            print(file=sys.stderr, flush=True)


report_progress = ProgressBar()
