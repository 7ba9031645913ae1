"""
Runs a program in a terminal of 80 by 24: what it draws goes to standard output, what comes in is typed, signals are handed
on. At SIGUSR1 the terminal goes away, as when its window is closed. Ends as the program does, 128 + N where signal N ended it.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios

pid, terminal = pty.fork()
if pid == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.environ["TERM"] = "xterm-256color"
    os.execv(sys.argv[1], sys.argv[1:])


def end():
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    sys.exit(code if code >= 0 else 128 - code)


def go_away(*_):
    os.close(terminal)
    end()


signal.signal(signal.SIGUSR1, go_away)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, lambda number, _: os.kill(pid, number))
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
end()
