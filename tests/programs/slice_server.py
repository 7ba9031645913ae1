#!/usr/bin/python3
"""Stands for a Python with PyTorch: says what a slice server would say, and answers programs that know the token.

It is started as an interpreter is, with `-m tessera.slice` and the words of a slice. A program that connects and says
`TOKEN EPOCH TEXT` gets what the server was started with, and TEXT; one with another token is answered `refused`. The
job decides what else it does, by what it has put into its environment's LANG:

    dies-at-start   ends before it listens
    other-dies      waits for the second server of its card, which ends at once
    never-listens   says nothing
    chatters        says a great deal once it listens
"""

import os
import pathlib
import socket
import sys
import time

if "--check" in sys.argv:
    print("tessera 9.9.9\npytorch 9.9.9")
    sys.exit(0)
if os.environ.get("LANG") == "dies-at-start":
    sys.exit("no such device")
options = dict(zip(sys.argv[3::2], sys.argv[4::2], strict=True))
if os.environ.get("LANG") == "other-dies" and options["--rank"] == "1":
    sys.exit("no such device")
while os.environ.get("LANG") in ("never-listens", "other-dies"):
    time.sleep(1)
path = options["--listen"].removeprefix("unix:")
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
print(f"listening unix:{path}", flush=True)
os.dup2(2, 1)
if os.environ.get("LANG") == "chatters":
    print("a line of a library\n" * 20_000, flush=True)
said = " ".join(f"{name[2:]}={options[name]}" for name in ("--device", "--memory", "--share", "--threads"))
while True:
    connection, _ = listener.accept()
    token, epoch, text = connection.recv(4096).decode().split(" ", 2)
    right = token == os.environ["TESSERA_TOKEN"] and epoch == os.environ["TESSERA_EPOCH"]
    if right and text == "pid":
        text = str(os.getpid())
    connection.sendall((f"{said} {text}" if right else "refused").encode())
    connection.close()
