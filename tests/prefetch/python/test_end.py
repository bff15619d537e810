"""The end of the interpreter can stop the announcing thread at any point. No code that runs
afterwards may wait for that thread."""
import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from server import Server

PACKAGE = Path(__file__).resolve().parents[3] / "prefetch" / "python"

# All kinds of code that can run at the end: callbacks of atexit, weak references and finalizers,
# and __del__ of garbage and of globals.
ENDS = """
import atexit, gc, json, os, sys, weakref
def say(text, write=os.write):
    write(1, text.encode() + b"\\n")
gc.set_threshold(0)  # nothing is collected until the interpreter ends
place, is_for_one = eval(sys.argv[1])
def late_callback():
    say("late callback")
    channel.wake()
    assert channel.begin(7, str) is None
atexit.register(late_callback)  # registered before the package's own callback, so it runs after
                                # that
import stop
from cubeshim import _ahead, _channel, _dataset_lists
channel = _channel.Channel(is_for_one=is_for_one)

class Thing:
    pass
class Garbage:
    def __del__(self):
        say("garbage")
        # The thread may be stopped during an import.
        from cubeshim import _socket
        self.order.add([(1, 2)])
        self.order.finish()
class Global:
    def __del__(self, say=say):
        say("global")
        self.order.finish()
        self.channel.close()
        self.channel.wake()
        assert self.channel.begin(8, str) is None

stop.stop_at(place)
files = ["/data/%d.jpg" % i for i in range(100)]
order = channel.begin(0, _dataset_lists.resolve_below([files], ""))
thread = channel.thread
iterator = _ahead.Ahead(iter([(i, i + 1) for i in range(0, 100, 2)]),
                        _ahead.UpToAPermutation(2, 50, 100), order)
next(iterator)
def go_on_when(is_so):
    while not stop.stopped.wait(0.01) and thread.is_alive() and not is_so():
        pass
# The thread announces the first permutation and waits for more. It announces the second, and waits
# for another order or ends.
go_on_when(lambda: any(name == "rest" for _, name, _ in stop.places))
if not stop.stopped.is_set():
    for _ in iterator:
        pass
go_on_when(lambda: order.is_over)
if not stop.stopped.is_set():
    channel.close()
go_on_when(lambda: False)
print(json.dumps(stop.places if place is None else stop.stopped.is_set()), flush=True)

finalized, referred = Thing(), Thing()
weakref.finalize(finalized, lambda close=channel.close: (say("finalizer"), close()))
referred.itself = referred
reference = weakref.ref(referred, lambda _, close=channel.close: (say("reference"), close()))
garbage = Garbage()
garbage.order, garbage.itself = order, garbage
kept = Global()
kept.order, kept.channel = order, channel
del referred, garbage, thread
# A child without the thread ends in the same way.
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
"""
SAID = sorted(2 * ["late callback", "finalizer", "reference", "garbage", "global"])

LOADER = """
import os, sys, stop
from torch.utils.data import DataLoader
from cubeshim import _ahead
stop.stop_in("rest", int(sys.argv[1]))
iterator = iter(DataLoader([("/data/%d" % i, 0) for i in range(100)], batch_size=2))
next(iterator)
assert stop.stopped.wait(60)
def end(self, write=os.write, real=_ahead.Ahead.__del__):
    real(self)
    write(1, b"dropped\\n")
_ahead.Ahead.__del__ = end
"""

# stderr is a full pipe that no process reads.
SILENT = """
import os
from cubeshim import _channel
reader, writer = os.pipe()
os.set_blocking(writer, False)
try:
    while True:
        os.write(writer, bytes(4096))
except BlockingIOError:
    pass
os.set_blocking(writer, True)
os.dup2(writer, 2)
_channel.CONNECT_SECONDS = 0
channel = _channel.Channel()
order = channel.begin(0, str)
def is_writing():
    with open("/proc/self/task/%d/syscall" % channel.thread.native_id) as call:
        return call.read().split()[1:2] == ["0x2"]
while channel.thread.native_id is None or not is_writing():
    channel.thread.join(0.01)
"""


class Ends(unittest.TestCase):
    def setUp(self):
        made = tempfile.TemporaryDirectory(prefix="cubeshim-python-")
        self.addCleanup(made.cleanup)
        self.dir = Path(made.name)
        self.env = {
            name: value for name, value in os.environ.items() if not name.startswith("CUBESHIM_")
        }
        self.env.update(CUBESHIM_RAM_DIR=str(self.dir), CUBESHIM_NAME="test",
                        PYTHONPATH=f"{PACKAGE}:{Path(__file__).parent}")

    def run_to_its_end(self, script, argument):
        """Returns the output of the program. Fails if the program does not end within a minute,
        which is some hundred times as long as it needs."""
        program = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script,
                                    repr(argument)], env=self.env, text=True,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
        try:
            out, error = program.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            self.fail("stopped at %r, it does not end; it has said %r" %
                      (argument, program.communicate()))
        self.assertEqual((program.returncode, error), (0, ""), argument)
        return out.splitlines()

    def serve(self, **settings):
        server = Server(self.dir, "test", **settings)
        self.addCleanup(server.stop)

    def test_program_ends_at_any_place_of_the_thread(self):
        self.serve()
        seen = set()
        for is_for_one in (False, True):
            first, *said = self.run_to_its_end(ENDS, (None, is_for_one))
            self.assertEqual(sorted(said), SAID)
            places = {tuple(place) for place in json.loads(first)}
            self.assertLessEqual({"run", "tell", "rest", "connect", "messages", "told", "close"},
                                 {name for _, name, _ in places})
            stopped = []
            for place in sorted(places - seen):
                first, *said = self.run_to_its_end(ENDS, (place, is_for_one))
                self.assertEqual(sorted(said), SAID, place)
                stopped.append(json.loads(first))
            # The thread does not reach each place every time, because the speed of the server
            # varies.
            self.assertGreater(sum(stopped), 0.8 * len(places - seen))
            seen |= places

    def test_an_iterator_of_a_data_loader(self):
        # The thread waits for the server, which never takes a path.
        self.serve(takes=False)
        for line in range(1, 7):
            self.assertEqual(self.run_to_its_end(LOADER, line), ["dropped"])

    def test_a_log_that_waits(self):
        """There is no server, and the thread logs that."""
        self.env.update(CUBESHIM_LOG="debug", PYTHONUNBUFFERED="")
        self.assertEqual(self.run_to_its_end(SILENT, None), [])


if __name__ == "__main__":
    sys.exit(unittest.main())
