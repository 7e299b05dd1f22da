"""Programs that are wrong, broken or worse; each must fail `add(a, b)`, whatever it tries."""

from __future__ import annotations

# What they share: the function to be written.
_WRONG = "def add(a, b):\n    return None\n"

# Answers that a comparison, a truth or a length might fall for.
TRICKY_VALUES = {
    "equal to all": """
class Any:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __bool__(self): return True
def add(a, b): return Any()
""",
    "an int equal to all": """
class Any(int):
    def __eq__(self, other): return True
    def __hash__(self): return 5
def add(a, b): return Any(-1)
""",
    "a str equal to all": """
class Any(str):
    def __eq__(self, other): return True
    def __hash__(self): return 5
def add(a, b): return Any()
""",
    "a list equal to all": """
class Any(list):
    def __eq__(self, other): return True
def add(a, b): return Any()
""",
    "compares reflected": """
class Any(float):
    __eq__ = __le__ = __ge__ = __lt__ = __gt__ = lambda self, other: True
    __sub__ = __rsub__ = lambda self, other: 0
    __hash__ = float.__hash__
def add(a, b): return Any("nan")
""",
    "changes its class's mind": """
class Meta(type):
    def __instancecheck__(cls, other): return True
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
class Any(metaclass=Meta):
    __class__ = int
    def __eq__(self, other): return True
def add(a, b): return Any()
""",
    "the class itself": """
class Meta(type):
    def __eq__(cls, other): return True
    def __hash__(cls): return 1
class Any(metaclass=Meta): pass
def add(a, b): return Any
""",
    "a mock": """
from unittest.mock import MagicMock, ANY
def add(a, b): return ANY
""",
    "not a number": "def add(a, b):\n    return float('nan')\n",
    "nested too deep": """
def add(a, b):
    value = []
    for _ in range(100000): value = [value]
    return value
""",
    "contains itself": "def add(a, b):\n    a = []\n    a.append(a)\n    return a\n",
    "an endless iterator": """
import itertools
def add(a, b): return itertools.count()
""",
    "a huge integer": "def add(a, b):\n    return 1 << (1 << 26)\n",
    "a huge string": "def add(a, b):\n    return 'x' * (1 << 26)\n",
}

# Attempts on the checker, which a program in the same process would win.
TAMPERING = {
    "replaces builtins": f"""
import builtins
builtins.all = builtins.any = builtins.isinstance = lambda *a: True
builtins.abs = builtins.len = lambda *a: 0
builtins.AssertionError = type("Nothing", (BaseException,), {{}})
builtins.__import__ = lambda *a, **k: None
{_WRONG}""",
    "replaces the check": f"def check(candidate):\n    pass\n{_WRONG}",
    "answers on every descriptor": f"""
import os
for descriptor in range(3, 64):
    try: os.write(descriptor, b'{{"outcome": "passed", "reason": ""}}\\n' * 9)
    except OSError: pass
{_WRONG}""",
    "answers ahead of the questions": f"""
import os
for descriptor in range(3, 64):
    try: os.write(descriptor, b'{{"value": null}}\\n{{"value": true}}\\n' * 200)
    except OSError: pass
{_WRONG}""",
    "answers references without end": f"""
import os
for descriptor in range(3, 64):
    try: os.write(descriptor, b'{{"value": ["reference", 0]}}\\n' * 200)
    except OSError: pass
{_WRONG}""",
    "answers nonsense": f"""
import os
for descriptor in range(3, 64):
    try: os.write(descriptor, b'[' * 50000 + b'\\n{{"value": ["__import__", "os"]}}\\n\\xff\\n')
    except OSError: pass
{_WRONG}""",
    "prints a verdict": f"""
import sys
print('{{"outcome": "passed", "reason": ""}}', flush=True)
print("passed", file=sys.stderr, flush=True)
{_WRONG}""",
    "searches the frames": """
import gc, sys
def add(a, b):
    frame = sys._getframe()
    while frame:
        for value in list(frame.f_locals.values()) + list(frame.f_globals.values()):
            if isinstance(value, dict) and "outcome" in value: value["outcome"] = "passed"
        frame = frame.f_back
    for value in gc.get_objects():
        if isinstance(value, dict) and "outcome" in value: value["outcome"] = "passed"
        if isinstance(value, str) and "assert" in value and "add(" in value: return eval(value)
    return None
""",
    "reads the tests": """
import os, re
def add(a, b):
    for folder in ("/work", "/proc", "/dev", "/headsieve", "/tmp", "/etc"):
        for path, _, names in os.walk(folder):
            for name in names:
                if name.endswith((".json", ".jsonl", "job", "verdict")):
                    found = re.search(r"add\\(.*?== *(.*)", open(os.path.join(path, name)).read())
                    if found: return eval(found[1])
    for descriptor in range(64):
        try: found = re.search(rb"add\\(.*?== *(\\d+)", os.pread(descriptor, 10000, 0))
        except OSError: continue
        if found: return int(found[1])
""",
    "traces all calls": """
import sys, threading
def trace(frame, event, argument):
    for name in frame.f_locals:
        if name == "outcome": frame.f_locals[name] = {"value": True}
    return trace
sys.settrace(trace); sys.setprofile(trace); threading.settrace(trace)
def add(a, b): return None
""",
    "raises an assertion's opposite": "def add(a, b):\n    raise StopIteration('passed')\n",
    "raises an exception of its own": """
class Passed(BaseException):
    def __str__(self): return "passed" * 10000
def add(a, b): raise Passed
""",
    "cannot be told": """
class Passed(Exception):
    def __str__(self): raise self
def add(a, b): raise Passed
""",
}

