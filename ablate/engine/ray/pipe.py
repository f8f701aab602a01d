"""What the process that has Ray and the driver say to each other, and that process's end of it.

Messages are JSON, one a line. The first line of the process's input says what is asked for:

    {"address", "cpus", "gpus", "accelerator", "folder", "name", "storage", "script", "temp"}

folder: of Tune's files; empty: Ray is joined, and nothing is run. temp: for files of a Ray of our
own. The process then tells, and asks where an answer is shown; every answer has {"stop": bool}
besides.

    {"do": "begun", "parallel", "machines", "watch", "token"}
                                            Ray is there: trials at once;
                                            [id, name, trials that fit] of machines;
                                            [pid, start, name] that must live;
                                            whether it asks for a token
    {"do": "alive", "machines"}             Ray still answers, and the node of this machine lives
    {"do": "gone"}                          Ray says that this node does not
    {"do": "tick"}                          → {}
    {"do": "next"}                          → {"trial_id", "payload"}, or, with payload
                                            None, {"over", "idle"}
    {"do": "record", "trial_id", "events", "node"}    events of a trial, as JSON text, perhaps none;
                                            the id of the machine that they come from
    {"do": "stored", "trial_id", "checkpoint"}    where in storage a trial's newest checkpoint is
    {"do": "ended", "trial_id", "reason"}   the machine ended a trial
    {"do": "done"}                          all trials are over; it ends
    {"do": "refused", "error"}              it ends: the parts of a ConfigError
    {"do": "failed", "error", "full"}       it ends: an error, and whether that is a full disk

The end of its input means that the driver is gone: its session goes at once, itself included.
"""

from __future__ import annotations

import json
import os
import queue
import threading
from typing import Any, TextIO

from trainables.machine.processes import end_session


class DriverClient:
    """This process's ends of the pipes. Any thread may tell; only one asks.

    stop: whether the driver wants all to end. slots: trials that fit on the machines at once.
    """

    def __init__(self, given: TextIO, out: TextIO) -> None:
        self.stop, self.slots = False, 1
        self._given, self._out = given, out
        self._writing = threading.Lock()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def receive(self) -> None:
        threading.Thread(target=self._receive_forever, name="driver", daemon=True).start()

    def _receive_forever(self) -> None:
        for line in self._given:
            self._answers.put(json.loads(line))
        end_session(os.getsid(0))

    def send(self, do: str, **more: Any) -> None:
        with self._writing:
            self._out.write(json.dumps({"do": do, **more}) + "\n")
            self._out.flush()

    def request(self, do: str, **more: Any) -> dict[str, Any]:
        self.send(do, **more)
        answer = self._answers.get()
        self.stop = answer["stop"]
        return answer
