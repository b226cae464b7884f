"""Engines in processes of their own, so that one that does not finish compiling, or dies, can be told and stopped."""

import multiprocessing
import os
from concurrent.futures import ThreadPoolExecutor


def serve(pipe, worker_class, arguments: tuple, threads: int | None) -> None:
    """Answers (method, arguments) with what a worker's method returns, or {"failure": first line of the exception}."""
    worker = None
    if threads:
        os.environ["PJRT_NPROC"] = str(threads)  # read when JAX makes its first array
    while True:
        method, more = pipe.recv()
        try:
            worker = worker or worker_class(*arguments)
            pipe.send(getattr(worker, method)(*more))
        except Exception as e:  # every failure of a rival is a result
            first = (str(e).strip().splitlines() or [""])[0]
            pipe.send({"failure": f"{type(e).__name__}: {first[:200]}"})


class Remote:
    """A worker_class(name, *arguments) in another process; after a failure it answers no more.

    threads: of JAX in that process; None, one a core. See one_thread.py.
    """

    def __init__(self, worker_class, name: str, *arguments, threads: int | None = None):
        self.name, self.failure = name, ""
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(
            target=serve, args=(other, worker_class, (name, *arguments), threads), daemon=True
        )
        self.process.start()
        other.close()  # or the end of the process would not be seen

    def ask(self, method: str, *arguments) -> None:
        if not self.failure:
            self.pipe.send((method, arguments))

    def answer(self, budget: float = 600.0) -> dict:
        """What the method asked for returned, within a budget of seconds."""
        if self.failure:
            return {"failure": self.failure}
        try:
            if self.pipe.poll(budget):
                found = self.pipe.recv()
            else:
                found = {"failure": f"nothing within {budget:.0f} s"}
                self.stop()
        except EOFError:
            found = {"failure": "the process ended (out of memory?)"}
        self.failure = found.get("failure", "")
        return found

    def stop(self) -> None:
        self.process.kill()
        self.process.join()


def compile_all(remotes: list[Remote], lanes: int, dt: float, budget: float) -> list[dict]:
    """What the engines say to `compile`, two at a time; those that fail answer no more."""

    def one(remote: Remote) -> dict:
        remote.ask("compile", lanes, dt)
        return remote.answer(budget)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(one, remotes))
