"""Runs a program in a terminal of 80 by 24: what it draws goes to standard output, what comes in is typed."""

import fcntl
import os
import pty
import select
import struct
import sys
import termios

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.argv[1], sys.argv[1:])
typed = [0]
while True:
    ready, _, _ = select.select([terminal, *typed], [], [])
    if terminal in ready:
        try:
            drawn = os.read(terminal, 65536)
        except OSError:
            break
        if not drawn:
            break
        os.write(1, drawn)
    if 0 in ready:
        keys = os.read(0, 1024)
        if keys:
            os.write(terminal, keys)
        else:
            typed = []
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
