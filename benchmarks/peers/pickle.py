"""Values over a Unix socket by pickle, as a worker without shared memory would do it.

pickle.py serve SOCKET                 keep values; say "ready" when listening
pickle.py set|get SOCKET SIZE SECONDS  do it for so long, then tell each time, in nanoseconds
"""

import json
import os
import pickle
import socket
import struct
import sys
import time

HEAD = struct.Struct("<Q")
VALUES = 3


def send(s, x):
    data = pickle.dumps(x, protocol=pickle.HIGHEST_PROTOCOL)
    s.sendall(HEAD.pack(len(data)))
    s.sendall(data)


def take(s, n):
    data = bytearray(n)
    view = memoryview(data)
    while n:
        k = s.recv_into(view[-n:])
        if not k:
            raise EOFError
        n -= k
    return data


def receive(s):
    return pickle.loads(take(s, HEAD.unpack(take(s, HEAD.size))[0]))


def serve(path):
    values = {}
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    print("ready", flush=True)
    while True:
        s, _ = listener.accept()
        try:
            while True:
                what, key, value = receive(s)
                if what == "set":
                    values[key] = value
                    send(s, None)
                else:
                    send(s, values[key])
        except EOFError:
            s.close()


def work(what, path, size, seconds):
    s = socket.socket(socket.AF_UNIX)
    s.connect(path)
    value = os.urandom(size)
    for i in range(VALUES if what == "get" else 1):  # of a set: to warm up
        send(s, ("set", i, value))
        receive(s)
    times = []
    end = time.monotonic() + seconds
    while not times or time.monotonic() < end:
        begin = time.monotonic_ns()
        if what == "set":
            send(s, ("set", len(times) % VALUES, value))
            receive(s)
        else:
            send(s, ("get", len(times) % VALUES, None))
            got = receive(s)
        times.append(time.monotonic_ns() - begin)
    if what == "get" and got != value:
        sys.exit("wrong bytes")
    print(json.dumps(times))


if sys.argv[1] == "serve":
    serve(sys.argv[2])
else:
    work(sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