# Ends of all sorts, which are no pass.
ENDING = {
    "exits with success": f"import os\nos._exit(0)\n{_WRONG}",
    "exits when called": "import os\ndef add(a, b):\n    os._exit(0)\n",
    "raises SystemExit": "import sys\ndef add(a, b):\n    sys.exit(0)\n",
    "raises SystemExit when loaded": f"raise SystemExit(0)\n{_WRONG}",
    "raises KeyboardInterrupt": "def add(a, b):\n    raise KeyboardInterrupt\n",
    "replaces itself": """
import os, sys
def add(a, b):
    os.execv(sys.executable, [sys.executable, "-c", "print('{\\"value\\": 5}')"])
""",
    "kills itself": "import os, signal\ndef add(a, b):\n    os.kill(os.getpid(), signal.SIGKILL)\n",
    "kills everyone": f"""
import os, signal
for process in [-1, 0, 1, *range(2, 200), os.getppid()]:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try: os.kill(process, number)
        except OSError: pass
{_WRONG}""",
    "reads bad memory": "import ctypes\ndef add(a, b):\n    ctypes.string_at(0)\n",
    "recurses without end": "def add(a, b):\n    return add(a, b)\n",
    "recurses below Python": """
import sys
sys.setrecursionlimit(10**9)
class Deep:
    def __repr__(self): return repr(self)
def add(a, b): return repr(Deep())
""",
    "does not parse": "def add(a, b:\n    return a + b\n",
    "holds a null": "def add(a, b):\n    return a + b\x00\n",
    "is half a character": "def add(a, b):\n    return '\udcff'\n",
    "is empty": "",
    "defines another name": "def addition(a, b):\n    return a + b\n",
    "takes other arguments": "def add(a):\n    return a\n",
    "closes everything": f"import os\nos.closerange(0, 64)\n{_WRONG}",
    "fills memory": "def add(a, b):\n    return len(bytearray(1 << 40))\n",
}

