"""Forked processes for tests of caches."""

import json
import os
import signal


class Child:
    """A process that does `work` and tells what it gave.

    `work` gets a function that tells the parent something meanwhile, and one that waits until the parent says go.
    """

    def __init__(self, work):
        (hears, tells), (waits, self._says) = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(self._says)

                def tell(value):
                    os.write(tells, json.dumps(value).encode() + b"\n")

                tell(["done", work(tell, lambda: os.read(waits, 1))])
            except BaseException as error:
                tell(["failed", repr(error)])
            finally:
                os._exit(0)
        os.close(tells)
        os.close(waits)
        self._hears = os.fdopen(hears, "rb")

    def hear(self):
        """The next thing that it tells."""
        return json.loads(self._hears.readline())

    def go(self):
        os.write(self._says, b".")

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)

    def result(self):
        """What its work gave."""
        lines = [json.loads(line) for line in self._hears]
        self.close()
        kind, value = lines[-1]
        assert kind == "done", value
        return value

    def close(self):
        os.waitpid(self.pid, 0)
        os.close(self._says)
        self._hears.close()
