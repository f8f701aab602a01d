"""Messages between the driver and the process that runs Ray, and that process's end of the pipes.

Messages are JSON, one a line. The first line that the process reads has its settings:

    {"address", "request", "folder", "name", "storage", "script", "ray_folder"}

`request` has the fields of a `Request`. `folder` is for files of Tune, `ray_folder` for those of a
local Ray. Then the process sends messages. Where an answer is shown, the process waits for it; each
answer also has {"stop": bool}.

    {"do": "begun", "parallel", "machines", "watch"}
                                            Ray has started: number of trials at once;
                                            [id, name, trials that fit] of each machine;
                                            [pid, start, name] of processes that must live
    {"do": "alive", "machines"}             Ray still answers, and the node of this machine lives
    {"do": "tick"}                          → {}
    {"do": "next"}                          → {"trial_id", "payload"}, or, with payload
                                            None, {"over", "idle"}
    {"do": "record", "trial_id", "events", "node"}
                                            events of a trial, as JSON text, possibly none;
                                            id of the machine that sent them
    {"do": "stored", "trial_id", "checkpoint"}
                                            path in storage of a trial's newest checkpoint
    {"do": "ended", "trial_id", "reason"}   the machine ended a trial
    {"do": "done"}                          all trials are over, and the process ends
    {"do": "refused", "error"}              the process ends: the parts of a ConfigError
    {"do": "failed", "error", "full"}       the process ends: an error, and whether a disk is full

If its input ends, the driver is gone, and the process kills its whole session.
"""

import json
import os
import queue
import threading
from typing import Any, TextIO

from trainables.machine.processes import end_session


class DriverClient:
    """Send messages to the driver and receive its answers. Only one thread may call `request`.

    Attributes:
        stop: whether the driver wants the run to end.
        slots: number of trials that fit on the machines at once.
    """

    def __init__(self, answers: TextIO, messages: TextIO) -> None:
        self.stop, self.slots = False, 1
        self._stream, self._messages = answers, messages
        self._sending = threading.Lock()
        self._answers: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()

    def start_receiving(self) -> None:
        """Start the thread that receives answers and ends the session with the driver."""
        threading.Thread(target=self._receive_answers, name="driver", daemon=True).start()

    def _receive_answers(self) -> None:
        for line in self._stream:
            self._answers.put(json.loads(line))
        end_session(os.getsid(0))

    def send(self, do: str, **content: Any) -> None:
        with self._sending:
            self._messages.write(json.dumps({"do": do, **content}) + "\n")
            self._messages.flush()

    def request(self, do: str) -> dict[str, Any]:
        self.send(do)
        answer = self._answers.get()
        self.stop = answer["stop"]
        return answer