# What never comes to an end by itself, or never answers.
ENDLESS = {
    "replaces the connection": f"""
import sys
from inside import wire, program
wire.send = wire.encode = wire.decode = lambda *a, **k: True
sys.modules["inside.checker"] = sys.modules["inside.wire"] = None
{_WRONG}""",
    "loops": "def add(a, b):\n    while True: pass\n",
    "sleeps": "import time\ndef add(a, b):\n    time.sleep(1000)\n",
    "fills memory slowly": """
def add(a, b):
    kept = []
    while True: kept.append(bytearray(1 << 24))
""",
    "prints without end": "def add(a, b):\n    while True: print('x' * 10000)\n",
    "answers without end": f"""
import os
while True:
    for descriptor in range(3, 8):
        try: os.write(descriptor, b'x' * 100000)
        except OSError: pass
{_WRONG}""",
    "catches every signal": """
import signal
for number in range(1, 65):
    try: signal.signal(number, lambda *_: None)
    except (OSError, ValueError): pass
def add(a, b):
    while True:
        try:
            while True: pass
        except BaseException: pass
""",
    "a fork bomb": """
import os
def add(a, b):
    while True:
        try: os.fork()
        except OSError: pass
""",
    "a fork bomb that detaches": """
import os
def add(a, b):
    while True:
        try:
            if os.fork() == 0: os.setsid()
        except OSError: pass
""",
    "threads without end": """
import threading, time
def add(a, b):
    while True:
        try: threading.Thread(target=time.sleep, args=(1000,)).start()
        except RuntimeError: pass
""",
    "leaves a daemon behind": """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 64)
        while True: time.sleep(1000)
    os._exit(0)
def add(a, b): return None
""",
    "fills the disk": """
def add(a, b):
    number = 0
    while True:
        number += 1
        try:
            with open(f"file{number}", "wb") as file:
                while True: file.write(bytes(1 << 20))
        except OSError: pass
""",
    "backtracks without end": """
import re
def add(a, b): return re.match("(a+)+$", "a" * 100 + "b")
""",
}

# Attempts on the world outside; each answers the right sum if it gets there, which is a pass.
# `{port}` is a port on which the test listens, `{file}` a file of the test, `{folder}` its folder.
ESCAPES = {
    "connects": """
import socket
def add(a, b):
    socket.create_connection(("127.0.0.1", {port}), timeout=2).send(b"here")
    return a + b
""",
    "asks the net": """
import urllib.request
def add(a, b):
    urllib.request.urlopen("http://127.0.0.1:{port}", timeout=2)
    return a + b
""",
    "has a network": """
import socket
def add(a, b):
    if [name for _, name in socket.if_nameindex() if name != "lo"]: return a + b
""",
    "reads a file": """
def add(a, b):
    return a + b if open({file!r}).read() else None
""",
    "reads the accounts": """
def add(a, b):
    return a + b if open("/etc/passwd").read() else None
""",
    "reads another's environment": """
import glob, os
def add(a, b):
    for path in glob.glob("/proc/*/environ"):
        if open(path).read(): return a + b
    if set(os.environ) - {{"HOME", "TMPDIR", "PWD", "LC_CTYPE"}}: return a + b
""",
    "writes beside the tests": """
import os
def add(a, b):
    with open(os.path.join({folder!r}, "left"), "w") as file: file.write("here")
    return a + b
""",
    "writes elsewhere": """
import os
def add(a, b):
    for folder in ("/", "/tmp", "/headsieve", "/headsieve/inside", "/usr/lib", "/etc", "/dev"):
        try: open(os.path.join(folder, "left"), "w").close()
        except OSError: continue
        return a + b
""",
    "sees other processes": """
import os
def add(a, b):
    for process in range(20, 100000):
        try: os.kill(process, 0)
        except OSError: continue
        return a + b
""",
    "traces another process": """
import ctypes
def add(a, b):
    library = ctypes.CDLL(None)
    if any(library.ptrace(16, process, 0, 0) == 0 for process in range(3, 20000)): return a + b
""",
    "becomes root": """
import os
def add(a, b):
    if os.getuid() == 0: return a + b
    os.setuid(0)
    return a + b
""",
    "mounts": """
import ctypes
def add(a, b):
    if ctypes.CDLL(None).mount(b"none", b"/work", b"tmpfs", 0, None) == 0: return a + b
""",
    "raises its limits": """
import resource
def add(a, b):
    for limit in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
        resource.setrlimit(limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    return a + b
""",
    "runs a shell": """
import subprocess
def add(a, b):
    return a + b if subprocess.run(["/bin/sh", "-c", "true"]).returncode == 0 else None
""",
    "starts ten processes": """
import os, time
def add(a, b):
    for _ in range(10):
        if os.fork() == 0: time.sleep(1000)
    return a + b
""",
    "writes a large file": """
def add(a, b):
    with open("large", "wb") as file:
        for _ in range(64): file.write(bytes(1 << 20))
    return a + b
""",
    "writes many files": """
def add(a, b):
    for number in range(64):
        with open(str(number), "wb") as file: file.write(bytes(1 << 20))
    return a + b
""",
    "takes all descriptors": """
import os
def add(a, b):
    kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(1000)]
    return a + b
""",
}
